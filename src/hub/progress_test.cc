#include "hub/progress.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridge::hub {
namespace {

using namespace std::chrono_literals;

class MeterTest : public testing::Test {
 protected:
  Meter::Clock::time_point at_ = Meter::Clock::time_point(1000s);
  std::vector<Progress> seen_;
  Meter meter_{[this](const Progress& progress) { seen_.push_back(progress); }};
};

TEST_F(MeterTest, SpeedAndRemainingTime) {
  meter_.Start("x", 0, 1000, at_);
  for (int i = 1; i <= 20; ++i) meter_.Advance(10, at_ + i * 100ms);
  const Progress now = meter_.Now();
  EXPECT_EQ(now.done_bytes, 200u);
  EXPECT_NEAR(now.bytes_per_second, 100, 1);
  EXPECT_NEAR(now.remaining_seconds, 8, 0.1);
  EXPECT_EQ(seen_.size(), 20u);
}

TEST_F(MeterTest, ResumedBytesAreNoSpeed) {
  meter_.Start("x", 900, 1000, at_);
  meter_.Advance(1, at_ + 1s);
  EXPECT_NEAR(meter_.Now().bytes_per_second, 1, 1e-9);
}

TEST_F(MeterTest, AStallShows) {
  meter_.Start("x", 0, 1000, at_);
  for (int i = 1; i <= 10; ++i) meter_.Advance(50, at_ + i * 100ms);
  for (int i = 1; i <= 100; ++i) meter_.Tick(at_ + 1s + i * 100ms);
  EXPECT_EQ(meter_.Now().bytes_per_second, 0);
  EXPECT_LT(meter_.Now().remaining_seconds, 0);
}

TEST_F(MeterTest, StartingOverForgetsTheSpeed) {
  meter_.Start("x", 0, 1000, at_);
  meter_.Advance(500, at_ + 1s);
  meter_.SetDone(0, at_ + 2s);
  EXPECT_EQ(meter_.Now().done_bytes, 0u);
  EXPECT_EQ(meter_.Now().bytes_per_second, 0);
}

TEST_F(MeterTest, AtMostTenTimesASecond) {
  meter_.Start("x", 0, 1000, at_);
  for (int i = 0; i < 1000; ++i) meter_.Advance(1, at_ + i * 1ms);
  EXPECT_LE(seen_.size(), 11u);
  EXPECT_GE(seen_.size(), 9u);
}

TEST_F(MeterTest, UnknownTotal) {
  meter_.Start("x", 0, 0, at_);
  meter_.Advance(100, at_ + 1s);
  EXPECT_LT(meter_.Now().remaining_seconds, 0);
  EXPECT_NEAR(meter_.Now().bytes_per_second, 100, 1e-9);
}

}  // namespace
}  // namespace ridge::hub
