#include "backend/cpu/panel_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

namespace ridge::cpu {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBytes = (9 << 20) + 4096 + 192;  // three chunks, the last one short

class PanelCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ridge-panels-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    pool_ = std::move(*ThreadPool::Create(2));
    for (size_t i = 0; i < kBytes; i++) panels_.push_back(static_cast<std::byte>(i * 131 + i / 977));
    WriteModel('a');
  }
  void TearDown() override {
    model_ = {};
    fs::remove_all(root_);
  }

  std::string model_path() const { return root_ + "/model.gguf"; }
  std::string dir() const { return root_ + "/cache"; }

  // In place: the inode stays. Its time is another one each time, which that of two writes within one tick of the kernel's clock need not be.
  void WriteModel(char last) {
    std::string text(300'000, 'x');
    text[154'300] = last;  // between the sampled blocks: the name of the cache file stays
    std::ofstream(model_path(), std::ios::binary) << text;
    fs::last_write_time(model_path(), started_ + std::chrono::seconds(++writes_));
  }

  PanelCache Open(const std::string& table = "w Q4_K") {
    auto file = MappedFile::Open(model_path());
    EXPECT_TRUE(file.has_value());
    model_ = std::move(*file);
    auto cache = PanelCache::Open(dir(), {{model_path(), model_.bytes(), model_.identity()}}, table, kBytes);
    EXPECT_TRUE(cache.has_value()) << cache.error().Message();
    cache->settle_ns = -1'000'000'000'000;
    return std::move(*cache);
  }
  std::string Write() {
    PanelCache cache = Open();
    const Status wrote = cache.Write(*pool_, panels_);
    EXPECT_TRUE(wrote.has_value()) << wrote.error().Message();
    return cache.path();
  }
  // nullopt: the right bytes were read; else why not.
  std::optional<Error> Read(const std::string& table = "w Q4_K") {
    PanelCache cache = Open(table);
    auto read = cache.Read(*pool_);
    if (!read) return read.error();
    EXPECT_GE(read->size_bytes(), kBytes);
    EXPECT_EQ(std::memcmp(read->data(), panels_.data(), kBytes), 0);
    return std::nullopt;
  }
  void Poke(const std::string& path, int64_t at, char add) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(at);
    const char old = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(old + add));
  }
  size_t FilesInCache() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir()), fs::directory_iterator()));
  }

  std::string root_;
  const fs::file_time_type started_ = fs::file_time_type::clock::now() - std::chrono::hours(1);
  int writes_ = 0;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<std::byte> panels_;
  MappedFile model_;
};

TEST_F(PanelCacheTest, WhatIsWrittenIsReadBack) {
  ASSERT_TRUE(Read().has_value());
  EXPECT_EQ(Read()->code, Code::kNotFound);
  Write();
  EXPECT_EQ(FilesInCache(), 1u);
  EXPECT_FALSE(Read().has_value());
  EXPECT_FALSE(Read().has_value());
}

TEST_F(PanelCacheTest, TheFingerprintIsTheSameEachTime) {
  EXPECT_EQ(LayoutFingerprint(), LayoutFingerprint());
  EXPECT_NE(LayoutFingerprint(), 0u);
}

// Every byte of the header counts, and each chunk of the panels.
TEST_F(PanelCacheTest, DamageAnywhereIsRefused) {
  const std::string path = Write();
  const int64_t size = static_cast<int64_t>(fs::file_size(path)), header = size - static_cast<int64_t>(kBytes);
  std::vector<int64_t> places = {header, header + 1, size - 1, size - 200, header + (4 << 20), size / 2};
  for (int64_t at = 0; at < 8 + 8 * (7 + 6 + 3) + 6 + 8; at++) places.push_back(at);
  for (const int64_t at : places) {
    Poke(path, at, 1);
    const auto refused = Read();
    ASSERT_TRUE(refused.has_value()) << "byte " << at;
    EXPECT_EQ(refused->code, Code::kInvalidData) << "byte " << at;
    Poke(path, at, -1);
  }
  EXPECT_FALSE(Read().has_value());
}

TEST_F(PanelCacheTest, TruncatedOrLongerIsRefused) {
  const std::string path = Write();
  const uint64_t size = fs::file_size(path);
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{7}, uint64_t{63}, uint64_t{200}, uint64_t{2} << 20, size - 1, size + 1}) {
    fs::resize_file(path, length);
    const auto refused = Read();
    ASSERT_TRUE(refused.has_value()) << length;
    EXPECT_EQ(refused->code, Code::kInvalidData) << length;
    Write();
  }
  EXPECT_FALSE(Read().has_value());
}

TEST_F(PanelCacheTest, AChangedModelOfTheSameSizeIsRefused) {
  const std::string path = Write();
  WriteModel('b');
  const auto refused = Read();
  ASSERT_TRUE(refused.has_value());
  EXPECT_NE(refused->what.find("changed"), std::string::npos) << refused->what;
  EXPECT_EQ(Write(), path);  // the same name: the change lies between the samples
  EXPECT_FALSE(Read().has_value());
}

// The bytes decide where the times differ, and the cache learns the new times.
TEST_F(PanelCacheTest, ACopyOfTheSameBytesIsTaken) {
  const std::string path = Write();
  const auto record = [&] {
    std::ifstream file(path, std::ios::binary);
    std::string front(120, '\0');
    file.read(front.data(), 120);
    return front;
  };
  const std::string before = record();
  fs::copy_file(model_path(), root_ + "/other");
  fs::rename(root_ + "/other", model_path());
  EXPECT_FALSE(Read().has_value());
  EXPECT_NE(record(), before);
  EXPECT_FALSE(Read().has_value());
  WriteModel('b');
  EXPECT_TRUE(Read().has_value());
}

TEST_F(PanelCacheTest, OtherWeightsAreRefused) {
  Write();
  const auto refused = Read("w Q5_K");
  ASSERT_TRUE(refused.has_value());
  EXPECT_NE(refused->what.find("other weights"), std::string::npos) << refused->what;
  EXPECT_TRUE(Read("w Q4_K and more").has_value());
}

// File systems keep times in steps: a file that changed just now could change again without a trace.
TEST_F(PanelCacheTest, AModelThatJustChangedIsNotKept) {
  PanelCache cache = Open();
  cache.settle_ns = 2'000'000'000'000;
  const Status wrote = cache.Write(*pool_, panels_);
  ASSERT_FALSE(wrote.has_value());
  EXPECT_EQ(wrote.error().code, Code::kUnavailable);
  EXPECT_EQ(FilesInCache(), 0u);
}

TEST_F(PanelCacheTest, AModelThatChangesWhileItIsLoadedIsNotKept) {
  PanelCache cache = Open();
  WriteModel('b');
  EXPECT_FALSE(cache.Write(*pool_, panels_).has_value());
  EXPECT_EQ(FilesInCache(), 0u);
}

TEST_F(PanelCacheTest, NoRoomLeavesNothing) {
  PanelCache cache = Open();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 5 << 20;
  setrlimit(RLIMIT_FSIZE, &small);
  const Status wrote = cache.Write(*pool_, panels_);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(wrote.has_value());
  EXPECT_EQ(wrote.error().code, Code::kResourceExhausted);
  EXPECT_EQ(FilesInCache(), 0u);
}

TEST_F(PanelCacheTest, AFolderThatIsAFileIsAnError) {
  const auto cache = PanelCache::Open(model_path(), {}, "", kBytes);
  ASSERT_FALSE(cache.has_value());
  EXPECT_NE(cache.error().where.find("--panel-cache"), std::string::npos);
}

}  // namespace
}  // namespace ridge::cpu
