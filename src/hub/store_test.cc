#include "hub/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "hub/files.h"
#include "hub/test_folder.h"

namespace ridge::hub {
namespace {

namespace fs = std::filesystem;

FinishedFile Finished(const Store& store, const std::string& text) {
  RIDGE_CHECK(store.Create().has_value());
  const std::string partial = store.PartialPath("t" + HashText(text).Hex());
  RIDGE_CHECK(WriteFileDurably(partial, text).has_value());
  return {{HashText(text), text.size(), "label of " + text}, partial};
}

FinishedFile AlreadyStored(const std::string& text) {
  FinishedFile finished;
  finished.file.digest = HashText(text);
  finished.file.size_bytes = text.size();
  return finished;
}

size_t Count(const std::string& folder) {
  return fs::exists(folder)
             ? static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()))
             : 0;
}

TEST(Digest, ParseAndPrint) {
  const std::string hex = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";  // of "test"
  EXPECT_EQ(HashText("test").Hex(), hex);
  EXPECT_EQ(ParseDigest(hex).value(), HashText("test"));
  EXPECT_EQ(ParseDigest("sha256:" + hex).value().Text(), "sha256:" + hex);
  EXPECT_EQ(ParseDigest("sha256-" + hex).value(), HashText("test"));
  std::string upper = hex;
  std::transform(upper.begin(), upper.end(), upper.begin(), ::toupper);
  EXPECT_EQ(ParseDigest(upper).value().Hex(), hex);
}

TEST(Digest, AnythingElseIsRefused) {
  const std::string hex(64, 'a');
  for (const std::string& bad : {std::string(), std::string("sha256:"), hex.substr(1), hex + "a", "sha512:" + hex,
                                 std::string("sha256:../../../../etc/passwd"), "sha256:" + std::string(61, 'a') + "/..",
                                 " " + hex, hex + "\n", std::string(63, 'a') + '\0', std::string(63, 'a') + "g"}) {
    EXPECT_FALSE(ParseDigest(bad)) << bad;
  }
}

TEST(Store, CommitFindRemove) {
  TestFolder folder;
  const Store store(folder.path() + "/made/on/demand");
  ASSERT_TRUE(store.Commit("a:1", "hf:x/y", 1700000000, {Finished(store, "first")}));
  const Entry entry = store.Find("a:1").value();
  EXPECT_EQ(entry.source, "hf:x/y");
  EXPECT_EQ(entry.fetched_unix_s, 1700000000);
  ASSERT_EQ(entry.files.size(), 1u);
  EXPECT_EQ(entry.files[0].label, "label of first");
  EXPECT_EQ(ReadFile(store.ModelPath(entry).value(), 100).value(), "first");
  EXPECT_TRUE(store.Verify(entry));
  EXPECT_EQ(Count(store.root() + "/partial"), 0u);
  EXPECT_EQ(store.List().value().entries.size(), 1u);

  const Removal removal = store.Remove("a:1").value();
  EXPECT_EQ(removal.freed_bytes, 5u);
  EXPECT_EQ(store.Find("a:1").error().code, Code::kNotFound);
  EXPECT_EQ(store.Remove("a:1").error().code, Code::kNotFound);
  EXPECT_EQ(Count(store.root() + "/blobs"), 0u);
  EXPECT_EQ(Count(store.root() + "/manifests"), 0u);
}

TEST(Store, NoNameBecomesAPath) {
  TestFolder folder;
  const Store store(folder.path() + "/store");
  const std::string name = "../../../escape/../x\n";
  ASSERT_TRUE(store.Commit(name, "s", 1, {Finished(store, "data")}));
  EXPECT_EQ(store.Find(name).value().name, name);
  EXPECT_EQ(Count(folder.path()), 1u);
  ASSERT_EQ(Count(store.root() + "/manifests"), 1u);
  EXPECT_EQ(fs::directory_iterator(store.root() + "/manifests")->path().filename().string().size(), 32u + 5u);
}

