#include "lab/evidence/files.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ridge-evidence-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
    fs::create_directories(path_ + "/in/runs");
    std::ofstream(path_ + "/secret") << "outside";
    std::ofstream(path_ + "/in/runs/0000.json") << "[]";
  }
  void TearDown() override { fs::remove_all(path_); }
  std::string path_;
};

TEST_F(Folder, NothingOutsideIsRead) {
  const std::string in = path_ + "/in";
  EXPECT_EQ(ReadBeneath(in, "runs/0000.json").value(), "[]");
  fs::create_symlink("../secret", in + "/link");
  fs::create_directory_symlink("..", in + "/out");
  fs::create_directories(in + "/more/hollow");
  ASSERT_EQ(mkfifo((in + "/pipe").c_str(), 0600), 0);
  for (const char* name :
       {"link", "out/secret", "../secret", "runs/../../secret", "/etc/passwd", "", ".", "runs/", "pipe", "runs"})
    EXPECT_EQ(ReadBeneath(in, name).error().code, Code::kInvalidData) << name;
  EXPECT_EQ(ReadBeneath(in, "runs/none").error().code, Code::kNotFound);
  EXPECT_EQ(ReadBeneath(in, "runs/0000.json", 1).error().code, Code::kOutOfRange);
  EXPECT_TRUE(ExistsBeneath(in, "runs/0000.json"));
  EXPECT_FALSE(ExistsBeneath(in, "link"));
  EXPECT_FALSE(ExistsBeneath(in, "pipe"));
  const Listing all = ListBeneath(in).value();
  EXPECT_EQ(all.files, (std::vector<std::string>{"runs/0000.json"}));
  EXPECT_EQ(all.empty, (std::vector<std::string>{"more/hollow"}));
  EXPECT_EQ(all.others, (std::vector<std::string>{"link", "out", "pipe"}));
}

TEST_F(Folder, FoldersTooDeepAreRefused) {
  std::string deep = path_ + "/in";
  for (int i = 0; i < 20; i++) deep += "/d";
  fs::create_directories(deep);
  EXPECT_EQ(ListBeneath(path_ + "/in").error().code, Code::kOutOfRange);
}

TEST(QuoteName, IsOneWordAndComesBack) {
  EXPECT_EQ(QuoteName("a b\n%模型\xff.json"), "a%20b%0A%25模型%FF.json");
  RC_ASSERT(rc::check([](const std::string& name) {
    const std::string quoted = QuoteName(name);
    RC_ASSERT(quoted.find_first_of(" \n\r\t\x7f") == std::string::npos);
    RC_ASSERT(UnquoteName(quoted) == name);
  }));
}

}  // namespace
}  // namespace ridge::lab
