// A tool that prints a line for each sample, kept running beside: `tegrastats`, `nvidia-smi dmon`.
//
//   RIDGE_ASSIGN_OR_RETURN(ToolFeed feed, ToolFeed::Start({"tegrastats", "--interval", "200"}, LogKind::kTegrastats, 0.2));
//   feed.Fill(row, "tegra_", now_s);            // the fields of its newest line, and tegra_age_ms
//
// Guarantees: reading never waits (Start does, for the first line, up to three periods and a second). A line that is older than three periods is no reading
// any more: its fields have no value, and say so. The tool ends with the feed. One thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/monitor/recorded.h"

namespace ridge::lab {

class ToolFeed {
 public:
  // Errors: kNotFound (no such program), kUnavailable (it printed no sample in time: what it said).
  static Result<ToolFeed> Start(const std::vector<std::string>& command, LogKind kind, double period_s);
  ToolFeed(ToolFeed&& other) noexcept;
  ToolFeed& operator=(ToolFeed&&) = delete;
  ~ToolFeed();

  // Of dmon, `prefix` is followed by the GPU's number: "gpu" gives "gpu0_sm_percent".
  void Fill(Row& row, const std::string& prefix, double now_s);
  int pid() const { return pid_; }

 private:
  ToolFeed(int pid, int fd, LogKind kind, double period_s) : pid_(pid), fd_(fd), kind_(kind), period_s_(period_s) {}
  void Poll();
  void Take(const std::string& line, double now_s);

  int pid_ = 0, fd_ = -1;
  LogKind kind_;
  double period_s_;
  std::string part_;    // of a line that has not ended
  std::string header_;  // of dmon
  std::string other_;   // the last line that was no sample
  struct Newest {
    Row row;
    double at_s = 0;
  };
  std::map<int, Newest> newest_;  // by GPU; 0 for tegrastats
};

}  // namespace ridge::lab
