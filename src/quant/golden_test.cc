// Decoding and encoding against what the `gguf` Python package made of the same input (tools/make_dequant_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "quant/quant.h"

namespace ridge::quant {
namespace {

constexpr const char* kFolder = "tests/golden/dequant/";  // from the repository's root

std::vector<std::byte> Bytes(const std::string& hex) {
  std::vector<std::byte> bytes(hex.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
  return bytes;
}

std::vector<uint32_t> Words(const std::string& hex) {
  std::vector<uint32_t> words(hex.size() / 8);
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = static_cast<uint32_t>(std::stoul(hex.substr(8 * i, 8), nullptr, 16));
  return words;
}

// Calls visit(key, value) for every line of the type's file.
template <class Visit>
void ForEachLine(const Type& type, Visit visit) {
  const std::string path = kFolder + std::string(type.name) + ".txt";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << ": run from the repository's root; make it with tools/make_dequant_golden.py";
  std::string key;
  std::string value;
  file.ignore(10000, '\n');  // the origin
  while (file >> key >> value) visit(key, value);
}

class Golden : public testing::TestWithParam<const Type*> {};

TEST_P(Golden, DecodesToTheSameBits) {
  const Type& type = *GetParam();
  size_t blocks = 0;
  std::vector<std::byte> block;
  ForEachLine(type, [&](const std::string& key, const std::string& value) {
    if (key == "block") block = Bytes(value);
    if (key != "values") return;
    ASSERT_EQ(block.size(), type.block_bytes);
    const std::vector<uint32_t> want = Words(value);
    ASSERT_EQ(want.size(), type.block_elements);
    // At an odd address, twice in a row: any alignment must do, and the second block must not depend on the first.
    std::vector<std::byte> shifted(1 + 2 * block.size());
    std::memcpy(shifted.data() + 1, block.data(), block.size());
    std::memcpy(shifted.data() + 1 + block.size(), block.data(), block.size());
    std::vector<float> got(2 * want.size() + 1, 12345.0f);
    type.decode(shifted.data() + 1, got.data(), 2);
    for (size_t i = 0; i < 2 * want.size(); ++i) {
      ASSERT_EQ(__builtin_bit_cast(uint32_t, got[i]), want[i % want.size()]) << "block " << blocks << " element " << i;
    }
    EXPECT_EQ(got.back(), 12345.0f) << "written past the end";
    ++blocks;
  });
  EXPECT_GE(blocks, 4u);
}

// The types whose encoder the package has.
class GoldenEncoder : public testing::TestWithParam<std::string_view> {};

TEST_P(GoldenEncoder, EncodesToTheSameBytes) {
  ASSERT_NE(Find(GetParam()), nullptr);
  const Type& type = *Find(GetParam());
  ASSERT_NE(type.encode, nullptr);
  size_t rows = 0;
  std::vector<float> input;
  ForEachLine(type, [&](const std::string& key, const std::string& value) {
    if (key == "input") {
      const std::vector<uint32_t> words = Words(value);
      input.resize(words.size());
      std::memcpy(input.data(), words.data(), 4 * words.size());
    }
    if (key != "encoded") return;
    const std::vector<std::byte> want = Bytes(value);
    const size_t n_blocks = input.size() / type.block_elements;
    ASSERT_EQ(want.size(), n_blocks * type.block_bytes);
    std::vector<std::byte> got(want.size());
    type.encode(input.data(), got.data(), n_blocks);
    EXPECT_EQ(got, want) << "row " << rows;
    ++rows;
  });
  EXPECT_EQ(rows, 7u);
}

INSTANTIATE_TEST_SUITE_P(Types, GoldenEncoder,
                         testing::Values("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0",
                                         "MXFP4"),
                         [](const auto& test) { return std::string(test.param); });

std::vector<const Type*> Decodable() {
  std::vector<const Type*> types;
  for (const Type& type : Types()) {
    if (type.decode != nullptr) types.push_back(&type);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, Golden, testing::ValuesIn(Decodable()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST(Decodable, IsEveryTypeThatHoldsWeights) { EXPECT_EQ(Decodable().size(), 29u); }

}  // namespace
}  // namespace ridge::quant
