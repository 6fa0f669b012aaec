#include "gguf/parse.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/checked.h"
#include "base/test_cpu_time.h"
#include "gguf/test_files.h"

namespace ridge::gguf {
namespace {

using test::Array;
using test::AsBytes;
using test::Builder;
using test::Raw;
using test::Str;

Result<ParsedShard> ParseText(const std::string& text) { return Parse(AsBytes(text), "test.gguf"); }

// The file is refused, and the message holds every one of `parts`.
void ExpectRefused(const std::string& text, Code code, const std::vector<std::string>& parts) {
  const auto shard = ParseText(text);
  ASSERT_FALSE(shard) << "accepted, expected: " << parts[0];
  const std::string message = shard.error().Message();
  EXPECT_EQ(Name(shard.error().code), Name(code)) << message;
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
}

// Every value type once, two F32 tensors.
Builder Good() {
  Builder b;
  b.Key("u8", ValueType::kU8, Raw<uint8_t>(200)).Key("i8", ValueType::kI8, Raw<int8_t>(-3));
  b.Key("u16", ValueType::kU16, Raw<uint16_t>(60000)).Key("i16", ValueType::kI16, Raw<int16_t>(-300));
  b.Key("u32", ValueType::kU32, Raw<uint32_t>(4000000000u)).Key("i32", ValueType::kI32, Raw<int32_t>(-70000));
  b.Key("u64", ValueType::kU64, Raw<uint64_t>(UINT64_MAX)).Key("i64", ValueType::kI64, Raw<int64_t>(INT64_MIN));
  b.Key("f32", ValueType::kF32, Raw<float>(0.5f)).Key("f64", ValueType::kF64, Raw<double>(-0.25));
  b.Key("yes", ValueType::kBool, Raw<uint8_t>(1)).Key("no", ValueType::kBool, Raw<uint8_t>(0));
  b.Key("text", ValueType::kString, Str("a\0b\xff"));
  b.Key("words", ValueType::kArray,
        Array(ValueType::kString, 3, Str("x") + Str("") + Str("a longer one than fits inline")));
  b.Key("bytes", ValueType::kArray, Array(ValueType::kU8, 3, "\x01\x02\xff"));
  b.Key("signed", ValueType::kArray, Array(ValueType::kI8, 2, "\xff\x01"));
  b.Key("u16s", ValueType::kArray, Array(ValueType::kU16, 1, Raw<uint16_t>(65535)));
  b.Key("i16s", ValueType::kArray, Array(ValueType::kI16, 1, Raw<int16_t>(-1)));
  b.Key("ints", ValueType::kArray, Array(ValueType::kI32, 2, Raw<int32_t>(-1) + Raw<int32_t>(7)));
  b.Key("u32s", ValueType::kArray, Array(ValueType::kU32, 2, Raw<uint32_t>(8) + Raw<uint32_t>(7)));
  b.Key("u64s", ValueType::kArray, Array(ValueType::kU64, 1, Raw<uint64_t>(UINT64_MAX)));
  b.Key("i64s", ValueType::kArray, Array(ValueType::kI64, 1, Raw<int64_t>(-5)));
  b.Key("floats", ValueType::kArray, Array(ValueType::kF32, 2, Raw<float>(1.5f) + Raw<float>(-2)));
  b.Key("doubles", ValueType::kArray, Array(ValueType::kF64, 1, Raw<double>(1e300)));
  b.Key("bools", ValueType::kArray, Array(ValueType::kBool, 3, std::string("\x01\x00\x01", 3)));
  b.Key("none", ValueType::kArray, Array(ValueType::kI32, 0, ""));
  b.Tensor("a", {4, 3}, 0, 0).Tensor("b", {8}, 0, 64).Data(96);
  return b;
}

TEST(Parse, ReadsEveryValueType) {
  const auto shard = ParseText(Good().Text());
  ASSERT_TRUE(shard) << shard.error().Message();
  const Metadata& m = shard->metadata;
  EXPECT_EQ(m.Get<uint64_t>("u8").value(), 200u);
  EXPECT_EQ(m.Get<int64_t>("i8").value(), -3);
  EXPECT_EQ(m.Get<uint64_t>("u16").value(), 60000u);
  EXPECT_EQ(m.Get<int64_t>("i16").value(), -300);
  EXPECT_EQ(m.Get<uint64_t>("u32").value(), 4000000000u);
  EXPECT_EQ(m.Get<int64_t>("i32").value(), -70000);
  EXPECT_EQ(m.Get<uint64_t>("u64").value(), UINT64_MAX);
  EXPECT_EQ(m.Get<int64_t>("i64").value(), INT64_MIN);
  EXPECT_EQ(m.Get<double>("f32").value(), 0.5);
  EXPECT_EQ(m.Get<double>("f64").value(), -0.25);
  EXPECT_EQ(m.Get<bool>("yes").value(), true);
  EXPECT_EQ(m.Get<bool>("no").value(), false);
  EXPECT_EQ(m.Get<std::string>("text").value(), std::string("a"));  // a C literal ends at its NUL
  EXPECT_EQ(m.Strings("words").value()->at(2), "a longer one than fits inline");
  EXPECT_EQ(m.Get<std::vector<std::string>>("words").value().size(), 3u);
  EXPECT_EQ(m.Get<std::vector<uint8_t>>("bytes").value(), (std::vector<uint8_t>{1, 2, 255}));
  EXPECT_EQ(m.Get<std::vector<uint64_t>>("bytes").value(), (std::vector<uint64_t>{1, 2, 255}));
  EXPECT_EQ(m.Get<std::vector<int64_t>>("signed").value(), (std::vector<int64_t>{-1, 1}));
  EXPECT_EQ(m.Get<std::vector<uint8_t>>("signed").value(), (std::vector<uint8_t>{255, 1}));
  EXPECT_EQ(m.Get<std::vector<uint64_t>>("u16s").value(), (std::vector<uint64_t>{65535}));
  EXPECT_EQ(m.Get<std::vector<double>>("i16s").value(), (std::vector<double>{-1}));
  EXPECT_EQ(m.Get<std::vector<int64_t>>("ints").value(), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(m.Get<std::vector<int64_t>>("u32s").value(), (std::vector<int64_t>{8, 7}));
  EXPECT_EQ(m.Get<std::vector<uint64_t>>("u64s").value(), (std::vector<uint64_t>{UINT64_MAX}));
  EXPECT_EQ(m.Get<std::vector<int64_t>>("i64s").value(), (std::vector<int64_t>{-5}));
  EXPECT_EQ(m.Get<std::vector<double>>("floats").value(), (std::vector<double>{1.5, -2}));
  EXPECT_EQ(m.Get<std::vector<double>>("doubles").value(), (std::vector<double>{1e300}));
  EXPECT_EQ(m.Get<std::vector<uint8_t>>("bools").value(), (std::vector<uint8_t>{1, 0, 1}));
  EXPECT_EQ(m.Get<std::vector<int64_t>>("none").value().size(), 0u);
  EXPECT_EQ(m.entries().size(), 26u);
  EXPECT_EQ(m.entries()[0].first, "u8");
}

TEST(Parse, PlacesTensors) {
  const std::string text = Good().Text();
  const auto shard = ParseText(text);
  ASSERT_TRUE(shard);
  ASSERT_EQ(shard->tensors.size(), 2u);
  const TensorInfo& a = shard->tensors[0];
  EXPECT_EQ(a.shape, (std::vector<uint64_t>{4, 3}));
  EXPECT_EQ(a.size_bytes, 48u);
  EXPECT_EQ(a.offset_bytes, text.size() - 96);
  EXPECT_EQ(a.elements(), 12u);
  EXPECT_EQ(a.rows(), 3u);
  EXPECT_EQ(shard->tensors[1].offset_bytes, text.size() - 32);
}

TEST(Parse, ReadsVersion2) {
  Builder b = Good();
  b.version = 2;
  const auto shard = ParseText(b.Text());
  ASSERT_TRUE(shard);
  EXPECT_EQ(shard->version, 2u);
}

TEST(Parse, RefusesOtherVersionsAndByteOrders) {
  for (const uint32_t version : {0u, 1u, 4u, 65535u}) {
    Builder b = Good();
    b.version = version;
    ExpectRefused(b.Text(), Code::kUnsupported,
                  {"version is not supported", "found version " + std::to_string(version), "2 or 3"});
  }
  for (const uint32_t version : {2u, 3u, 1u, 768u}) {
    Builder b = Good();
    b.version = __builtin_bswap32(version);
    ExpectRefused(b.Text(), Code::kUnsupported, {"other byte order", "version " + std::to_string(version)});
  }
}

TEST(Parse, SaysWhatAFileWithoutMagicIs) {
  ExpectRefused("", Code::kInvalidData, {"file is empty", "test.gguf"});
  ExpectRefused("PK\x03\x04rest", Code::kInvalidData, {"not a GGUF file", "50 4b 03 04", "47 47 55 46"});
  ExpectRefused("version https://git-lfs.github.com/spec/v1\n", Code::kInvalidData, {"Git LFS pointer"});
  ExpectRefused("<!DOCTYPE html>", Code::kInvalidData, {"web page"});
  ExpectRefused("tjgg\x03", Code::kInvalidData, {"older ggml format"});
  ExpectRefused("GG", Code::kInvalidData, {"not a GGUF file", "47 47"});
}

TEST(Parse, EveryTruncationIsRefused) {
  const std::string text = Good().Text();
  ASSERT_TRUE(ParseText(text));
  for (size_t size = 0; size < text.size(); ++size) {
    const auto shard = ParseText(text.substr(0, size));
    ASSERT_FALSE(shard) << size;
    EXPECT_NE(shard.error().where.find("test.gguf"), std::string::npos) << size;
  }
}

TEST(Parse, TruncatedDataNamesTheTensorAndTheSizes) {
  std::string text = Good().Text();
  const size_t whole = text.size();
  text.pop_back();
  ExpectRefused(text, Code::kInvalidData,
                {"outside the file", "tensor \"b\"", std::to_string(whole - 1), std::to_string(whole)});
}

TEST(Parse, TruncatedMetadataNamesTheKey) {
  Builder b;
  b.Key("some.text", ValueType::kString, Raw<uint64_t>(1u << 20) + "abc");
  ExpectRefused(b.Text(), Code::kInvalidData, {"ends too early", "key \"some.text\""});
}

TEST(Parse, RefusesDuplicates) {
  Builder keys = Good();
  keys.Key("u8", ValueType::kString, Str("again"));
  ExpectRefused(keys.Text(), Code::kInvalidData, {"key appears twice", "\"u8\""});
  Builder tensors;
  tensors.Tensor("w", {8}, 0, 0).Tensor("v", {8}, 0, 32).Tensor("w", {8}, 0, 64).Data(96);
  ExpectRefused(tensors.Text(), Code::kInvalidData, {"same name", "tensor \"w\"", "tensors 1 and 3 of 3"});
}

TEST(Parse, RefusesOverlaps) {
  Builder b;
  b.Tensor("w", {8}, 0, 32).Tensor("v", {16}, 0, 0).Data(64);
  ExpectRefused(b.Text(), Code::kInvalidData, {"overlaps", "tensor \"w\"", "\"v\" ends"});
  Builder same;
  same.Tensor("w", {8}, 0, 0).Tensor("v", {8}, 0, 0).Data(64);
  ExpectRefused(same.Text(), Code::kInvalidData, {"overlaps"});
}

TEST(Parse, AcceptsTensorsInAnyOrderAndGaps) {
  Builder b;
  b.Tensor("w", {8}, 0, 128).Tensor("v", {8}, 0, 0).Data(160);
  EXPECT_TRUE(ParseText(b.Text()));
}

TEST(Parse, KeepsUnknownTensorTypes) {
  Builder b;
  b.Tensor("w", {5, 3}, 99, 0).Tensor("v", {8}, 0, 64).Data(96);
  const auto shard = ParseText(b.Text());
  ASSERT_TRUE(shard) << shard.error().Message();
  EXPECT_EQ(shard->tensors[0].type, nullptr);
  EXPECT_EQ(shard->tensors[0].type_id, 99u);
  EXPECT_EQ(shard->tensors[0].size_bytes, 0u);
  Builder inside;  // begins inside a known tensor
  inside.Tensor("w", {5, 3}, 99, 32).Tensor("v", {16}, 0, 0).Data(96);
  ExpectRefused(inside.Text(), Code::kInvalidData, {"overlaps", "tensor \"w\""});
  Builder same;  // and at the same place
  same.Tensor("w", {5}, 99, 0).Tensor("v", {8}, 99, 0).Data(96);
  ExpectRefused(same.Text(), Code::kInvalidData, {"overlaps"});
  Builder outside;
  outside.Tensor("w", {5, 3}, 99, 96).Data(96);
  ExpectRefused(outside.Text(), Code::kInvalidData, {"outside the file", "tensor \"w\""});
}

TEST(Parse, AlignmentKey) {
  Builder b;
  b.alignment = 256;
  b.Key("general.alignment", ValueType::kU32, Raw<uint32_t>(256)).Tensor("w", {8}, 0, 256).Data(288);
  const auto shard = ParseText(b.Text());
  ASSERT_TRUE(shard) << shard.error().Message();
  EXPECT_EQ(shard->alignment, 256u);
  EXPECT_EQ(shard->tensors[0].offset_bytes % 256, 0u);
  Builder unaligned;
  unaligned.Tensor("w", {8}, 0, 16).Data(64);
  ExpectRefused(unaligned.Text(), Code::kInvalidData, {"not aligned", "tensor \"w\"", "offset 16", "multiple of 32"});
  for (const uint32_t bad : {0u, 3u, 48u}) {
    Builder odd;
    odd.Key("general.alignment", ValueType::kU32, Raw<uint32_t>(bad));
    ExpectRefused(odd.Text(), Code::kInvalidData, {"power of two", "general.alignment", std::to_string(bad)});
  }
  Builder text;
  text.Key("general.alignment", ValueType::kString, Str("32"));
  ExpectRefused(text.Text(), Code::kInvalidData, {"wrong type", "general.alignment", "string"});
}

TEST(Parse, RefusesBadShapes) {
  const auto refused = [](const std::vector<uint64_t>& shape, uint32_t type, const std::vector<std::string>& parts) {
    Builder b;
    b.Tensor("weight", shape, type, 0).Data(64);
    ExpectRefused(b.Text(), Code::kInvalidData, parts);
  };
  refused({}, 0, {"number of dimensions", "tensor \"weight\"", "found 0", "1 to 4"});
  refused({1, 1, 1, 1, 1}, 0, {"number of dimensions", "found 5"});
  refused({4, 0}, 0, {"dimension of zero", "tensor \"weight\"", "[4, 0]"});
  refused({1ull << 32, 1ull << 32}, 0, {"too many elements", "tensor \"weight\""});
  refused({1ull << 63}, 99, {"too many elements"});
  refused({1ull << 62}, 0, {"too large", "tensor \"weight\""});         // 2^64 bytes
  refused({1ull << 61}, 0, {"outside the file", "tensor \"weight\""});  // 2^63 bytes
  refused({33}, 8, {"whole number of blocks", "row length 33 of type Q8_0", "multiple of 32"});
  refused({32, 33}, 12, {"whole number of blocks", "Q4_K", "multiple of 256"});
}

TEST(Parse, RefusesOffsetsThatWrap) {
  Builder b;
  b.Tensor("w", {8}, 0, UINT64_MAX - 31).Data(64);
  ExpectRefused(b.Text(), Code::kInvalidData, {"outside the file", "tensor \"w\""});
}

TEST(Parse, RefusesBadMetadata) {
  Builder nested;
  nested.Key("deep", ValueType::kArray, Array(ValueType::kArray, 1, Array(ValueType::kU8, 1, "a")));
  ExpectRefused(nested.Text(), Code::kUnsupported, {"array of arrays", "key \"deep\""});
  Builder type;
  type.RawKey("odd", 13, "aaaaaaaa");
  ExpectRefused(type.Text(), Code::kInvalidData, {"unknown type", "key \"odd\"", "13", "0 to 12"});
  Builder item;
  item.Key("odd", ValueType::kArray, Array(static_cast<ValueType>(77), 1, "aaaaaaaa"));
  ExpectRefused(item.Text(), Code::kInvalidData, {"unknown item type", "key \"odd\"", "77"});
  Builder boolean;
  boolean.Key("flag", ValueType::kBool, "\x02");
  ExpectRefused(boolean.Text(), Code::kInvalidData, {"not a bool", "key \"flag\"", "byte 2"});
  Builder booleans;
  booleans.Key("flags", ValueType::kArray, Array(ValueType::kBool, 2, "\x01\x07"));
  ExpectRefused(booleans.Text(), Code::kInvalidData, {"not a bool", "key \"flags\", item 1", "byte 7"});
  Builder empty;
  empty.Key("", ValueType::kU32, "abcd");
  ExpectRefused(empty.Text(), Code::kInvalidData, {"key has a bad length", "metadata key 1 of 1"});
  Builder unnamed;
  unnamed.Tensor("", {8}, 0, 0).Data(32);
  ExpectRefused(unnamed.Text(), Code::kInvalidData, {"name has a bad length", "tensor 1 of 1"});
}

TEST(Parse, RefusesAbsurdCounts) {
  for (const int64_t extra : {int64_t{1} << 20, int64_t{1} << 40, INT64_MAX - 100, int64_t{-1000}}) {
    Builder tensors = Good();
    tensors.extra_tensors = extra;
    ExpectRefused(tensors.Text(), Code::kInvalidData, {"tensor count", "larger than the file can hold"});
    Builder keys = Good();
    keys.extra_keys = extra;
    ExpectRefused(keys.Text(), Code::kInvalidData, {"metadata count", "larger than the file can hold"});
  }
  for (const uint64_t count : {uint64_t{5}, uint64_t{1} << 40, uint64_t{1} << 61, UINT64_MAX}) {
    for (const ValueType type : {ValueType::kU8, ValueType::kF64, ValueType::kString}) {
      Builder array;
      array.Key("list", ValueType::kArray, Array(type, count, "aaaa"));
      ExpectRefused(array.Text(), Code::kInvalidData, {"ends too early", "key \"list\"", std::to_string(count)});
    }
  }
}

TEST(Parse, RefusesMemoryOutOfProportion) {
  Builder b;
  constexpr uint64_t kCount = 100000;
  b.Key("empty", ValueType::kArray, Array(ValueType::kString, kCount, std::string(8 * kCount, '\0')));
  ExpectRefused(b.Text(), Code::kOutOfRange, {"out of proportion", "key \"empty\"", "100000 strings"});
}

TEST(Parse, LongNamesAreCutInErrors) {
  Builder b;
  const std::string name(5000, 'n');
  b.Tensor(name, {0}, 0, 0).Data(32);
  const auto shard = ParseText(b.Text());
  ASSERT_FALSE(shard);
  EXPECT_LT(shard.error().Message().size(), 400u);
  EXPECT_NE(shard.error().where.find("5000 bytes"), std::string::npos);
}

TEST(Metadata, NamesTheKeyAndBothTypes) {
  const auto shard = ParseText(Good().Text());
  ASSERT_TRUE(shard);
  const Metadata& m = shard->metadata;
  const auto expect = [](const auto& result, Code code, const std::vector<std::string>& parts) {
    ASSERT_FALSE(result);
    EXPECT_EQ(Name(result.error().code), Name(code));
    for (const std::string& part : parts) {
      EXPECT_NE(result.error().Message().find(part), std::string::npos)
          << result.error().Message() << " lacks " << part;
    }
  };
  expect(m.Get<uint64_t>("gone"), Code::kNotFound, {"missing", "\"gone\"", "an integer"});
  expect(m.Get<uint64_t>("text"), Code::kInvalidData,
         {"wrong type", "\"text\"", "found string", "expected an integer"});
  expect(m.Get<std::string>("u8"), Code::kInvalidData, {"\"u8\"", "found u8", "expected a string"});
  expect(m.Get<bool>("u8"), Code::kInvalidData, {"found u8", "expected a bool"});
  expect(m.Get<uint64_t>("yes"), Code::kInvalidData, {"found bool"});
  expect(m.Get<double>("yes"), Code::kInvalidData, {"found bool", "a number"});
  expect(m.Get<uint64_t>("f32"), Code::kInvalidData, {"found f32", "an integer"});
  expect(m.Get<uint64_t>("i8"), Code::kInvalidData, {"out of range", "i8 -3"});
  expect(m.Get<int64_t>("u64"), Code::kInvalidData, {"out of range", "18446744073709551615"});
  expect(m.Get<uint64_t>("words"), Code::kInvalidData, {"array[string]"});
  expect(m.Get<std::vector<uint64_t>>("u8"), Code::kInvalidData, {"found u8", "an array"});
  expect(m.Get<std::vector<uint64_t>>("ints"), Code::kInvalidData, {"array[i32] with item 0 = -1"});
  expect(m.Get<std::vector<uint64_t>>("words"), Code::kInvalidData, {"array[string]", "an array of integers"});
  expect(m.Get<std::vector<int64_t>>("bools"), Code::kInvalidData, {"array[bool]"});
  expect(m.Strings("ints"), Code::kInvalidData, {"array[i32]", "an array of strings"});
  expect(m.Strings("gone"), Code::kNotFound, {"\"gone\""});
  expect(m.GetOr<uint64_t>("text", 5), Code::kInvalidData, {"\"text\""});
  EXPECT_EQ(m.GetOr<uint64_t>("gone", 5).value(), 5u);
  EXPECT_EQ(m.Get<double>("i32").value(), -70000.0);
  EXPECT_EQ(m.Get<std::vector<double>>("ints").value()[1], 7.0);
}

TEST(Metadata, PerLayerTakesScalarOrArray) {
  const auto shard = ParseText(Good().Text());
  ASSERT_TRUE(shard);
  const Metadata& m = shard->metadata;
  EXPECT_EQ(m.GetPerLayer<uint64_t>("u8", 3).value(), (std::vector<uint64_t>{200, 200, 200}));
  EXPECT_EQ(m.GetPerLayer<uint64_t>("u32s", 2).value(), (std::vector<uint64_t>{8, 7}));
  EXPECT_EQ(m.GetPerLayer<bool>("bools", 3).value(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(m.GetPerLayer<bool>("yes", 2).value(), (std::vector<bool>{true, true}));
  EXPECT_EQ(m.GetPerLayer<uint64_t>("gone", 2, 9).value(), (std::vector<uint64_t>{9, 9}));
  EXPECT_EQ(m.GetPerLayer<uint64_t>("gone", 2).error().code, Code::kNotFound);
  const auto shorter = m.GetPerLayer<uint64_t>("u32s", 3);
  ASSERT_FALSE(shorter);
  EXPECT_NE(shorter.error().Message().find("found 2 items, expected 3"), std::string::npos);
  EXPECT_FALSE(m.GetPerLayer<uint64_t>("words", 3));
  EXPECT_FALSE(m.GetPerLayer<uint64_t>("text", 3));
  EXPECT_FALSE(m.GetPerLayer<bool>("ints", 2));
}

TEST(Checked, NothingWraps) {
  EXPECT_EQ(CheckedAdd(UINT64_MAX, 1), std::nullopt);
  EXPECT_EQ(CheckedAdd(UINT64_MAX - 1, 1), UINT64_MAX);
  EXPECT_EQ(CheckedMul(1ull << 32, 1ull << 32), std::nullopt);
  EXPECT_EQ(CheckedMul(1ull << 32, (1ull << 32) - 1), 0xffffffff00000000u);
  EXPECT_EQ(CheckedRoundUp(33, 32), 64u);
  EXPECT_EQ(CheckedRoundUp(64, 32), 64u);
  EXPECT_EQ(CheckedRoundUp(UINT64_MAX, 32), std::nullopt);
}

TEST(Parse, AVocabularyOf260000TakesFarUnder100Ms) {
  std::string tokens, merges;
  constexpr uint64_t kCount = 260000;
  for (uint64_t i = 0; i < kCount; ++i) {
    tokens += Str("tok" + std::to_string(i));
    merges += Str("tok" + std::to_string(i) + " and" + std::to_string(i * 3));
  }
  Builder b;
  b.Key("tokens", ValueType::kArray, Array(ValueType::kString, kCount, tokens));
  b.Key("merges", ValueType::kArray, Array(ValueType::kString, kCount, merges));
  const std::string text = b.Text();
  double best_ms = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = ridge::test::ThreadCpuSeconds();
    const auto shard = ParseText(text);
    best_ms = std::min(best_ms, 1e3 * (ridge::test::ThreadCpuSeconds() - start));
    ASSERT_TRUE(shard) << shard.error().Message();
    ASSERT_EQ(shard->metadata.Strings("merges").value()->size(), kCount);
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr double kLimitMs = 5000;
#else
  constexpr double kLimitMs = 100;
#endif
  EXPECT_LT(best_ms, kLimitMs);
  RecordProperty("best_us", static_cast<int>(best_ms * 1000));
}

}  // namespace
}  // namespace ridge::gguf
