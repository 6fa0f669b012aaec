#include "hub/source.h"

#include <gtest/gtest.h>

namespace ridge::hub {
namespace {

std::vector<ListedFile> Listing(const std::vector<std::string>& paths) {
  std::vector<ListedFile> listing;
  for (const std::string& path : paths) listing.push_back({path, 1, std::nullopt});
  return listing;
}

// The paths chosen, or the name of the error's code.
std::vector<std::string> Chosen(const std::string& reference, const std::vector<std::string>& paths) {
  const Result<std::vector<ListedFile>> chosen = ChooseFiles(ParseReference(reference).value(), Listing(paths));
  if (!chosen) return {std::string(Name(chosen.error().code))};
  std::vector<std::string> out;
  for (const ListedFile& file : *chosen) out.push_back(file.path);
  return out;
}

using Paths = std::vector<std::string>;

TEST(ChooseFiles, Quantization) {
  const Paths all = {"m-Q4_K_S.gguf", "m-Q4_K_M.gguf", "m.IQ4_XS.gguf",
                     "m-q8_0.gguf",   "m-BF16.gguf",   "m-UD-Q2_K_XL.gguf"};
  EXPECT_EQ(Chosen("hf:a/b:Q4_K_M", all), Paths{"m-Q4_K_M.gguf"});
  EXPECT_EQ(Chosen("hf:a/b:q8_0", all), Paths{"m-q8_0.gguf"});
  EXPECT_EQ(Chosen("hf:a/b:iq4_xs", all), Paths{"m.IQ4_XS.gguf"});
  EXPECT_EQ(Chosen("hf:a/b:UD-Q2_K_XL", all), Paths{"m-UD-Q2_K_XL.gguf"});
  EXPECT_EQ(Chosen("hf:a/b:Q2_K", all), Paths{"not_found"});
  EXPECT_EQ(Chosen("hf:a/b:Q4_K", all), Paths{"not_found"});
  EXPECT_EQ(Chosen("hf:a/b:F16", all), Paths{"not_found"});  // not the tail of BF16
  EXPECT_EQ(Chosen("hf:a/b:Q4", {"Q4-models/m-Q8_0.gguf", "x/m-Q5_0.gguf"}), Paths{"Q4-models/m-Q8_0.gguf"});
}

TEST(ChooseFiles, WithoutQuantization) {
  EXPECT_EQ(Chosen("hf:a/b", {"m-Q8_0.gguf", "m-Q4_0.gguf", "m-Q4_K_M.gguf"}), Paths{"m-Q4_K_M.gguf"});
  EXPECT_EQ(Chosen("hf:a/b", {"m-Q8_0.gguf", "m-Q2_K.gguf"}), Paths{"m-Q8_0.gguf"});
  EXPECT_EQ(Chosen("hf:a/b", {"anything.gguf", "mmproj-x-f16.gguf", "imatrix.gguf"}), Paths{"anything.gguf"});
  EXPECT_EQ(Chosen("hf:a/b", {"one.gguf", "two.gguf"}), Paths{"not_found"});
  EXPECT_EQ(Chosen("hf:a/b", {"one-Q4_K_M.gguf", "two-Q4_K_M.gguf"}), Paths{"invalid_argument"});
  EXPECT_EQ(Chosen("hf:a/b", {}), Paths{"not_found"});
  EXPECT_EQ(Chosen("hf:a/b/mmproj-x-f16.gguf", {"m.gguf", "mmproj-x-f16.gguf"}), Paths{"mmproj-x-f16.gguf"});
}

TEST(ChooseFiles, Shards) {
  const Paths shards = {"q/m-Q4_0-00001-of-00002.gguf", "q/m-Q4_0-00002-of-00002.gguf"};
  EXPECT_EQ(Chosen("hf:a/b:Q4_0", {shards[1], "m-Q8_0.gguf", shards[0]}), shards);
  EXPECT_EQ(Chosen("hf:a/b/q/m-Q4_0-00002-of-00002.gguf", shards), shards);
  EXPECT_EQ(Chosen("hf:a/b", {shards[1]}), Paths{"invalid_data"});
  EXPECT_EQ(Chosen("hf:a/b", {shards[0]}), Paths{"invalid_data"});
  EXPECT_EQ(Chosen("hf:a/b", {"m-00001-of-00003.gguf", "m-00002-of-00002.gguf"}), Paths{"invalid_data"});
  EXPECT_EQ(Chosen("hf:a/b", {"m-00003-of-00002.gguf"}), Paths{"m-00003-of-00002.gguf"});  // no shard's name
}

TEST(ChooseFiles, NamesThatClimbAreNotThere) {
  EXPECT_EQ(Chosen("hf:a/b", {"../m.gguf", "/m.gguf", "a//m.gguf", "a/./m.gguf", "a\\m.gguf",
                              std::string("a\0.gguf", 7), "m.bin"}),
            Paths{"not_found"});
}

TEST(CleanLabel, ControlCharactersAreGone) { EXPECT_EQ(CleanLabel("a\x1b[31m\nb\x7f"), "a[31mb"); }

}  // namespace
}  // namespace ridge::hub
