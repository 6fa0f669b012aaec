// The prefix cache over restarts: what was said before is found again, with the same bits; what is damaged or of another model is refused whole.
#include "engine/cache_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/engine.h"
#include "engine/fake_program.h"

namespace ridge::engine {
namespace {

using test::FakeProgram;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int64_t kVocab = 97;
const CacheKey kKey = {{"model", "one"}};

// Whose pages hold something else than those of the plain one, though its answers are the same.
class OtherBits : public FakeProgram {
 public:
  using FakeProgram::FakeProgram;
  Status Run(const backend::Step& step, backend::StateStore& store, std::span<float> logits) override {
    RIDGE_RETURN_IF_ERROR(FakeProgram::Run(step, store, logits));
    auto& state = static_cast<test::FakeState&>(store);
    state.slots[static_cast<size_t>(step.page_table[0] * state.options().page_tokens)] ^= 1;
    return {};
  }
};

struct Said {
  std::vector<TokenId> ids;
  Summary summary;
};

Said Ask(Engine& engine, std::vector<TokenId> prompt, int64_t n, std::string salt = "") {
  const auto ticket = engine.Submit(
      {.prompt = std::move(prompt), .max_tokens = n, .sampling = {.temperature = 0}, .cache_salt = std::move(salt)});
  Said said;
  TokenEvent event;
  while (ticket && ticket->outbox->Next(120s, event) == Outbox::Got::kToken) said.ids.push_back(event.token);
  if (ticket) said.summary = ticket->outbox->summary();
  return said;
}

class CacheFileTest : public ::testing::TestWithParam<bool> {  // recurrent
 protected:
  CacheFileTest() {
    folder = fs::temp_directory_path() / ("ridge-cache-file-" + std::to_string(::getpid()));
    fs::create_directories(folder);
    path = (folder / "saved").string();
  }
  ~CacheFileTest() override { fs::remove_all(folder); }

  std::unique_ptr<Engine> Start(FakeProgram& program, int64_t pages = 60, int64_t checkpoints = 6) {
    auto engine = Engine::Start(&program, {.vocab = kVocab,
                                           .context_tokens = 100,
                                           .step_tokens = 8,
                                           .max_running = 2,
                                           .max_waiting = 64,
                                           .check_each_step = true,
                                           .checkpoints = checkpoints,
                                           .state = {.n_pages = pages, .page_tokens = 4}});
    EXPECT_TRUE(engine);
    return std::move(*engine);
  }
  static std::vector<TokenId> Prompt(size_t n, TokenId first) {
    std::vector<TokenId> prompt;
    for (size_t i = 0; i < n; i++)
      prompt.push_back(static_cast<TokenId>((first + static_cast<TokenId>(i) * 5) % kVocab));
    return prompt;
  }
  static std::vector<TokenId> NextTurn(std::vector<TokenId> prompt, const Said& said) {
    prompt.insert(prompt.end(), said.ids.begin(), said.ids.end());
    prompt.insert(prompt.end(), {7, 8, 9});
    return prompt;
  }
  std::string Content() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void SetContent(const std::string& bytes) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  // Of three conversations, one under a salt.
  SavedCache SaveThree(Engine& engine) {
    for (const TokenId first : {1, 2}) said.push_back(Ask(engine, Prompt(21, first), 6));
    said.push_back(Ask(engine, Prompt(18, 3), 5, "salt"));
    const auto saved = engine.SaveCache(path, kKey);
    EXPECT_TRUE(saved) << saved.error().Message();
    return saved.value_or(SavedCache{});
  }

  fs::path folder;
  std::string path;
  std::vector<Said> said;
};
INSTANTIATE_TEST_SUITE_P(Engine, CacheFileTest, ::testing::Bool());

TEST_P(CacheFileTest, LaterTurnsGoOnAfterARestartAsBefore) {
  FakeProgram program(kVocab, GetParam());
  auto before = Start(program);
  const SavedCache saved = SaveThree(*before);
  EXPECT_EQ(saved.tokens, 26 + 26 + 22);
  EXPECT_EQ(saved.pages, 7 + 7 + 6);
  EXPECT_EQ(saved.states > 0, GetParam());
  EXPECT_EQ(saved.bytes, fs::file_size(path));
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write) << "it tells what was said";

