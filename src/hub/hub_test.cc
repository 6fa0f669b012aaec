#include "hub/hub.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "hub/catalogue.h"
#include "hub/files.h"
#include "hub/reference.h"
#include "hub/test_folder.h"

namespace ridge::hub {
namespace {

ResolveOptions In(const TestFolder& folder) {
  ResolveOptions options;
  options.options.store_root = folder.path();
  return options;
}

void Put(const Store& store, const std::string& name, const std::string& text) {
  ASSERT_TRUE(store.Create());
  const std::string partial = store.PartialPath("test");
  ASSERT_TRUE(WriteFileDurably(partial, text));
  ASSERT_TRUE(store.Commit(name, "hf:a/b", 1, {{{HashText(text), text.size(), "b.gguf"}, partial}}));
}

TEST(Resolve, ExistingPathIsReturnedAsItIs) {
  TestFolder folder;
  const std::string path = folder.path() + "/./odd name:1";
  std::ofstream(path) << "x";
  EXPECT_EQ(ResolveModel(path, In(folder)).value(), path);
  EXPECT_EQ(ResolveModel(folder.path(), In(folder)).value(), folder.path());
}

TEST(Resolve, NamesAndReferencesFromTheStore) {
  TestFolder folder;
  const Store store(folder.path());
  Put(store, "smollm2:135m", "one");
  Put(store, "hf:a/b:Q4_K_M", "two");
  EXPECT_EQ(ResolveModel("smollm2:135m", In(folder)).value(), store.BlobPath(HashText("one")));
  EXPECT_EQ(ResolveModel("smollm2", In(folder)).value(), store.BlobPath(HashText("one")));  // the family's first entry
  EXPECT_EQ(ResolveModel("hf:a/b:Q4_K_M", In(folder)).value(), store.BlobPath(HashText("two")));
}

TEST(Resolve, MissingModelsNameTheRemedy) {
  TestFolder folder;
  EXPECT_EQ(ResolveModel("smollm2:135m", In(folder)).error().remedy, "ridge pull smollm2:135m");
  EXPECT_EQ(ResolveModel("hf:a/b", In(folder)).error().remedy, "ridge pull hf:a/b");
  EXPECT_EQ(ResolveModel("no-such-model:1b", In(folder)).error().code, Code::kNotFound);
  EXPECT_EQ(ResolveModel("no/such/file.gguf", In(folder)).error().what, "no such model file");
  EXPECT_EQ(ResolveModel("no such file", In(folder)).error().what, "no such model file");
  EXPECT_EQ(ResolveModel("", In(folder)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(ResolveModel("hf:../b", In(folder)).error().code, Code::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));  // looking up creates nothing
}

TEST(Resolve, DamagedBlobIsAnError) {
  TestFolder folder;
  const Store store(folder.path());
  Put(store, "smollm2:135m", "0123456789");
  std::filesystem::resize_file(store.BlobPath(HashText("0123456789")), 9);
  const Error error = ResolveModel("smollm2:135m", In(folder)).error();
  EXPECT_EQ(error.code, Code::kInvalidData);
  EXPECT_NE(error.remedy.find("ridge pull"), std::string::npos);
}

TEST(Catalogue, EveryEntryParses) {
  ASSERT_FALSE(Catalogue().empty());
  for (const CatalogueEntry& entry : Catalogue()) {
    const Result<Reference> name = ParseReference(entry.name);
    ASSERT_TRUE(name) << entry.name;
    EXPECT_EQ(name->scheme, Scheme::kName);
    EXPECT_FALSE(name->tag.empty()) << entry.name;
    EXPECT_EQ(FindInCatalogue(entry.name), &entry) << "listed twice";
    EXPECT_FALSE(entry.sources.empty()) << entry.name;
    for (const CatalogueSource& source : entry.sources) {
      const Result<Reference> reference = ParseReference(source.reference);
      ASSERT_TRUE(reference) << source.reference;
      EXPECT_NE(reference->scheme, Scheme::kName) << source.reference;
      EXPECT_EQ(reference->Canonical(), source.reference);
      EXPECT_TRUE(source.sha256.empty() || ParseDigest(source.sha256)) << source.reference;
    }
  }
}

TEST(Catalogue, FamilyWithoutTag) {
  ASSERT_NE(FindInCatalogue("smollm2"), nullptr);
  EXPECT_EQ(FindInCatalogue("smollm2")->name, "smollm2:135m");
  EXPECT_EQ(FindInCatalogue("smollm"), nullptr);
  EXPECT_EQ(FindInCatalogue("smollm2:"), nullptr);
}

}  // namespace
}  // namespace ridge::hub
