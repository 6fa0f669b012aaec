#include "sampling/random.h"

#include <gtest/gtest.h>

#include <set>

namespace ridge::sampling {
namespace {

// Known answers of Random123 (its file kat_vectors): counter, key, result.
TEST(Philox, MatchesTheAuthorsTestVectors) {
  EXPECT_EQ(Philox({0, 0}, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryPartOfTheCounterAndSeedMatters) {
  std::set<PhiloxBlock> seen;
  for (const uint64_t bit : {0, 1, 31, 32, 63}) {
    seen.insert(Philox(uint64_t{1} << bit, 0, 0));
    seen.insert(Philox(0, uint64_t{1} << bit, 0));
    seen.insert(Philox(0, 0, uint64_t{1} << bit));
  }
  EXPECT_EQ(seen.size(), 15u);
}

TEST(Uniform, StaysBelowOneAndReachesZero) {
  EXPECT_EQ(Uniform(0, 0), 0.0);
  EXPECT_LT(Uniform(0xffffffff, 0xffffffff), 1.0);
  EXPECT_EQ(Uniform(0x80000000, 0), 0.5);
}

TEST(Uniform, IsEvenOverPositionsAndRequests) {
  int bins[2][16] = {};
  constexpr int kDraws = 16000;
  for (int i = 0; i < kDraws; ++i) {
    const PhiloxBlock a = Philox(7, static_cast<uint64_t>(i), 3);
    const PhiloxBlock b = Philox(7, 3, static_cast<uint64_t>(i));
    ++bins[0][static_cast<int>(Uniform(a[0], a[1]) * 16)];
    ++bins[1][static_cast<int>(Uniform(b[0], b[1]) * 16)];
  }
  for (const auto& row : bins) {
    double chi2 = 0;
    for (const int n : row) chi2 += (n - 1000.0) * (n - 1000.0) / 1000.0;
    EXPECT_LT(chi2, 37.7);  // 15 degrees of freedom, 0.1 %
  }
}

}  // namespace
}  // namespace ridge::sampling
