// This machine sampled in a thread of its own while a run lasts, as a time series.
//
//   Watch watch({.pid = child, .interval_s = 0.2});   ... waitpid(child) ...
//   const std::string csv = watch.Stop();              // before_s,after_s,unix_s,cpu_use_percent,…
//   RIDGE_ASSIGN_OR_RETURN(Series series, ParseSeries(csv));
//
// Guarantees: samples lie `interval_s` apart on the clock of the first, whatever one takes, and one more at the end; times are those of Sampler. A cell without a value is empty. The text
// follows from the samples alone, and ParseSeries reads back what it says.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lab/monitor/sampler.h"

namespace ridge::lab {

struct WatchOptions {
  int64_t pid = 0;
  bool of_child = false;  // watch the first child that this process has then, as soon as there is one
  double interval_s = 0.2;
  std::string sys_root = "/";
};

class Watch {
 public:
  explicit Watch(WatchOptions options);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();
  // Ends it and waits for the sample under way. Once only.
  std::string Stop();
  size_t samples() const { return samples_.size(); }  // after Stop
  // What slowed a GPU or a Jetson down between the samples, "GPU 0: hw_thermal"; empty: nothing that was seen. After Stop.
  std::string SlowedDown() const;
  double cpu_seconds() const { return cpu_s_; }  // that watching took; after Stop

 private:
  void Loop();

  WatchOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::vector<Sample> samples_;
  double cpu_s_ = 0;
  std::thread thread_;
};

std::string SlowedDown(const std::vector<Sample>& samples);
std::string SeriesCsv(const std::vector<Sample>& samples);

struct Series {
  std::vector<std::string> names;  // of the readings, without the three times
  struct Point {
    double before_s = 0, after_s = 0, unix_s = 0;
    std::vector<std::optional<double>> values;  // [names]
  };
  std::vector<Point> points;
  // nullopt: no such reading.
  std::optional<size_t> Find(std::string_view name) const;
};
// Errors: kInvalidData, with the line.
Result<Series> ParseSeries(std::string_view csv);

}  // namespace ridge::lab