TEST(Store, TwoNamesShareABlob) {
  TestFolder folder;
  const Store store(folder.path());
  ASSERT_TRUE(store.Commit("a", "s", 1, {Finished(store, "same")}));
  ASSERT_TRUE(store.Commit("b", "s", 1, {AlreadyStored("same")}));  // already in the store
  EXPECT_EQ(Count(store.root() + "/blobs"), 1u);
  EXPECT_EQ(store.Remove("a").value().freed_bytes, 0u);
  EXPECT_TRUE(store.Find("b"));
  EXPECT_EQ(store.Remove("b").value().freed_bytes, 4u);
}

TEST(Store, CommitOfABlobThatIsGone) {
  TestFolder folder;
  const Store store(folder.path());
  EXPECT_EQ(store.Commit("a", "s", 1, {AlreadyStored("gone")}).error().code, Code::kNotFound);
  EXPECT_TRUE(store.List().value().entries.empty());
}

TEST(Store, ReplacingFreesTheOldBlob) {
  TestFolder folder;
  const Store store(folder.path());
  ASSERT_TRUE(store.Commit("a", "s", 1, {Finished(store, "old")}));
  ASSERT_TRUE(store.Commit("a", "s", 2, {Finished(store, "newer")}));
  EXPECT_EQ(store.Find("a").value().files[0].digest, HashText("newer"));
  EXPECT_EQ(Count(store.root() + "/blobs"), 1u);
}

TEST(Store, SplitModelHasNamesThatTheLoaderKnows) {
  TestFolder folder;
  const Store store(folder.path());
  ASSERT_TRUE(store.Commit("a", "s", 1, {Finished(store, "one"), Finished(store, "three")}));
  const Entry entry = store.Find("a").value();
  const std::string path = store.ModelPath(entry).value();
  EXPECT_TRUE(path.ends_with("/model-00001-of-00002.gguf")) << path;
  EXPECT_EQ(ReadFile(path, 100).value(), "one");
  EXPECT_EQ(ReadFile(fs::path(path).parent_path() / "model-00002-of-00002.gguf", 100).value(), "three");
  EXPECT_EQ(entry.size_bytes(), 8u);
  fs::remove(path);
  EXPECT_EQ(store.ModelPath(entry).error().code, Code::kInvalidData);
  EXPECT_EQ(store.Remove("a").value().freed_bytes, 8u);
  EXPECT_EQ(Count(store.root() + "/shards"), 0u);
}

TEST(Store, DamageIsFoundAndNeverListed) {
  TestFolder folder;
  const Store store(folder.path());
  for (const std::string name : {"short", "missing", "flipped", "garbage", "renamed", "whole"}) {
    ASSERT_TRUE(store.Commit(name, "s", 1, {Finished(store, "data of " + name)}));
  }
  const auto manifest = [&](const std::string& name) {
    return store.root() + "/manifests/" + HashText(name).Hex().substr(0, 32) + ".json";
  };
  fs::resize_file(store.BlobPath(HashText("data of short")), 3);
  fs::remove(store.BlobPath(HashText("data of missing")));
  fs::permissions(store.BlobPath(HashText("data of flipped")), fs::perms::owner_all);
  std::ofstream(store.BlobPath(HashText("data of flipped"))) << "dbta of flipped";
  std::ofstream(manifest("garbage")) << "{\"name\": [[[";
  fs::rename(manifest("renamed"), manifest("other"));

  const Listing listing = store.List().value();
  ASSERT_EQ(listing.entries.size(), 2u);  // a flipped bit in a file of the right size takes a hash to see
  EXPECT_EQ(listing.entries[0].name, "flipped");
  EXPECT_EQ(listing.entries[1].name, "whole");
  EXPECT_EQ(listing.damaged.size(), 4u);
  EXPECT_EQ(store.Verify(listing.entries[0]).error().code, Code::kInvalidData);
  EXPECT_TRUE(store.Verify(listing.entries[1]));
  // While a manifest cannot be read nothing is collected: it may name any blob.
  EXPECT_EQ(store.Remove("whole").value().freed_bytes, 0u);
  EXPECT_TRUE(store.HasBlob(HashText("data of garbage"), 15));
  EXPECT_TRUE(store.Remove("garbage"));
  EXPECT_EQ(store.Find("garbage").error().code, Code::kNotFound);
}

