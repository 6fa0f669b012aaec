#include "lab/quality/reference.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "sampling/log_probability.h"

namespace ridge::lab {
namespace {

std::vector<float> RandomRow(size_t vocab, std::mt19937& random, double spread) {
  std::normal_distribution<float> normal(0, static_cast<float>(spread));
  std::vector<float> row(vocab);
  for (float& x : row) x = normal(random);
  return row;
}

double ExactKld(const std::vector<float>& p, const std::vector<float>& q) {
  const double zp = sampling::LogSumExp(p), zq = sampling::LogSumExp(q);
  double kld = 0;
  for (size_t i = 0; i < p.size(); i++) kld += std::exp(p[i] - zp) * ((p[i] - zp) - (q[i] - zq));
  return kld;
}

ReferenceRow Decoded(const std::string& row, int64_t vocab) { return DecodeRow(row, vocab).value(); }

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("ridge_reference_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string File(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

TEST(Reference, RowsKeepTheTopTheTailAndTheTarget) {
  std::mt19937 random(1);
  const std::vector<float> row = RandomRow(1000, random, 2);
  const ReferenceRow kept = Decoded(EncodeRow(row, 17, 0, {.top = 40, .samples = 20}), 1000);
  const double z = sampling::LogSumExp(row);
  EXPECT_NEAR(kept.target_log_probability, row[17] - z, 1e-6);
  const auto top = sampling::TopLogProbabilities(row, 40);
  ASSERT_EQ(kept.top.size(), 40u);
  EXPECT_EQ(kept.likeliest, top[0].id);
  double mass = 1;
  for (const KeptToken& t : kept.top) {
    EXPECT_NEAR(t.log_probability, row[static_cast<size_t>(t.id)] - z, 2e-6);
    EXPECT_GE(t.log_probability, top.back().log_probability - 1e-5);
    mass -= std::exp(row[static_cast<size_t>(t.id)] - z);
  }
  EXPECT_NEAR(kept.tail_mass, mass, 1e-6);
  int64_t draws = 0;
  for (const KeptToken& t : kept.samples) {
    draws += t.draws;
    EXPECT_LT(t.log_probability, top.back().log_probability + 1e-5);
  }
  EXPECT_EQ(draws, 20);
}

TEST(Reference, ItsOwnModelHasNoDivergence) {
  std::mt19937 random(2);
  for (const double spread : {0.1, 1.0, 4.0, 12.0}) {
    const std::vector<float> row = RandomRow(5000, random, spread);
    const Divergence d = Compare(Decoded(EncodeRow(row, 3, 5, {.top = 64, .samples = 32}), 5000), row, 3);
    EXPECT_NEAR(d.kld, 0, 1e-5);
    EXPECT_NEAR(d.delta_p, 0, 1e-6);
    EXPECT_TRUE(d.same_top);
  }
}

// The mean over a text of the length of the shortest that anyone uses, at the shape that is the default, against all scores.
TEST(Reference, MeanDivergenceIsWithinOnePercentOfTheExactOne) {
  constexpr size_t kVocab = 20000, kRows = 300;
  const ReferenceShape shape = DefaultShape(kVocab);
  for (const double noise : {0.05, 0.3, 1.0}) {
    std::mt19937 random(3);
    double exact = 0, estimated = 0, variance = 0;
    for (size_t r = 0; r < kRows; r++) {
      const std::vector<float> p = RandomRow(kVocab, random, 2.5);
      std::vector<float> q = RandomRow(kVocab, random, noise);
      for (size_t i = 0; i < kVocab; i++) q[i] += p[i];
      exact += ExactKld(p, q);
      const Divergence d = Compare(Decoded(EncodeRow(p, 1, static_cast<int64_t>(r), shape), kVocab), q, 1);
      estimated += d.kld, variance += d.kld_variance;
      EXPECT_GE(d.kld, -1e-5);
    }
    EXPECT_NEAR(estimated / exact, 1, 0.01) << noise;
    EXPECT_LT(std::abs(estimated - exact), 4 * std::sqrt(variance) + 1e-5 * kRows) << noise;
  }
}

TEST(Reference, TakesAFiftiethOfTheScores) {
  std::mt19937 random(4);
  for (const int64_t vocab : {int64_t{32000}, int64_t{49152}, int64_t{151936}, int64_t{262144}}) {
    const ReferenceShape shape = DefaultShape(vocab);
    for (const double spread : {0.5, 2.0, 5.0}) {
      const std::vector<float> row = RandomRow(static_cast<size_t>(vocab), random, spread);
      EXPECT_LE(EncodeRow(row, 0, 1, shape).size(), FullLogitsBytes(vocab, 1) / 50) << vocab << " " << spread;
    }
  }
}

ReferenceAbout SmallAbout() {
  ReferenceAbout about{.model = "m.gguf",
                       .architecture = "llama",
                       .vocab = 300,
                       .vocab_hash = "00ff",
                       .tokens = {},
                       .windows = {.window_tokens = 8},
                       .bos = 1,
                       .rows = 3,
                       .shape = {.top = 8, .samples = 4},
                       .config = "{\"isa\": \"x\"}"};
  for (TokenId t = 0; t < 9; t++) about.tokens.push_back(t * 30);
  return about;
}

std::string Written(const Folder& folder) {
  const std::string path = folder.File("a.ref");
  auto writer = ReferenceWriter::Create(path, SmallAbout()).value();
  std::mt19937 random(5);
  for (int64_t r = 0; r < 3; r++)
    EXPECT_TRUE(writer.Add(EncodeRow(RandomRow(300, random, 2), 5, r, {.top = 8, .samples = 4})));
  EXPECT_TRUE(writer.Commit());
  return path;
}

TEST(Reference, FileComesBack) {
  const Folder folder;
  const auto reference = Reference::Open(Written(folder));
  ASSERT_TRUE(reference) << reference.error().Message();
  const ReferenceAbout& a = reference->about();
  EXPECT_EQ(a.model, "m.gguf");
  EXPECT_EQ(a.vocab, 300);
  EXPECT_EQ(a.vocab_hash, "00ff");
  EXPECT_EQ(a.tokens, SmallAbout().tokens);
  EXPECT_EQ(a.bos, 1);
  EXPECT_EQ(a.windows.window_tokens, 8);
  EXPECT_EQ(a.config, "{\"isa\":\"x\"}");
  std::mt19937 random(5);
  for (int64_t r = 0; r < 3; r++) {
    const std::vector<float> row = RandomRow(300, random, 2);
    EXPECT_NEAR(reference->Row(r).value().target_log_probability, sampling::LogProbability(row, 5), 1e-6);
  }
}

TEST(Reference, EveryFlippedByteAndEveryCutIsRefused) {
  const Folder folder;
  const std::string path = Written(folder), broken = folder.File("b.ref");
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto opens = [&](const std::string& content) {
    std::ofstream(broken, std::ios::binary) << content;
    return Reference::Open(broken).has_value();
  };
  ASSERT_TRUE(opens(bytes));
  for (size_t i = 0; i < bytes.size(); i++) {
    std::string other = bytes;
    other[i] = static_cast<char>(other[i] ^ 0x20);
    EXPECT_FALSE(opens(other)) << i;
  }
  for (size_t n = 0; n < bytes.size(); n += 3) EXPECT_FALSE(opens(bytes.substr(0, n))) << n;
  EXPECT_FALSE(opens("something else"));
}

TEST(Reference, BrokenRowsAreErrors) {
  std::mt19937 random(6);
  const std::string row = EncodeRow(RandomRow(300, random, 2), 5, 0, {.top = 8, .samples = 4});
  ASSERT_TRUE(DecodeRow(row, 300));
  EXPECT_FALSE(DecodeRow(row, 20));  // ids beyond the vocabulary
  for (size_t n = 0; n < row.size(); n++) EXPECT_FALSE(DecodeRow(row.substr(0, n), 300)) << n;
  EXPECT_FALSE(DecodeRow(row + "x", 300));
}

}  // namespace
}  // namespace ridge::lab
