#include "base/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace ridge {
namespace {

namespace fs = std::filesystem;

class ReadFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ridge-read-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string folder_;
};

TEST_F(ReadFileTest, AFileWithinTheLimit) {
  const std::string path = folder_ + "/x";
  std::ofstream(path) << "hello";
  EXPECT_EQ(ReadFile(path, {.most_bytes = 5}).value(), "hello");
  EXPECT_EQ(ReadFile(path, {.most_bytes = 4}).error().code, Code::kOutOfRange);
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_EQ(ReadFile(path, {.most_bytes = 0}).value(), "");
  EXPECT_EQ(ReadFile(folder_ + "/none", {}).error().code, Code::kNotFound);
  EXPECT_FALSE(ReadFile("/proc/self/status", {}).value().empty());  // says that it holds 0 bytes
}

TEST_F(ReadFileTest, TheFirstLineEndsWithItsLastWord) {
  const std::string path = folder_ + "/x";
  std::ofstream(path) << "NVIDIA Orin " << '\0' << "\r\nsecond";
  EXPECT_EQ(FirstLine(path), "NVIDIA Orin");
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_EQ(FirstLine(path), "");
  EXPECT_EQ(FirstLine(folder_ + "/none"), "");
  EXPECT_EQ(FirstLine(folder_), "");
}

TEST_F(ReadFileTest, WhatIsNoFileIsRefusedAndNotWaitedFor) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(pipe, {}).error().found, "a pipe");
  EXPECT_EQ(ReadFile(folder_, {.pipes = true}).error().found, "a directory");
  EXPECT_EQ(ReadFile("/dev/zero", {}).error().found, "a device");
  EXPECT_EQ(ReadFile("/dev/zero", {.most_bytes = 1 << 20, .pipes = true}).error().code, Code::kOutOfRange);
  EXPECT_EQ(ReadFile("/dev/null", {.pipes = true}).value(), "");
  std::thread writer([&] { std::ofstream(pipe) << std::string(200000, 'x'); });
  EXPECT_EQ(ReadFile(pipe, {.pipes = true}).value().size(), 200000u);
  writer.join();
}

TEST_F(ReadFileTest, OnlyWhatBeginsSoIsReplaced) {
  const std::string path = folder_ + "/out";
  EXPECT_TRUE(CheckReplaces(path, "plot", {"<svg"}));
  std::ofstream(path).flush();
  EXPECT_TRUE(CheckReplaces(path, "plot", {"<svg"}));
  std::ofstream(path) << "<svg xmlns";
  EXPECT_TRUE(CheckReplaces(path, "plot", {"<svg"}));
  EXPECT_TRUE(CheckReplaces("/dev/null", "plot", {"<svg"}));
  std::ofstream(path) << "my text";
  EXPECT_EQ(CheckReplaces(path, "plot", {"<svg"}).error().code, Code::kAlreadyExists);
}

}  // namespace
}  // namespace ridge