TEST(Store, HostileManifests) {
  TestFolder folder;
  const Store store(folder.path());
  ASSERT_TRUE(store.Commit("a", "s", 1, {Finished(store, "data")}));
  const std::string path = fs::directory_iterator(store.root() + "/manifests")->path();
  const std::string digest = HashText("data").Text();
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"name":"a"})"),
        std::string(R"({"name":"a","files":[]})"), std::string(R"({"name":"a","files":[1]})"),
        R"({"name":"a","files":[{"digest":")" + digest + R"(","size_bytes":-1}]})",
        R"({"name":"a","files":[{"digest":")" + digest + R"(","size_bytes":1e30}]})",
        R"({"name":"a","files":[{"digest":")" + digest + R"(","size_bytes":18446744073709551615}]})",
        std::string(R"({"name":"a","files":[{"digest":"sha256:../../x","size_bytes":1}]})"),
        std::string(R"({"name":"a","files":[{"digest":7,"size_bytes":1}]})"), std::string(2 << 20, ' '),
        R"({"name":"a","files":)" + std::string(200000, '[')}) {
    std::ofstream(path) << bad;
    const Result<Entry> found = store.Find("a");
    ASSERT_FALSE(found) << bad.substr(0, 100);
    EXPECT_EQ(found.error().code, Code::kInvalidData);
    EXPECT_TRUE(store.List().value().entries.empty());
  }
}

TEST(Store, LeftoversOfAKilledCommitAreCollected) {
  TestFolder folder;
  const Store store(folder.path());
  ASSERT_TRUE(store.Commit("a", "s", 1, {Finished(store, "data")}));
  std::ofstream(store.BlobPath(HashText("orphan"))) << "orphan";
  std::ofstream(store.root() + "/manifests/0123.json.tmp-7") << "{";
  EXPECT_EQ(store.List().value().entries.size(), 1u);
  EXPECT_TRUE(store.List().value().damaged.empty());
  ASSERT_TRUE(store.Commit("b", "s", 1, {Finished(store, "more")}));
  EXPECT_EQ(Count(store.root() + "/blobs"), 2u);
  EXPECT_EQ(Count(store.root() + "/manifests"), 2u);
}

TEST(Store, PartialsAreRemovedUnlessUnderWay) {
  TestFolder folder;
  const Store store(folder.path());
  ASSERT_TRUE(store.Create());
  std::ofstream(store.PartialPath("free")) << "1234";
  std::ofstream(store.PartialPath("busy")) << "12345";
  fs::create_directories(store.PartialPath("wheels"));
  std::ofstream(store.PartialPath("wheels/x.whl")) << "123456";
  {
    const FileLock lock = FileLock::Acquire(store.LockPath("busy"), [] { return false; }).value();
    EXPECT_EQ(store.RemovePartials().value(), 10u);
    EXPECT_TRUE(FileSize(store.PartialPath("busy")));
    EXPECT_EQ(FileLock::Acquire(store.LockPath("busy"), [] { return false; }).error().code, Code::kCancelled);
  }
  EXPECT_EQ(store.RemovePartials().value(), 5u);
  EXPECT_TRUE(store.List().value().entries.empty());
}

TEST(Store, RootFromTheEnvironment) {
  ::setenv("HOME", "/h", 1);
  ::unsetenv("XDG_DATA_HOME");
  ::unsetenv("RIDGE_HOME");
  EXPECT_EQ(DefaultStoreRoot().value(), "/h/.local/share/ridge");
  ::setenv("XDG_DATA_HOME", "/x", 1);
  EXPECT_EQ(DefaultStoreRoot().value(), "/x/ridge");
  ::setenv("RIDGE_HOME", "/r/../q", 1);
  EXPECT_EQ(DefaultStoreRoot().value(), "/q");
  ::unsetenv("XDG_DATA_HOME");
  ::unsetenv("RIDGE_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(DefaultStoreRoot().error().code, Code::kNotFound);
}

}  // namespace
}  // namespace ridge::hub
