// Lists and ranges of benchmark parameters, and the statistics of their samples.
//
//   ParseNumbers("-p", "512,1024")   ParseNumbers("-d", "0-4096*2")   ParseNumbers("-t", "1-4+1")
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ridge::app {

// Numbers between commas; `a-b` counts by 1, `a-b+s` by s, `a-b*m` multiplies by m. Errors: kUsage naming the flag.
Result<std::vector<int64_t>> ParseNumbers(const std::string& flag, std::string_view list);
std::vector<std::string> SplitList(std::string_view list);

struct Statistics {
  double mean = 0, stddev = 0, median = 0;
};
Statistics Summarize(std::vector<double> samples);

}  // namespace ridge::app
