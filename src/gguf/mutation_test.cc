// Damaged files: whatever a file's bytes are, Parse ends soon with a result or an error, and takes no memory out of
// proportion.
//
// RIDGE_MUTATIONS sets how many random mutations are tried (default 3000; the acceptance run takes 20000 under ASan and
// UBSan), RIDGE_MUTATION_SEED another series.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <random>

#include "base/test_cpu_time.h"
#include "gguf/parse.h"
#include "gguf/test_files.h"

namespace {

// The largest single allocation of this thread since it was last set to 0.
thread_local size_t largest_bytes = 0;

void* Allocate(size_t size, size_t alignment) {
  largest_bytes = std::max(largest_bytes, size);
  size = std::max<size_t>(size, 1);
  void* memory = alignment > alignof(std::max_align_t)
                     ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
                     : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size, 0); }
void* operator new[](size_t size) { return Allocate(size, 0); }
void* operator new(size_t size, std::align_val_t alignment) { return Allocate(size, static_cast<size_t>(alignment)); }
void* operator new[](size_t size, std::align_val_t alignment) { return Allocate(size, static_cast<size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace ridge::gguf {
namespace {

using test::Array;
using test::Builder;
using test::Raw;
using test::Str;
using Random = std::mt19937_64;

constexpr double kMostSeconds = 5;

// One of each kind of value, tensors of several block sizes, one of unknown type.
Builder Small() {
  Builder b;
  b.Key("general.architecture", ValueType::kString, Str("llama"))
      .Key("general.alignment", ValueType::kU32, Raw<uint32_t>(32));
  b.Key("u8", ValueType::kU8, Raw<uint8_t>(1)).Key("i16", ValueType::kI16, Raw<int16_t>(-1));
  b.Key("f32", ValueType::kF32, Raw<float>(1)).Key("f64", ValueType::kF64, Raw<double>(1));
  b.Key("u64", ValueType::kU64, Raw<uint64_t>(1)).Key("yes", ValueType::kBool, Raw<uint8_t>(1));
  b.Key("words", ValueType::kArray,
        Array(ValueType::kString, 3, Str("x") + Str("") + Str("longer than a small string")));
  b.Key("ints", ValueType::kArray, Array(ValueType::kI32, 4, Raw<uint64_t>(7) + Raw<uint64_t>(8)));
  b.Key("bytes", ValueType::kArray, Array(ValueType::kU8, 5, "abcde"));
  b.Key("bools", ValueType::kArray, Array(ValueType::kBool, 2, "\x01\x01"));
  b.Tensor("norm", {8}, 0, 0)
      .Tensor("odd", {5, 3}, 99, 32)
      .Tensor("q8", {32, 2, 2}, 8, 96)
      .Tensor("q4k", {256}, 12, 256)
      .Data(400);
  return b;
}

Builder Vocabulary() {
  std::string tokens, types;
  constexpr uint64_t kCount = 3000;
  for (uint64_t i = 0; i < kCount; ++i) {
    tokens += Str("token " + std::to_string(i * i));
    types += Raw<int32_t>(1);
  }
  Builder b;
  b.Key("tokens", ValueType::kArray, Array(ValueType::kString, kCount, tokens));
  b.Key("types", ValueType::kArray, Array(ValueType::kI32, kCount, types));
  b.Tensor("w", {64, 2}, 0, 0).Data(512);
  return b;
}

std::vector<std::string> Seeds() {
  Builder two = Small();
  two.version = 2;
  Builder split = Small();
  split.Key("split.no", ValueType::kU16, Raw<uint16_t>(1)).Key("split.count", ValueType::kU16, Raw<uint16_t>(2));
  split.Key("split.tensors.count", ValueType::kI32, Raw<int32_t>(8));
  Builder zeros;  // a long run of zeros is a valid array of empty strings wherever a count is damaged
  zeros.Key("list", ValueType::kArray, Array(ValueType::kString, 1, Str("")))
      .Key("u8s", ValueType::kArray, Array(ValueType::kU8, 4000, std::string(4000, '\0')));
  zeros.Key("more", ValueType::kString, Str(std::string(60000, '\0')));
  return {Small().Text(), two.Text(), split.Text(), zeros.Text(), Vocabulary().Text()};
}

struct Tally {
  size_t accepted = 0, refused = 0;
};

// Parses `text` from a buffer of exactly its size, so that a read beyond the end is seen by ASan.
void Try(const std::string& text, Tally& tally) {
  const auto buffer = std::make_unique<std::byte[]>(text.size());
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), buffer.get());
  const std::span<const std::byte> bytes(buffer.get(), text.size());
  const double start = ridge::test::ThreadCpuSeconds();
  largest_bytes = 0;
  const auto shard = Parse(bytes, "mutated.gguf");
  ASSERT_LE(largest_bytes, 2 * text.size() + (64 << 10)) << "one allocation for a file of " << text.size() << " bytes";
  if (shard) {
    ++tally.accepted;
    ASSERT_TRUE(test::WalkShard(*shard, bytes));
  } else {
    ++tally.refused;
    ASSERT_FALSE(shard.error().what.empty());
    ASSERT_NE(shard.error().where.find("mutated.gguf"), std::string::npos) << shard.error().Message();
    ASSERT_LT(shard.error().Message().size(), 1000u);
  }
  ASSERT_LT(ridge::test::ThreadCpuSeconds() - start, kMostSeconds);
}

uint64_t Interesting(Random& random) {
  static const uint64_t kValues[] = {0,          1,          2,          3,         4,          7,
                                     8,          9,          31,         32,        33,         255,
                                     256,        65535,      65536,      1u << 31,  UINT32_MAX, 1ull << 32,
                                     1ull << 40, 1ull << 61, 1ull << 62, INT64_MAX, 1ull << 63, UINT64_MAX - 31,
                                     UINT64_MAX};
  return kValues[random() % std::size(kValues)] + random() % 3 - 1;
}

void Mutate(std::string& text, const std::string& other, Random& random) {
  if (text.empty()) return;
  // most of a file's structure is near its start
  const size_t reach = random() % 4 == 0 ? text.size() : std::min<size_t>(text.size(), 1200);
  const size_t at = random() % reach;
  switch (random() % 9) {
    case 0: text[at] = static_cast<char>(text[at] ^ (1 << random() % 8)); break;
    case 1: text[at] = static_cast<char>(random()); break;
    case 2: text.replace(at, 4, Raw(static_cast<uint32_t>(Interesting(random))).substr(0, text.size() - at)); break;
    case 3: text.replace(at, 8, Raw(Interesting(random)).substr(0, text.size() - at)); break;
    case 4: text.resize(at); break;
    case 5: text.erase(at, random() % 64); break;
    case 6: text.insert(at, text.substr(random() % text.size(), random() % 64)); break;
    case 7: text.replace(at, random() % 64, other.substr(random() % other.size(), random() % 256)); break;
    case 8: text.insert(at, random() % 300, static_cast<char>(random() % 2 ? 0 : 0xff)); break;
  }
}

uint64_t FromEnvironment(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

TEST(Mutation, SeedsAreValid) {
  for (const std::string& seed : Seeds()) {
    const auto shard = Parse(test::AsBytes(seed), "seed");
    EXPECT_TRUE(shard) << shard.error().Message();
  }
}

TEST(Mutation, EveryByteOfASmallFile) {
  const std::string seed = Small().Text();
  const size_t header_bytes = seed.size() - 400;
  Tally tally;
  for (size_t at = 0; at < header_bytes; ++at) {
    std::string text = seed;
    const auto set = [&](unsigned char byte) {
      text[at] = static_cast<char>(byte);
      Try(text, tally);
    };
    for (int bit = 0; bit < 8; ++bit) set(static_cast<unsigned char>(seed[at] ^ (1 << bit)));
    for (const unsigned char byte : {0x00, 0x7f, 0x80, 0xff}) set(byte);
    if (HasFatalFailure()) FAIL() << "at byte " << at;
  }
  EXPECT_GT(tally.refused, header_bytes);   // every number of the header matters
  EXPECT_GT(tally.accepted, header_bytes);  // names and values may be anything
}

TEST(Mutation, RandomDamage) {
  const std::vector<std::string> seeds = Seeds();
  Random random(FromEnvironment("RIDGE_MUTATION_SEED", 1));
  const uint64_t count = FromEnvironment("RIDGE_MUTATIONS", 3000);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("ridge_mutation_" + std::to_string(::getpid()) + ".gguf")).string();
  Tally tally;
  for (uint64_t i = 0; i < count; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (uint64_t n = 1 + random() % 4; n > 0; --n) Mutate(text, seeds[random() % seeds.size()], random);
    Try(text, tally);
    if (HasFatalFailure()) FAIL() << "mutation " << i;
    if (i % 20 != 0) continue;
    test::WriteText(path, text);  // the same through the file system, with the rules for split files
    const auto file = File::Open(path);
    if (!file) continue;
    for (const TensorInfo& tensor : file->tensors()) ASSERT_EQ(file->Data(tensor).size(), tensor.size_bytes);
  }
  std::filesystem::remove(path);
  RecordProperty("accepted", static_cast<int>(tally.accepted));
  EXPECT_EQ(tally.accepted + tally.refused, count);
  if (count >= 1000) {
    EXPECT_GT(tally.accepted, count / 50);
    EXPECT_GT(tally.refused, count / 4);
  }
}

// The bound on memory is met by files made to break it.
TEST(Mutation, CountsDoNotBuyMemory) {
  Tally tally;
  for (const uint64_t n : {uint64_t{2000}, uint64_t{100000}}) {
    const std::string zeros(8 * n, '\0');
    for (const ValueType type :
         {ValueType::kU8, ValueType::kI16, ValueType::kF32, ValueType::kU64, ValueType::kString, ValueType::kBool}) {
      Builder b;
      const uint64_t item = type == ValueType::kU8 || type == ValueType::kBool ? 1
                            : type == ValueType::kI16                          ? 2
                            : type == ValueType::kF32                          ? 4
                                                                               : 8;
      b.Key("list", ValueType::kArray, Array(type, 8 * n / item, zeros));
      Try(b.Text(), tally);
      ASSERT_FALSE(HasFatalFailure()) << Name(type);
    }
    Builder keys, tensors;
    for (uint64_t i = 0; i < n; ++i) {
      keys.Key(std::to_string(i), ValueType::kU8, "a");
      tensors.Tensor(std::to_string(i), {1}, 99, 32 * i);
    }
    Try(keys.Text(), tally);
    Try(tensors.Data(32 * n).Text(), tally);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GE(tally.accepted, 10u);
}

}  // namespace
}  // namespace ridge::gguf
