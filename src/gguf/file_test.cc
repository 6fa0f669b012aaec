#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "gguf/gguf.h"
#include "gguf/split.h"
#include "gguf/test_files.h"

namespace ridge::gguf {
namespace {

namespace fs = std::filesystem;
using test::Builder;
using test::Raw;
using test::Str;
using test::WriteText;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ridge_file_test_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Shard(uint32_t number, uint32_t count) const { return ShardPath(Path("m"), number, count); }

  static Builder ShardBuilder(uint16_t number, uint16_t count, int32_t tensors, const std::string& tensor) {
    Builder b;
    b.Key("split.no", ValueType::kU16, Raw(number)).Key("split.count", ValueType::kU16, Raw(count));
    b.Key("split.tensors.count", ValueType::kI32, Raw(tensors));
    if (!tensor.empty()) b.Tensor(tensor, {8}, 0, 0).Data(32);
    return b;
  }
  // Three shards; the first has metadata and no tensor, as gguf-split writes it.
  void WriteSplit(const std::string& second = "a", const std::string& third = "b", int32_t total = 2) {
    Builder first = ShardBuilder(0, 3, total, "");
    first.Key("general.name", ValueType::kString, Str("split model"));
    WriteText(Shard(1, 3), first.Text());
    WriteText(Shard(2, 3), ShardBuilder(1, 3, total, second).Text());
    WriteText(Shard(3, 3), ShardBuilder(2, 3, total, third).Text());
  }
  static void ExpectError(const Result<File>& file, Code code, const std::vector<std::string>& parts) {
    ASSERT_FALSE(file);
    EXPECT_EQ(Name(file.error().code), Name(code)) << file.error().Message();
    for (const std::string& part : parts) {
      EXPECT_NE(file.error().Message().find(part), std::string::npos) << file.error().Message() << " lacks " << part;
    }
  }

  fs::path folder_;
};

TEST_F(FileTest, OpensOneFile) {
  const std::string text = Builder().Tensor("w", {8}, 0, 0).Data(32).Text();
  WriteText(Path("x.gguf"), text);
  for (const std::string& path : {Path("x.gguf"), folder_.string()}) {
    const auto file = File::Open(path);
    ASSERT_TRUE(file) << file.error().Message();
    const TensorInfo* w = file->FindTensor("w");
    ASSERT_NE(w, nullptr);
    const auto data = file->Data(*w);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(data.data()), data.size()), text.substr(text.size() - 32));
    EXPECT_EQ(file->FindTensor("v"), nullptr);
    EXPECT_EQ(file->size_bytes(), text.size());
    EXPECT_EQ(file->path(), Path("x.gguf"));
    EXPECT_EQ(file->alignment(), 32u);
    file->Release(*w);
    EXPECT_EQ(std::to_integer<int>(file->Data(*w)[0]), 1);  // the pages come back
  }
}

TEST_F(FileTest, OpensASplitFileByAnyShardOrItsFolder) {
  WriteSplit();
  for (const std::string& path : {Shard(1, 3), Shard(2, 3), Shard(3, 3), folder_.string()}) {
    const auto file = File::Open(path);
    ASSERT_TRUE(file) << file.error().Message();
    EXPECT_EQ(file->metadata().Get<std::string>("general.name").value(), "split model");
    ASSERT_EQ(file->tensors().size(), 2u);
    EXPECT_EQ(file->FindTensor("b")->shard, 2u);
    EXPECT_EQ(file->Data(*file->FindTensor("b")).size(), 32u);
    EXPECT_EQ(file->shard_paths(), (std::vector<std::string>{Shard(1, 3), Shard(2, 3), Shard(3, 3)}));
  }
}

TEST_F(FileTest, OpensShardsUnderAnyNames) {
  WriteSplit();
  fs::rename(Shard(1, 3), Path("sha-1"));
  fs::rename(Shard(2, 3), Path("sha-2"));
  fs::rename(Shard(3, 3), Path("sha-3"));
  EXPECT_TRUE(File::OpenShards({Path("sha-1"), Path("sha-2"), Path("sha-3")}));
  ExpectError(File::OpenShards({Path("sha-2"), Path("sha-1"), Path("sha-3")}), Code::kInvalidData,
              {"not the shard expected", "sha-2", "\"split.no\" 1"});
  ExpectError(File::OpenShards({Path("sha-1")}), Code::kInvalidData, {"not the shard expected", "\"split.count\" 3"});
  ExpectError(File::OpenShards({}), Code::kInvalidArgument, {"no file given"});
  ExpectError(File::Open(Path("sha-2")), Code::kInvalidData, {"name does not fit", "-00002-of-00003.gguf"});
}

