// Properties that every encoder has, and how much error it leaves compared with ggml's reference encoder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "quant/quant.h"

namespace ridge::quant {
namespace {

constexpr size_t kElements = 256 * 128;

// Bell-shaped values whose spread changes from row to row of 256, as weights have it: four uniform numbers of a 64-bit
// linear congruential generator (Knuth's MMIX constants) added up.
std::vector<float> TestData() {
  std::vector<float> data(kElements);
  uint64_t state = 20260801;
  for (size_t i = 0; i < data.size(); ++i) {
    float sum = -2;
    for (int k = 0; k < 4; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<float>(state >> 40) * 0x1p-24f;
    }
    data[i] = sum * (0.01f + 0.002f * static_cast<float>(i / 256 % 16));
  }
  return data;
}

std::vector<std::byte> Encode(const Type& type, const std::vector<float>& in) {
  const size_t n_blocks = in.size() / type.block_elements;
  std::vector<std::byte> blocks(n_blocks * type.block_bytes);
  type.encode(in.data(), blocks.data(), n_blocks);
  return blocks;
}

std::vector<float> Decode(const Type& type, const std::vector<std::byte>& blocks) {
  const size_t n_blocks = blocks.size() / type.block_bytes;
  std::vector<float> out(n_blocks * type.block_elements);
  type.decode(blocks.data(), out.data(), n_blocks);
  return out;
}

std::vector<float> RoundTrip(const Type& type, const std::vector<float>& in) { return Decode(type, Encode(type, in)); }

double RmsError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

std::vector<float> Scaled(std::vector<float> data, float factor) {
  for (float& value : data) value *= factor;
  return data;
}

class Encoder : public testing::TestWithParam<const Type*> {};

TEST_P(Encoder, ZeroStaysZero) {
  for (float value : RoundTrip(*GetParam(), std::vector<float>(512, 0.0f))) ASSERT_EQ(value, 0.0f);
}

// A power of two in the input comes out as that power of two: nothing in an encoder has a scale of its own. (The limits
// of the formats do: hence values around 1, and a tolerance of a half's smallest step.)
TEST_P(Encoder, ScalesWithItsInput) {
  const std::vector<float> data = Scaled(TestData(), 64);
  const std::vector<float> want = RoundTrip(*GetParam(), data);
  const std::vector<float> got = RoundTrip(*GetParam(), Scaled(data, 16));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], 16 * want[i], 0x1p-20f) << i;
}

// What was decoded is what encoding again gives.
TEST_P(Encoder, IsStable) {
  const Type& type = *GetParam();
  const std::vector<float> once = RoundTrip(type, TestData());
  const std::vector<float> twice = RoundTrip(type, once);
  switch (type.id) {
    case TypeId::kF32:
    case TypeId::kF16:
    case TypeId::kBF16:
    case TypeId::kQ4_0:
    case TypeId::kQ4_1:
    case TypeId::kQ5_0:
    case TypeId::kQ5_1:
    case TypeId::kQ8_0:
    case TypeId::kTQ1_0:
    case TypeId::kTQ2_0:
    case TypeId::kQ1_0:
    case TypeId::kQ2_0: EXPECT_EQ(once, twice); break;
    default:  // searches may settle on other scales, never far away
      EXPECT_LE(RmsError(once, twice), 0.35 * RmsError(once, TestData()));
  }
}

TEST_P(Encoder, TreatsBlocksAlone) {
  const Type& type = *GetParam();
  std::vector<float> data = TestData();
  data.resize(4 * 256);
  const std::vector<std::byte> clean = Encode(type, data);
  const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX};
  for (size_t i = 256; i < 512; ++i) data[i] = bad[i % 6];
  const std::vector<std::byte> mixed = Encode(type, data);
  const size_t row = 256 / type.block_elements * type.block_bytes;
  EXPECT_TRUE(std::equal(clean.begin(), clean.begin() + static_cast<ptrdiff_t>(row), mixed.begin()));
  EXPECT_TRUE(std::equal(clean.begin() + static_cast<ptrdiff_t>(2 * row), clean.end(),
                         mixed.begin() + static_cast<ptrdiff_t>(2 * row)));
}