  FakeProgram again(kVocab, GetParam());
  auto after = Start(again);
  const auto restored = after->RestoreCache(path, kKey);
  ASSERT_TRUE(restored) << restored.error().Message();
  EXPECT_EQ(restored->pages, saved.pages);
  EXPECT_EQ(restored->tokens, saved.tokens);
  EXPECT_EQ(restored->states, saved.states);
  EXPECT_EQ(restored->pages_left_out, 0);
  EXPECT_EQ(after->Stats().pages_cached, saved.pages);
  EXPECT_EQ(Ask(*after, NextTurn(Prompt(18, 3), said[2]), 5).summary.cached_tokens, 0) << "another salt";
  for (const TokenId first : {1, 2, 3}) {
    const Said& last = said[static_cast<size_t>(first) - 1];
    const std::vector<TokenId> prompt = NextTurn(Prompt(first == 3 ? 18 : 21, first), last);
    const std::string salt = first == 3 ? "salt" : "";
    const Said here = Ask(*before, prompt, 9, salt), there = Ask(*after, prompt, 9, salt);
    EXPECT_EQ(there.ids, FakeProgram::Expected(prompt, 9, kVocab));
    EXPECT_EQ(there.summary.cached_tokens, here.summary.cached_tokens);
    EXPECT_EQ(there.summary.cached_tokens, static_cast<int64_t>(prompt.size()) - 4)
        << "all but the last token and what is new";
  }
}

TEST_P(CacheFileTest, AnEmptyCacheLeavesTheFileAlone) {
  SetContent("what was there");
  FakeProgram program(kVocab, GetParam());
  const auto saved = Start(program)->SaveCache(path, kKey);
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->bytes, 0u);
  EXPECT_EQ(Content(), "what was there");
}

TEST_P(CacheFileTest, EveryFlippedByteAndEveryCutIsRefusedAndNothingIsKept) {
  FakeProgram program(kVocab, GetParam());
  {
    auto engine = Start(program);
    Ask(*engine, Prompt(9, 1), 3);
    ASSERT_TRUE(engine->SaveCache(path, kKey));
  }
  const std::string good = Content();
  auto engine = Start(program);
  const auto refused = [&](const std::string& bytes) {
    SetContent(bytes);
    const auto restored = engine->RestoreCache(path, kKey);
    return !restored && restored.error().where == path && engine->Stats().pages_free == 60;
  };
  for (size_t at = 0; at < good.size(); at++) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    ASSERT_TRUE(refused(bad)) << "byte " << at;
    if (at % 5 == 0) {
      ASSERT_TRUE(refused(good.substr(0, at))) << "cut at " << at;
    }
  }
  EXPECT_TRUE(refused(good + '\0'));
  EXPECT_TRUE(refused(good + good));
  EXPECT_EQ(Ask(*engine, Prompt(9, 2), 4).ids, FakeProgram::Expected(Prompt(9, 2), 4, kVocab)) << "it works on";
  engine = Start(program);
  SetContent(good);
  EXPECT_TRUE(engine->RestoreCache(path, kKey));
}

// One flipped bit in the length of the index: no gigabyte is asked for, or read, to find that out.
TEST_P(CacheFileTest, ADamagedLengthCostsNoMemory) {
  constexpr uint64_t kIndexAt = 16, kBit = uint64_t{1} << 30;
  FakeProgram program(kVocab, GetParam());
  SaveThree(*Start(program));
  std::string bytes = Content();
  uint64_t index_bytes = 0;
  std::memcpy(&index_bytes, &bytes[kIndexAt], sizeof index_bytes);
  index_bytes |= kBit;
  std::memcpy(&bytes[kIndexAt], &index_bytes, sizeof index_bytes);
  SetContent(bytes);
  fs::resize_file(path, bytes.size() + 2 * kBit);  // as long as a large cache; no disk is used
  rusage before = {}, after = {};
  auto engine = Start(program);
  getrusage(RUSAGE_SELF, &before);
  const auto restored = engine->RestoreCache(path, kKey);
  getrusage(RUSAGE_SELF, &after);
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code, Code::kInvalidData);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 256 << 10) << "KiB";
}

TEST_P(CacheFileTest, ARefusalNamesWhatDiffers) {
  FakeProgram program(kVocab, GetParam());
  SaveThree(*Start(program));
  const auto refusal = [&](const CacheKey& key, const EngineOptions& options) {
    auto engine = Engine::Start(&program, options);
    const auto restored = (*engine)->RestoreCache(path, key);
    return restored ? std::string("restored") : restored.error().Message();
  };
  EngineOptions options{.vocab = kVocab, .state = {.n_pages = 30, .page_tokens = 4}};
  EXPECT_EQ(refusal(kKey, options), "restored");
  EXPECT_NE(refusal({{"model", "two"}}, options).find("another model: " + path + ": found one, expected two"),
            std::string::npos)
      << refusal({{"model", "two"}}, options);
  EXPECT_NE(refusal({{"model", "one"}, {"more", "x"}}, options).find("more"), std::string::npos);
  options.state.page_tokens = 8;
  EXPECT_NE(refusal(kKey, options).find("another tokens of a page"), std::string::npos) << refusal(kKey, options);
  options.state = {.n_pages = 30, .page_tokens = 4, .v_type = backend::KvType::kQ8_0};
  EXPECT_NE(refusal(kKey, options).find("V type: " + path + ": found f16, expected q8_0"), std::string::npos);
  options.state = {.n_pages = 30, .page_tokens = 4};
  options.vocab = 3;
  EXPECT_NE(refusal(kKey, options).find("vocabulary"), std::string::npos);
  options.vocab = kVocab;
  OtherBits other(kVocab, GetParam());
  auto engine = Engine::Start(&other, options);
  const auto restored = (*engine)->RestoreCache(path, kKey);
  ASSERT_FALSE(restored);
  EXPECT_NE(restored.error().Message().find("other bits"), std::string::npos);
  EXPECT_EQ((*engine)->Stats().pages_free, 30);
  fs::remove(path);
  EXPECT_EQ((*engine)->RestoreCache(path, kKey).error().code, Code::kNotFound);
  fs::create_directory(path);
  EXPECT_EQ((*engine)->RestoreCache(path, kKey).error().code, Code::kInvalidArgument);
  EXPECT_FALSE((*engine)->SaveCache(path + "/no/such/folder", kKey).has_value() && (*engine)->Stats().pages_cached > 0);
}

