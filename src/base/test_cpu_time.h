// What a test's own thread has computed for. A bound on it holds beside any neighbours; one on the time that has passed does not.
//
//   const double begin = test::ThreadCpuSeconds();
//   Work();
//   EXPECT_LT(test::ThreadCpuSeconds() - begin, 5.0);
#pragma once

#include <time.h>

namespace ridge::test {

inline double ThreadCpuSeconds() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace ridge::test