// Under the sanitizers this is where an undefined conversion would show. The bytes must depend on the input alone.
TEST_P(Encoder, SurvivesAnyFloat) {
  const Type& type = *GetParam();
  const float odd[] = {NAN,      -NAN,    INFINITY,     -INFINITY, FLT_MAX,  -FLT_MAX, FLT_MIN,
                       1e-45f,   -1e-45f, -0.0f,        1e-38f,    65520.0f, 1e30f,    -1e30f,
                       -70000.f, 3.4e37f, 1.17549e-38f, 0x1p-24f,  -0x1p-25f};
  const std::vector<float> ordinary = TestData();
  for (float value : odd) {
    for (size_t period : {1u, 2u, 3u, 31u, 256u}) {
      std::vector<float> in(ordinary.begin(), ordinary.begin() + 512);
      for (size_t i = 0; i < in.size(); i += period) in[i] = value;
      const std::vector<std::byte> blocks = Encode(type, in);
      EXPECT_EQ(blocks, Encode(type, in)) << value << " every " << period;
      Decode(type, blocks);
    }
  }
}

std::vector<const Type*> Encodable() {
  std::vector<const Type*> types;
  for (const Type& type : Types()) {
    if (type.encode != nullptr) types.push_back(&type);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, Encoder, testing::ValuesIn(Encodable()),
                         [](const auto& test) { return std::string(test.param->name); });

// Half a step of the format, as a share of the block's largest magnitude (or of its range, which is at most twice
// that), and a little for the scale's own rounding to half precision.
TEST(EncoderError, StaysWithinTheStepOfTheFormat) {
  const std::map<TypeId, double> bounds = {
      {TypeId::kQ4_0, 1.0 / 8},   {TypeId::kQ4_1, 2.0 / 30},  {TypeId::kQ5_0, 1.0 / 16},  {TypeId::kQ5_1, 2.0 / 62},
      {TypeId::kQ8_0, 1.0 / 254}, {TypeId::kQ8_K, 1.0 / 254}, {TypeId::kTQ1_0, 1.0 / 2},  {TypeId::kTQ2_0, 1.0 / 2},
      {TypeId::kMXFP4, 1.0 / 4},  {TypeId::kNVFP4, 1.0 / 5},  {TypeId::kF16, 1.0 / 2048}, {TypeId::kBF16, 1.0 / 256},
      {TypeId::kQ2_0, 1.0 / 2},
  };
  const std::vector<float> data = Scaled(TestData(), 64);
  for (const auto& [id, bound] : bounds) {
    const Type& type = Get(id);
    const std::vector<float> got = RoundTrip(type, data);
    for (size_t block = 0; block < data.size(); block += type.block_elements) {
      float largest = 0;
      for (size_t i = 0; i < type.block_elements; ++i) largest = std::max(largest, std::fabs(data[block + i]));
      for (size_t i = block; i < block + type.block_elements; ++i) {
        ASSERT_LE(std::fabs(got[i] - data[i]), largest * (bound + 1e-3)) << type.name << " element " << i;
      }
    }
  }
}

// Root mean square error over TestData() that ggml's quantize_row_*_ref leaves (llama.cpp as in llama-cpp-python
// 0.3.36, decoded with this module). Ours may be lower; not more than 0.5 % higher.
TEST(EncoderError, IsThatOfTheReferenceEncoderOrLess) {
  const std::map<TypeId, double> reference = {
      {TypeId::kQ4_0, 1.276196e-03},  {TypeId::kQ4_1, 1.174025e-03},  {TypeId::kQ5_0, 6.371589e-04},
      {TypeId::kQ5_1, 5.656565e-04},  {TypeId::kQ8_0, 7.928387e-05},  {TypeId::kQ2_K, 4.501648e-03},
      {TypeId::kQ3_K, 2.264500e-03},  {TypeId::kQ4_K, 1.070502e-03},  {TypeId::kQ5_K, 5.396480e-04},
      {TypeId::kQ6_K, 2.656372e-04},  {TypeId::kQ8_K, 9.709666e-05},  {TypeId::kIQ4_NL, 1.195603e-03},
      {TypeId::kTQ1_0, 1.187406e-02}, {TypeId::kTQ2_0, 1.187406e-02}, {TypeId::kMXFP4, 1.759164e-03},
      {TypeId::kNVFP4, 1.673622e-03}, {TypeId::kQ1_0, 9.111934e-03},  {TypeId::kQ2_0, 1.076612e-02}};
  const std::vector<float> data = TestData();
  for (const auto& [id, error] : reference) {
    EXPECT_LE(RmsError(RoundTrip(Get(id), data), data), 1.005 * error) << Get(id).name;
  }
}

}  // namespace
}  // namespace ridge::quant