TEST_P(CacheFileTest, ASmallerPoolTakesWhatWasUsedLatest) {
  FakeProgram program(kVocab, GetParam());
  SaveThree(*Start(program));
  auto small = Start(program, 14, 2);
  const auto restored = small->RestoreCache(path, kKey);
  ASSERT_TRUE(restored) << restored.error().Message();
  EXPECT_EQ(restored->pages, 14);
  EXPECT_EQ(restored->pages_left_out, 6);
  EXPECT_EQ(restored->states, GetParam() ? 2 : 0);
  const std::vector<TokenId> latest = NextTurn(Prompt(18, 3), said[2]);
  const Said there = Ask(*small, latest, 4, "salt");
  EXPECT_EQ(there.ids, FakeProgram::Expected(latest, 4, kVocab));
  EXPECT_EQ(there.summary.cached_tokens, 22);
  const Said gone = Ask(*small, NextTurn(Prompt(21, 1), said[0]), 4);
  EXPECT_EQ(gone.summary.cached_tokens, 0);
  EXPECT_EQ(gone.summary.cache_miss->reason, cache::MissReason::kEvicted);
}

TEST_P(CacheFileTest, SavedAgainItIsTheSame) {
  FakeProgram program(kVocab, GetParam());
  SaveThree(*Start(program));
  const std::string first = Content();
  auto engine = Start(program);
  ASSERT_TRUE(engine->RestoreCache(path, kKey));
  EXPECT_FALSE(engine->RestoreCache(path, kKey)) << "in use";
  const auto again = engine->SaveCache(path, kKey);
  ASSERT_TRUE(again);
  EXPECT_EQ(Content().size(), first.size());
  auto third = Start(program);
  EXPECT_EQ(third->RestoreCache(path, kKey).value_or(SavedCache{}).tokens, 74);
}

TEST_P(CacheFileTest, WithoutRoomTheOldFileStays) {
  FakeProgram program(kVocab, GetParam());
  auto engine = Start(program);
  SaveThree(*engine);
  const std::string old = Content();
  Ask(*engine, Prompt(30, 9), 20);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  for (const size_t room : {size_t{0}, size_t{100}, old.size(), old.size() + 10}) {
    rlimit small = limit;
    small.rlim_cur = room;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const auto saved = engine->SaveCache(path, kKey);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ASSERT_FALSE(saved);
    EXPECT_EQ(saved.error().code, Code::kResourceExhausted) << saved.error().Message();
    EXPECT_EQ(Content(), old);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "nothing half-written lies about";
  }
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(engine->SaveCache(path, kKey));
  EXPECT_NE(Content(), old);
}

TEST_P(CacheFileTest, SavedBesideRunningRequestsItHasWhatIsWhole) {
  FakeProgram program(kVocab, GetParam());
  program.step_ms = 1;
  auto engine = Start(program);
  const std::vector<TokenId> prompt = Prompt(21, 1);
  const auto group = engine->SubmitGroup(
      {.prompt = Prompt(9, 5), .max_tokens = 60, .sampling = {.temperature = 0}, .use_cache = false}, 2);
  const auto ticket = engine->Submit({.prompt = prompt, .max_tokens = 60, .sampling = {.temperature = 0}});
  TokenEvent event;
  // The prompt's pages are kept when the step after its last is planned, whose token is the second.
  for (int i = 0; i < 2; i++) ASSERT_EQ(ticket->outbox->Next(120s, event), Outbox::Got::kToken);
  ASSERT_TRUE(engine->SaveCache(path, kKey));
  auto after = Start(program);
  const auto restored = after->RestoreCache(path, kKey);
  ASSERT_TRUE(restored) << restored.error().Message();
  EXPECT_GE(restored->tokens, 20);
  EXPECT_EQ(Ask(*after, prompt, 5).ids, FakeProgram::Expected(prompt, 5, kVocab));
  EXPECT_EQ(Ask(*after, Prompt(9, 5), 5).summary.cached_tokens, 0) << "a group without the cache leaves nothing";
}

}  // namespace
}  // namespace ridge::engine
