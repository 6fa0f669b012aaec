#include "gguf/writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

namespace ridge::gguf {
namespace {

namespace fs = std::filesystem;
using quant::TypeId;
using Random = std::mt19937_64;

class WriterTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ridge_writer_test_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name = "x.gguf") const { return (folder_ / name).string(); }
  size_t Entries() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  fs::path folder_;
};

uint64_t Below(Random& random, uint64_t n) { return random() % n; }

std::string RandomText(Random& random, uint64_t most) {
  std::string text(Below(random, most + 1), '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

template <class Stored, class Narrow>
std::vector<Stored> RandomItems(Random& random) {
  std::vector<Stored> items(Below(random, 20));
  for (Stored& item : items) item = static_cast<Stored>(static_cast<Narrow>(random()));
  return items;
}

std::vector<double> RandomFloats(Random& random, bool narrow) {
  std::vector<double> items(Below(random, 20));
  for (double& item : items) {
    item = std::ldexp(static_cast<double>(static_cast<int64_t>(random())), static_cast<int>(Below(random, 60)) - 90);
    if (narrow) item = static_cast<float>(item);
  }
  return items;
}

template <class T>
T OrZero(const std::vector<T>& items) {
  return items.empty() ? T{} : items[0];
}

Value RandomArray(Random& random) {
  Value value;
  value.type = ValueType::kArray;
  do {
    value.item_type = static_cast<ValueType>(Below(random, 13));
  } while (value.item_type == ValueType::kArray);
  switch (value.item_type) {
    case ValueType::kU8: value.data = RandomItems<uint8_t, uint8_t>(random); break;
    case ValueType::kI8: value.data = RandomItems<int8_t, int8_t>(random); break;
    case ValueType::kU16: value.data = RandomItems<uint16_t, uint16_t>(random); break;
    case ValueType::kI16: value.data = RandomItems<int16_t, int16_t>(random); break;
    case ValueType::kU32: value.data = RandomItems<uint64_t, uint32_t>(random); break;
    case ValueType::kI32: value.data = RandomItems<int64_t, int32_t>(random); break;
    case ValueType::kU64: value.data = RandomItems<uint64_t, uint64_t>(random); break;
    case ValueType::kI64: value.data = RandomItems<int64_t, int64_t>(random); break;
    case ValueType::kF32: value.data = RandomFloats(random, true); break;
    case ValueType::kF64: value.data = RandomFloats(random, false); break;
    case ValueType::kBool: value.data = RandomItems<uint8_t, bool>(random); break;
    case ValueType::kString: {
      std::vector<std::string> items(Below(random, 20));
      for (std::string& item : items) item = RandomText(random, 40);
      value.data = std::move(items);
      break;
    }
    case ValueType::kArray: break;
  }
  return value;
}

Value RandomValue(Random& random) {
  const auto type = static_cast<ValueType>(Below(random, 13));
  const auto scalar = [&](auto data) { return Value{type, {}, data}; };
  switch (type) {
    case ValueType::kU8: return scalar(uint64_t{static_cast<uint8_t>(random())});
    case ValueType::kI8: return scalar(int64_t{static_cast<int8_t>(random())});
    case ValueType::kU16: return scalar(uint64_t{static_cast<uint16_t>(random())});
    case ValueType::kI16: return scalar(int64_t{static_cast<int16_t>(random())});
    case ValueType::kU32: return scalar(uint64_t{static_cast<uint32_t>(random())});
    case ValueType::kI32: return scalar(int64_t{static_cast<int32_t>(random())});
    case ValueType::kU64: return scalar(uint64_t{random()});
    case ValueType::kI64: return scalar(static_cast<int64_t>(random()));
    case ValueType::kF32: return scalar(OrZero(RandomFloats(random, true)));
    case ValueType::kF64: return scalar(OrZero(RandomFloats(random, false)));
    case ValueType::kBool: return scalar(Below(random, 2) == 1);
    case ValueType::kString: return scalar(RandomText(random, 60));
    case ValueType::kArray: return RandomArray(random);
  }
  return {};
}

struct Sample {
  Metadata metadata;
  std::vector<TensorSpec> tensors;
  std::vector<std::vector<std::byte>> data;
};

Sample RandomSample(Random& random) {
  Sample sample;
  if (Below(random, 3) == 0) {
    EXPECT_TRUE(sample.metadata.Add("general.alignment", Value::U32(1u << Below(random, 13))));
  }
  for (uint64_t i = Below(random, 12); i > 0; --i) {
    (void)sample.metadata.Add("key." + RandomText(random, 12), RandomValue(random));  // an equal key is left out
  }
  for (uint64_t i = Below(random, 6); i > 0; --i) {
    const auto types = quant::Types();
    const quant::Type& type = types[Below(random, types.size())];
    std::vector<uint64_t> shape = {type.block_elements * (1 + Below(random, 3))};
    while (shape.size() < 4 && Below(random, 2) == 1) shape.push_back(1 + Below(random, 5));
    uint64_t size = type.block_bytes;
    for (const uint64_t length : shape) size *= length;
    std::vector<std::byte> bytes(size / type.block_elements);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    sample.tensors.push_back({"tensor " + std::to_string(i) + RandomText(random, 8), shape, &type});
    sample.data.push_back(std::move(bytes));
  }
  return sample;
}

TEST_F(WriterTest, WhatIsWrittenIsReadBack) {
  Random random(20261129);
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(round);
    const Sample sample = RandomSample(random);
    auto writer = Writer::Create(Path(), sample.metadata, sample.tensors);
    ASSERT_TRUE(writer) << writer.error().Message();
    for (size_t i = 0; i < sample.data.size(); ++i) {
      ASSERT_NE(writer->current(), nullptr);
      EXPECT_EQ(writer->current()->name, sample.tensors[i].name);
      std::span<const std::byte> rest = sample.data[i];
      while (!rest.empty()) {
        const size_t piece = 1 + Below(random, rest.size());
        ASSERT_TRUE(writer->Append(rest.first(piece)));
        rest = rest.subspan(piece);
      }
    }
    EXPECT_EQ(writer->current(), nullptr);
    const Status done = writer->Commit();
    ASSERT_TRUE(done) << done.error().Message();
    EXPECT_EQ(fs::file_size(Path()), writer->file_size_bytes());

    const auto file = File::Open(Path());
    ASSERT_TRUE(file) << file.error().Message();
    EXPECT_EQ(file->version(), 3u);
    EXPECT_EQ(file->metadata().entries(), sample.metadata.entries());
    ASSERT_EQ(file->tensors().size(), sample.tensors.size());
    for (size_t i = 0; i < sample.data.size(); ++i) {
      const TensorInfo& tensor = file->tensors()[i];
      EXPECT_EQ(tensor.name, sample.tensors[i].name);
      EXPECT_EQ(tensor.shape, sample.tensors[i].shape);
      EXPECT_EQ(tensor.type, sample.tensors[i].type);
      EXPECT_EQ(tensor.offset_bytes % file->alignment(), 0u);
      ASSERT_EQ(tensor.size_bytes, sample.data[i].size());
      EXPECT_EQ(std::memcmp(file->Data(tensor).data(), sample.data[i].data(), sample.data[i].size()), 0);
    }
  }
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(WriterTest, RefusesWhatCannotBeRead) {
  const quant::Type& f32 = quant::Get(TypeId::kF32);
  const quant::Type& q8 = quant::Get(TypeId::kQ8_0);
  const auto refused = [this](const Metadata& metadata, std::vector<TensorSpec> tensors,
                              const std::vector<std::string>& parts) {
    const auto writer = Writer::Create(Path(), metadata, std::move(tensors));
    ASSERT_FALSE(writer) << parts[0];
    for (const std::string& part : parts) {
      EXPECT_NE(writer.error().Message().find(part), std::string::npos)
          << writer.error().Message() << " lacks " << part;
    }
    EXPECT_EQ(Entries(), 0u);
  };
  refused({}, {{"w", {1}, &f32}, {"w", {1}, &f32}}, {"same name", "\"w\""});
  refused({}, {{"w", {33}, &q8}}, {"whole number of blocks", "\"w\"", "33", "32"});
  refused({}, {{"w", {}, &f32}}, {"bad shape", "\"w\""});
  refused({}, {{"w", {4, 0}, &f32}}, {"bad shape", "[4, 0]"});
  refused({}, {{"w", {1, 1, 1, 1, 1}, &f32}}, {"bad shape"});
  refused({}, {{"w", {1ull << 62, 4}, &f32}}, {"too large"});
  refused({}, {{"w", {1ull << 62}, &f32}}, {"too large"});
  refused({}, {{"v", {1ull << 61}, &f32}, {"w", {1ull << 61}, &f32}}, {"too large", "\"w\""});
  refused({}, {{"", {1}, &f32}}, {"name has a bad length"});
  refused({}, {{"w", {1}, nullptr}}, {"no type"});
  const auto value = [&](Value bad, const std::string& part) {
    Metadata metadata;
    ASSERT_TRUE(metadata.Add("odd", std::move(bad)));
    refused(metadata, {}, {"does not fit", "\"odd\"", part});
  };
  value({ValueType::kU8, {}, uint64_t{256}}, "u8");
  value({ValueType::kU32, {}, int64_t{-1}}, "u32");
  value({ValueType::kU32, {}, 1.5}, "u32");
  value({ValueType::kF32, {}, uint64_t{1}}, "f32");
  value({ValueType::kBool, {}, uint64_t{1}}, "bool");
  value({ValueType::kString, {}, uint64_t{1}}, "string");
  value({ValueType::kU32, {}, std::string("1")}, "u32");
  value({ValueType::kArray, ValueType::kI8, std::vector<int64_t>{1, 200}}, "array[i8]");
  value({ValueType::kArray, ValueType::kString, std::vector<int64_t>{1}}, "array[string]");
  value({ValueType::kArray, ValueType::kBool, std::vector<uint8_t>{1, 2}}, "array[bool]");
  value({ValueType::kArray, ValueType::kArray, std::vector<int64_t>{}}, "array[array]");
  value({ValueType::kI32, {}, std::vector<int64_t>{1}}, "i32");
  Metadata alignment;
  ASSERT_TRUE(alignment.Add("general.alignment", Value::U32(48)));
  refused(alignment, {}, {"power of two", "48"});
  Metadata unnamed;
  ASSERT_TRUE(unnamed.Add("", Value::U32(48)));
  refused(unnamed, {}, {"key has a bad length"});
}

TEST_F(WriterTest, DataMustFitTheDeclaration) {
  const std::vector<TensorSpec> tensors = {{"a", {4}, &quant::Get(TypeId::kF32)},
                                           {"b", {4}, &quant::Get(TypeId::kF32)}};
  const std::vector<std::byte> bytes(32);
  std::ofstream(Path()) << "old";
  {
    auto writer = Writer::Create(Path(), {}, tensors);
    ASSERT_TRUE(writer);
    const Status over = writer->Append(bytes);
    ASSERT_FALSE(over);
    EXPECT_NE(over.error().Message().find("\"a\""), std::string::npos);
    ASSERT_TRUE(writer->Append(std::span(bytes).first(16)));
    ASSERT_TRUE(writer->Append(std::span(bytes).first(10)));
    const Status early = writer->Commit();
    ASSERT_FALSE(early);
    EXPECT_NE(early.error().Message().find("tensor \"b\": found 10 bytes, expected 16"), std::string::npos)
        << early.error().Message();
    ASSERT_TRUE(writer->Append(std::span(bytes).first(6)));
    EXPECT_FALSE(writer->Append(std::span(bytes).first(1)));
  }
  EXPECT_EQ(Entries(), 1u);
  EXPECT_EQ(fs::file_size(Path()), 3u);  // the old file, untouched
}

// For the cross-check against other readers: tests/python/gguf_file_test.py sets the path.
TEST_F(WriterTest, WritesTheSampleForOtherReaders) {
  const char* path = std::getenv("RIDGE_GGUF_SAMPLE");
  if (path == nullptr) GTEST_SKIP() << "RIDGE_GGUF_SAMPLE names no file to write";
  Metadata metadata;
  const auto add = [&metadata](const std::string& key, Value value) {
    ASSERT_TRUE(metadata.Add(key, std::move(value)));
  };
  add("general.architecture", Value::String("llama"));
  add("general.alignment", Value::U32(64));
  add("test.u8", {ValueType::kU8, {}, uint64_t{200}});
  add("test.i16", {ValueType::kI16, {}, int64_t{-300}});
  add("test.i32", Value::I32(-70000));
  add("test.u64", {ValueType::kU64, {}, uint64_t{1} << 63});
  add("test.f32", Value::F32(1e-5f));
  add("test.f64", {ValueType::kF64, {}, 0.1});
  add("test.bool", Value::Bool(true));
  add("test.words", Value::Strings({"a", "", "日本語"}));
  add("test.ints", Value::I32s({-1, 2, 3}));
  add("test.floats", Value::F32s({0.5, -2}));
  add("test.bools", {ValueType::kArray, ValueType::kBool, std::vector<uint8_t>{1, 0}});
  const quant::Type& f32 = quant::Get(TypeId::kF32);
  const quant::Type& q8 = quant::Get(TypeId::kQ8_0);
  auto writer = Writer::Create(path, metadata, {{"norm", {3}, &f32}, {"w", {64, 2}, &q8}});
  ASSERT_TRUE(writer) << writer.error().Message();
  const float norm[] = {1, -2, 0.25f};
  ASSERT_TRUE(writer->Append(std::as_bytes(std::span(norm))));
  std::vector<std::byte> blocks(4 * 34);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i);
  ASSERT_TRUE(writer->Append(blocks));
  ASSERT_TRUE(writer->Commit());
}

}  // namespace
}  // namespace ridge::gguf
