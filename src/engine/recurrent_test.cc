// Recurrent models: only a checkpoint lets a request go on from cached pages.
#include <gtest/gtest.h>

#include <vector>

#include "engine/engine.h"
#include "engine/fake_program.h"
#include "engine/test_requests.h"

namespace ridge::engine {
namespace {

using namespace test;

std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(RecurrentEngine, ATurnGoesOnWhereTheLastEnded) {
  FakeProgram program(kVocab, /*recurrent=*/true);
  auto engine = Engine::Start(&program, Options(2, 64));
  std::vector<TokenId> chat;
  int64_t before = 0;
  for (TokenId turn = 0; turn < 4; turn++) {
    chat = Joined(chat, Prompt(9, turn * 7));
    const Outcome outcome = ReadAll(*(*engine)->Submit(NewRequest(chat, 10))->outbox);
    EXPECT_EQ(outcome.ids, FakeProgram::Expected(chat, 10, kVocab));
    EXPECT_EQ(outcome.summary.cached_tokens, before) << "all but the last token of the answer";
    EXPECT_EQ(outcome.summary.cache_miss->at_token, before);
    chat = Joined(chat, outcome.ids);
    before = static_cast<int64_t>(chat.size()) - 1;
  }
  EXPECT_EQ(program.computed_tokens, chat.size() - 1) << "each token once";
}

// As many conversations as there are checkpoints, but one for their common beginning, come by turns.
TEST(RecurrentEngine, EachOfManyConversationsKeepsItsEnd) {
  FakeProgram program(kVocab, /*recurrent=*/true);
  EngineOptions options = Options(1, 256);
  options.checkpoints = 9;
  auto engine = Engine::Start(&program, options);
  std::vector<std::vector<TokenId>> chats(8, Prompt(40));
  std::vector<int64_t> before(8, 0);
  for (TokenId turn = 0; turn < 4; turn++) {
    for (size_t i = 0; i < chats.size(); i++) {
      chats[i] = Joined(chats[i], Prompt(9, static_cast<TokenId>(7 * turn + 30 * static_cast<TokenId>(i) + 50)));
      const Outcome outcome = ReadAll(*(*engine)->Submit(NewRequest(chats[i], 10))->outbox);
      EXPECT_EQ(outcome.ids, FakeProgram::Expected(chats[i], 10, kVocab));
      if (turn > 0) {
        EXPECT_EQ(outcome.summary.cached_tokens, before[i]) << "chat " << i << ", turn " << turn;
      }
      chats[i] = Joined(chats[i], outcome.ids);
      before[i] = static_cast<int64_t>(chats[i].size()) - 1;
    }
  }
}

TEST(RecurrentEngine, ACommonPrefixIsReusedOnceSomebodyHasLeftItThere) {
  FakeProgram program(kVocab, /*recurrent=*/true);
  auto engine = Engine::Start(&program, Options(2, 128));
  const std::vector<TokenId> system = Prompt(42);
  const auto ask = [&](TokenId question) {
    const std::vector<TokenId> prompt = Joined(system, Prompt(31, question));
    const Outcome outcome = ReadAll(*(*engine)->Submit(NewRequest(prompt, 5))->outbox);
    EXPECT_EQ(outcome.ids, FakeProgram::Expected(prompt, 5, kVocab));
    return outcome.summary;
  };
  EXPECT_EQ(ask(50).cached_tokens, 0);
  const Summary second = ask(60);
  EXPECT_EQ(second.cached_tokens, 0) << "the first had no reason to stop there";
  EXPECT_EQ(second.cache_miss->reason, cache::MissReason::kNoState);
  const Summary third = ask(70);
  EXPECT_EQ(third.cached_tokens, 40) << "the last page boundary of the common part";
  EXPECT_EQ(ask(80).cached_tokens, 40);
  EXPECT_EQ(ask(70).cached_tokens, 64) << "a repeated prompt: near its end";
}

TEST(RecurrentEngine, RequestsAtOnceComputeTheirCommonPrefixOnce) {
  for (const bool group : {false, true}) {
    FakeProgram program(kVocab, /*recurrent=*/true);
    EngineOptions options = Options(6, 256);
    options.prefix_cache = !group;  // a group shares without it too
    auto engine = Engine::Start(&program, options);
    const std::vector<TokenId> system = Prompt(80);
    std::vector<Ticket> tickets;
    std::vector<std::vector<TokenId>> prompts;
    if (group) {
      tickets = *(*engine)->SubmitGroup(NewRequest(system, 6), 6);
      prompts.assign(6, system);
    } else {
      for (TokenId i = 0; i < 6; i++) {
        prompts.push_back(Joined(system, Prompt(10, i)));
        tickets.push_back(*(*engine)->Submit(NewRequest(prompts.back(), 6)));
      }
    }
    for (size_t i = 0; i < 6; i++)
      EXPECT_EQ(ReadAll(*tickets[i].outbox).ids, FakeProgram::Expected(prompts[i], 6, kVocab)) << i;
    EXPECT_LE(program.computed_tokens, 80u + 6 * 20 + (group ? 0 : 80))
        << "the second may have come too late for the first";
  }
}

TEST(RecurrentEngine, WithoutCheckpointsAllIsComputedAndRight) {
  FakeProgram program(kVocab, /*recurrent=*/true);
  EngineOptions options = Options(3, 24);
  options.checkpoints = 0;
  auto engine = Engine::Start(&program, options);
  for (int i = 0; i < 2; i++) {
    const auto tickets = *(*engine)->SubmitGroup(NewRequest(Prompt(25), 8), 3);
    for (const Ticket& ticket : tickets) {
      const Outcome outcome = ReadAll(*ticket.outbox);
      EXPECT_EQ(outcome.ids, FakeProgram::Expected(Prompt(25), 8, kVocab));
      EXPECT_EQ(outcome.summary.cached_tokens, 0);
    }
  }
}

TEST(RecurrentEngine, CancelsAndPreemptionsLeaveOthersAlone) {
  FakeProgram program(kVocab, /*recurrent=*/true);
  EngineOptions options = Options(5, 20);
  options.checkpoints = 3;
  auto engine = Engine::Start(&program, options);
  std::vector<Ticket> tickets;
  std::vector<std::vector<TokenId>> prompts;
  for (TokenId i = 0; i < 60; i++) {
    prompts.push_back(Joined(Prompt(static_cast<size_t>(12 + i % 3)), Prompt(static_cast<size_t>(1 + i % 9), i % 4)));
    tickets.push_back(*(*engine)->Submit(NewRequest(prompts.back(), 4 + i % 20)));
    if (i % 7 == 3) (*engine)->Cancel(tickets[static_cast<size_t>(i - 2)].id);
  }
  for (TokenId i = 0; i < 60; i++) {
    const Outcome outcome = ReadAll(*tickets[static_cast<size_t>(i)].outbox);
    std::vector<TokenId> want =
        FakeProgram::Expected(prompts[static_cast<size_t>(i)], static_cast<size_t>(4 + i % 20), kVocab);
    if (outcome.summary.reason == FinishReason::kCancelled) want.resize(outcome.ids.size());
    EXPECT_EQ(outcome.ids, want) << i;
  }
}

}  // namespace
}  // namespace ridge::engine