TEST_F(FileTest, NamesMissingShards) {
  WriteSplit();
  fs::remove(Shard(1, 3));
  fs::remove(Shard(3, 3));
  ExpectError(File::Open(Shard(2, 3)), Code::kNotFound,
              {"2 of 3 shards", "m-00001-of-00003.gguf", "m-00003-of-00003.gguf"});
  ExpectError(File::Open(folder_.string()), Code::kNotFound, {"2 of 3 shards"});
}

TEST_F(FileTest, RefusesShardsThatDoNotFit) {
  WriteSplit("a", "a");
  ExpectError(File::Open(Shard(1, 3)), Code::kInvalidData, {"same name", "\"a\"", "00002-of", "00003-of"});
  WriteSplit("a", "b", 5);
  ExpectError(File::Open(Shard(1, 3)), Code::kInvalidData,
              {"do not hold all tensors", "found 2 tensors", "expected 5"});
  WriteSplit();
  WriteText(Shard(3, 3), ShardBuilder(1, 3, 2, "b").Text());
  ExpectError(File::Open(Shard(1, 3)), Code::kInvalidData, {"not the shard expected", "00003-of-00003"});
  WriteText(Shard(3, 3), ShardBuilder(2, 3, 2, "b").Key("general.name", ValueType::kString, Str("other")).Text());
  ExpectError(File::Open(Shard(1, 3)), Code::kInvalidData, {"disagree", "general.name", "00003-of-00003"});
  WriteText(Shard(3, 3), "GGUF");
  ExpectError(File::Open(Shard(1, 3)), Code::kInvalidData, {"ends too early", "00003-of-00003"});
}

TEST_F(FileTest, RefusesBadSplitKeys) {
  WriteText(Path("x.gguf"), ShardBuilder(7, 3, 1, "a").Text());
  ExpectError(File::Open(Path("x.gguf")), Code::kInvalidData, {"bad split numbers", "7 and 3"});
  WriteText(Path("x.gguf"), Builder().Key("split.count", ValueType::kString, Str("3")).Text());
  ExpectError(File::Open(Path("x.gguf")), Code::kInvalidData, {"wrong type", "split.count", "x.gguf"});
  WriteText(Path("x.gguf"), Builder().Key("split.count", ValueType::kU64, Raw<uint64_t>(1ull << 40)).Text());
  ExpectError(File::Open(Path("x.gguf")), Code::kInvalidData, {"bad split numbers"});
}

TEST_F(FileTest, ASplitOfOneIsAFile) {
  WriteText(Path("x.gguf"), ShardBuilder(0, 1, 1, "a").Text());
  EXPECT_TRUE(File::Open(Path("x.gguf")));
}

TEST_F(FileTest, FoldersWithNoneOrSeveralModels) {
  ExpectError(File::Open(folder_.string()), Code::kNotFound, {"no GGUF file"});
  WriteText(Path("one.gguf"), Builder().Text());
  WriteSplit();
  ExpectError(File::Open(folder_.string()), Code::kInvalidArgument,
              {"several models", "one.gguf", "m (3 shards)", "path of the file"});
  ExpectError(File::Open(Path("gone.gguf")), Code::kNotFound, {"gone.gguf"});
}

TEST(SplitName, RoundTrips) {
  const auto name = ParseSplitName("a/b-00002-of-00013.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "a/b");
  EXPECT_EQ(name->number, 2u);
  EXPECT_EQ(name->count, 13u);
  EXPECT_EQ(ShardPath(name->prefix, name->number, name->count), "a/b-00002-of-00013.gguf");
  for (const char* bad :
       {"a.gguf", "a-00001-of-00002.bin", "a-1-of-2.gguf", "a-00000-of-00002.gguf", "a-00003-of-00002.gguf",
        "a-+0001-of-00002.gguf", "-of-00002.gguf", "00001-of-00002.gguf", ".gguf", ""}) {
    EXPECT_FALSE(ParseSplitName(bad)) << bad;
  }
}

}  // namespace
}  // namespace ridge::gguf
