#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace ridge {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ridge_atomic_test_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  size_t Entries() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  fs::path folder_;
};

TEST_F(AtomicFileTest, NothingShowsBeforeCommit) {
  std::ofstream(Path("x")) << "old";
  auto file = AtomicFile::Create(Path("x"));
  ASSERT_TRUE(file) << file.error().Message();
  const std::string big(1 << 20, 'b');
  ASSERT_TRUE(file->Write("new "));
  ASSERT_TRUE(file->Write(big));
  ASSERT_TRUE(file->Write(" end"));
  EXPECT_EQ(Read(Path("x")), "old");
  ASSERT_TRUE(file->Commit());
  EXPECT_EQ(Read(Path("x")), "new " + big + " end");
  EXPECT_EQ(file->size_bytes(), big.size() + 8);
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(AtomicFileTest, WithoutCommitNothingIsLeft) {
  {
    auto file = AtomicFile::Create(Path("x"));
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->Write(std::string(1 << 20, 'b')));
  }
  EXPECT_EQ(Entries(), 0u);
}

TEST_F(AtomicFileTest, ReplacesTheTargetOfALink) {
  std::ofstream(Path("real")) << "old";
  fs::create_symlink("real", Path("link"));
  auto file = AtomicFile::Create(Path("link"));
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Write("new"));
  ASSERT_TRUE(file->Commit());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Read(Path("real")), "new");
}

TEST_F(AtomicFileTest, RefusesWhatIsNoFile) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  for (const std::string& path :
       {folder_.string(), std::string("/dev/null"), Path("pipe"), Path("x/"), std::string()}) {
    const auto file = AtomicFile::Create(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().code, Code::kInvalidArgument) << path;
  }
  const auto lost = AtomicFile::Create(Path("no/such/folder"));
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, Code::kNotFound);
  EXPECT_NE(lost.error().Message().find("no/such/folder"), std::string::npos);
}

// A limit on file size stands for a full disk: the same path through the code, possible without a file system of our
// own.
TEST_F(AtomicFileTest, NoRoomIsAnErrorAndLeavesTheOldFile) {
  std::ofstream(Path("x")) << "old";
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Status reserved, written;
  {
    auto file = AtomicFile::Create(Path("x"));
    reserved = file->Reserve(uint64_t{1} << 50);
    written = file->Write(std::string(2 << 20, 'b'));
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(reserved);
  EXPECT_EQ(reserved.error().code, Code::kResourceExhausted);
  EXPECT_EQ(reserved.error().expected, "1125899906842624 bytes");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Code::kResourceExhausted);
  EXPECT_EQ(Read(Path("x")), "old");
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(AtomicFileTest, ANameIsAsLongAsTheFolderAllowsOrRefusedAtOnce) {
  const auto most = static_cast<size_t>(::pathconf(folder_.c_str(), _PC_NAME_MAX));
  for (const std::string& name : {std::string(most, 'n'), std::string(most - 4, 'n') + "\xe2\x82\xac",
                                  std::string(most - 8, 'n') + "\xe2\x82\xac", std::string(most - 16, 'n')}) {
    auto file = AtomicFile::Create(Path(name));
    ASSERT_TRUE(file) << file.error().Message();
    ASSERT_TRUE(file->Write("new"));
    const Status named = file->Commit();
    EXPECT_TRUE(named) << named.error().Message();
    EXPECT_EQ(Read(Path(name)), "new");
  }
  EXPECT_EQ(Entries(), 4u);
  const auto refused = AtomicFile::Create(Path(std::string(most + 1, 'n')));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_FALSE(refused.error().remedy.empty());
  // A path that opens, but leaves no room for the name it has on the way.
  std::string deep = folder_.string();
  while (deep.size() + 2 < PATH_MAX - 10) deep += "/.";
  EXPECT_EQ(AtomicFile::Create(deep + "/x").error().code, Code::kInvalidArgument);
  std::ofstream(Path("file")) << "a";
  EXPECT_EQ(AtomicFile::Create(Path("file") + "/x").error().code, Code::kNotFound);
}

TEST_F(AtomicFileTest, SameFileSeesThroughLinks) {
  std::ofstream(Path("a")) << "a";
  std::ofstream(Path("b")) << "a";
  fs::create_symlink("a", Path("soft"));
  fs::create_hard_link(Path("a"), Path("hard"));
  EXPECT_TRUE(IsSameFile(Path("a"), Path("soft")));
  EXPECT_TRUE(IsSameFile(Path("hard"), Path("./soft")));
  EXPECT_FALSE(IsSameFile(Path("a"), Path("b")));
  EXPECT_FALSE(IsSameFile(Path("a"), Path("gone")));
}

}  // namespace
}  // namespace ridge
