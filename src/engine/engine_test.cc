#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "engine/fake_program.h"
#include "engine/test_requests.h"

namespace ridge::engine {
namespace {

using namespace test;
using namespace std::chrono_literals;

// Its likeliest token is the one 7 tokens back, so that answers repeat. Logits still follow from what the pages hold.
class CopyingProgram : public FakeProgram {
 public:
  using FakeProgram::FakeProgram;
  uint64_t Choose(uint64_t hash, std::span<const TokenId> tokens) const override {
    return tokens.size() < 7 ? hash : static_cast<uint64_t>(tokens[tokens.size() - 7]);
  }
};

TEST(Engine, AnswersAreThoseOfTheModelForAnyChunkAndPage) {
  const std::vector<TokenId> prompt = Prompt(21);
  const std::vector<TokenId> expected = FakeProgram::Expected(prompt, 12, kVocab);
  for (const int64_t chunk : {1, 3, 8, 64}) {
    for (const int64_t page : {1, 4, 16}) {
      FakeProgram program(kVocab);
      EngineOptions options = Options(1, 64 / page, page);
      options.step_tokens = chunk;
      auto engine = Engine::Start(&program, options);
      ASSERT_TRUE(engine);
      const auto ticket = (*engine)->Submit(NewRequest(prompt, 12));
      ASSERT_TRUE(ticket);
      const Outcome outcome = ReadAll(*ticket->outbox);
      EXPECT_EQ(outcome.ids, expected) << "chunk " << chunk << ", page " << page;
      EXPECT_EQ(outcome.summary.reason, FinishReason::kLength);
      EXPECT_EQ(outcome.summary.prompt_chunks, (21 + chunk - 1) / chunk);
      EXPECT_LE(program.largest_step, static_cast<size_t>(chunk));
      EXPECT_EQ(program.steps, outcome.summary.prompt_chunks + 11)
          << "the first token comes from the prompt's last step";
    }
  }
}

TEST(Engine, TheFirstTokensStepIsThePromptsAndTimesAreThere) {
  FakeProgram program(kVocab);
  program.step_ms = 2;
  auto engine = Engine::Start(&program, Options());
  const auto ticket = (*engine)->Submit(NewRequest(Prompt(20), 4));
  const Outcome outcome = ReadAll(*ticket->outbox);
  ASSERT_EQ(outcome.events.size(), 4u);
  EXPECT_EQ(outcome.events[0].decode_ms, 0);
  for (size_t i = 1; i < 4; i++) EXPECT_GE(outcome.events[i].decode_ms, 2);
  EXPECT_GE(outcome.summary.prompt_ms, 3 * 2);
  EXPECT_GT(outcome.events[0].sample_ms, 0);
}

TEST(Engine, StopTokenIsTheLastOneAndMarked) {
  const std::vector<TokenId> prompt = Prompt(5), answer = FakeProgram::Expected(prompt, 30, kVocab);
  size_t at = 3;  // a token of the answer that has not come before
  while (std::find(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(at), answer[at]) !=
         answer.begin() + static_cast<std::ptrdiff_t>(at))
    at++;
  FakeProgram program(kVocab);
  auto engine = Engine::Start(&program, Options());
  Request request = NewRequest(prompt, 30);
  request.stop_tokens = {answer[at]};
  const Outcome outcome = ReadAll(*(*engine)->Submit(request)->outbox);
  EXPECT_EQ(outcome.ids, std::vector<TokenId>(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(at) + 1));
  EXPECT_EQ(outcome.summary.reason, FinishReason::kStop);
  EXPECT_TRUE(outcome.events.back().stop);
  EXPECT_FALSE(outcome.events.front().stop);
}

TEST(Engine, AFullContextEndsWithLength) {
  FakeProgram program(kVocab);
  auto engine = Engine::Start(&program, Options(1, 4, 4));
  const Outcome outcome = ReadAll(*(*engine)->Submit(NewRequest(Prompt(10), 2000))->outbox);
  EXPECT_EQ(outcome.ids, FakeProgram::Expected(Prompt(10), 6, kVocab));
  EXPECT_EQ(outcome.summary.reason, FinishReason::kLength);
}

TEST(Engine, NoTokensAskedForComputesThePromptOnly) {
  FakeProgram program(kVocab);
  auto engine = Engine::Start(&program, Options());
  const Outcome outcome = ReadAll(*(*engine)->Submit(NewRequest(Prompt(10), 0))->outbox);
  EXPECT_TRUE(outcome.ids.empty());
  EXPECT_EQ(outcome.summary.reason, FinishReason::kLength);
  EXPECT_EQ(program.steps, 2);
}

class ManyAtOnce : public ::testing::TestWithParam<bool> {};  // recurrent
INSTANTIATE_TEST_SUITE_P(Engine, ManyAtOnce, ::testing::Bool());

TEST_P(ManyAtOnce, WithFewPagesAnswerAsEachAlone) {
  FakeProgram program(kVocab, GetParam());
  EngineOptions options = Options(4, 12, 4);  // four sequences of up to 30 tokens do not fit 48
  auto engine = Engine::Start(&program, options);
  std::vector<Ticket> tickets;
  for (TokenId i = 0; i < 20; i++) {
    auto ticket = (*engine)->Submit(NewRequest(Prompt(static_cast<size_t>(1 + i % 7), i), 10 + i % 14));
    ASSERT_TRUE(ticket);
    tickets.push_back(*ticket);
  }
  for (TokenId i = 0; i < 20; i++) {
    const Outcome outcome = ReadAll(*tickets[static_cast<size_t>(i)].outbox);
    EXPECT_EQ(outcome.ids, FakeProgram::Expected(Prompt(static_cast<size_t>(1 + i % 7), i),
                                                 static_cast<size_t>(10 + i % 14), kVocab))
        << i;
  }
}

TEST(Engine, CancelAtEveryStepKeepsWhatWasSaidAndFreesThePages) {
  const std::vector<TokenId> prompt = Prompt(20), answer = FakeProgram::Expected(prompt, 40, kVocab);
  FakeProgram program(kVocab);
  auto engine = Engine::Start(&program, Options(1, 16, 4));
  for (size_t after = 0; after < 10; after++) {
    program.LetRun(program.steps + 3 + static_cast<int>(after));  // the prompt's three, and not the whole answer
    const auto ticket = (*engine)->Submit(NewRequest(prompt, 40));
    ASSERT_TRUE(ticket);
    TokenEvent event;
    std::vector<TokenId> ids;
    while (ids.size() < after && ticket->outbox->Next(kPatience, event) == Outbox::Got::kToken)
      ids.push_back(event.token);
    (*engine)->Cancel(ticket->id);
    program.LetAllRun();
    const Outcome rest = ReadAll(*ticket->outbox);
    ids.insert(ids.end(), rest.ids.begin(), rest.ids.end());
    EXPECT_EQ(rest.summary.reason, FinishReason::kCancelled);
    ASSERT_LT(ids.size(), answer.size());
    EXPECT_EQ(ids, std::vector<TokenId>(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(ids.size())));
  }
  // The whole pool is free again: a request that needs nearly all of it runs.
  EXPECT_EQ(ReadAll(*(*engine)->Submit(NewRequest(Prompt(60), 4))->outbox).ids,
            FakeProgram::Expected(Prompt(60), 4, kVocab));
  (*engine)->Cancel(12345);  // unknown: nothing happens
}

TEST(Engine, AFailedStepEndsItsRequestWithTheErrorAndNoOther) {
  FakeProgram program(kVocab);
  program.fail_at_step = 3;
  auto engine = Engine::Start(&program, Options());
  const auto bad = (*engine)->Submit(NewRequest(Prompt(5), 10));
  const auto good = (*engine)->Submit(NewRequest(Prompt(6), 10));
  const Outcome failed = ReadAll(*bad->outbox);
  EXPECT_EQ(failed.summary.reason, FinishReason::kFailed);
  ASSERT_TRUE(failed.summary.error);
  EXPECT_EQ(failed.summary.error->what, "the fake program fails here");
  EXPECT_EQ(ReadAll(*good->outbox).ids, FakeProgram::Expected(Prompt(6), 10, kVocab));
}

TEST(Engine, RefusesWhatCannotWorkAndSaysWhy) {
  FakeProgram program(kVocab);
  EngineOptions options = Options(1, 4, 4);
  auto engine = Engine::Start(&program, options);
  const auto code = [&](Request request) {
    const auto ticket = (*engine)->Submit(std::move(request));
    return ticket ? std::string("accepted") : std::string(Name(ticket.error().code));
  };
  EXPECT_EQ(code(NewRequest({}, 1)), "invalid_argument");
  EXPECT_EQ(code(NewRequest({1, kVocab}, 1)), "invalid_argument");
  EXPECT_EQ(code(NewRequest({-1}, 1)), "invalid_argument");
  EXPECT_EQ(code(NewRequest(Prompt(16), 1)), "out_of_range");
  Request sampling = NewRequest({1}, 1);
  sampling.sampling.top_p = -3;
  EXPECT_EQ(code(sampling), "invalid_argument");
  EXPECT_EQ(code(NewRequest(Prompt(15), 1)), "accepted");
}

TEST(Engine, AFullQueueRefusesAndEmptiesAgain) {
  FakeProgram program(kVocab);
  program.LetRun(0);
  EngineOptions options = Options();
  options.max_waiting = 2;
  auto engine = Engine::Start(&program, options);
  std::vector<Ticket> tickets;
  Code refused = Code::kInternal;
  for (int i = 0; i < 8; i++) {
    auto ticket = (*engine)->Submit(NewRequest(Prompt(4), 3));
    if (ticket)
      tickets.push_back(*ticket);
    else
      refused = ticket.error().code;
  }
  EXPECT_EQ(refused, Code::kResourceExhausted);
  EXPECT_LE(tickets.size(), 4u);
  program.LetAllRun();
  for (const Ticket& ticket : tickets) EXPECT_EQ(ReadAll(*ticket.outbox).summary.reason, FinishReason::kLength);
  EXPECT_TRUE((*engine)->Submit(NewRequest(Prompt(4), 3)));
}

// Each a user of its own, some of them hurried: one too many is refused, nearly all vanish, and the few that stay get their answers.
TEST(Engine, TenThousandMayWaitAndVanish) {
  FakeProgram program(kVocab);
  program.LetRun(0);
  EngineOptions options = Options(2, 64);
  options.max_waiting = 10'000;
  options.check_each_step = true;
  auto engine = std::move(*Engine::Start(&program, options));
  const Ticket running = *engine->Submit(NewRequest(Prompt(4), 5));
  ASSERT_TRUE(program.Begun(1));
  std::vector<Ticket> tickets;
  for (TokenId i = 0; i < 10'000; i++) {
    Request request = NewRequest(Prompt(3, i % 50), 2);
    request.tenant = std::to_string(i);
    request.priority = i % 3;
    if (i % 5 == 0) request.deadline = Clock::now() + 1h;
    const auto ticket = engine->Submit(request);
    ASSERT_TRUE(ticket) << i;
    tickets.push_back(*ticket);
  }
  const auto refused = engine->Submit(NewRequest(Prompt(3), 2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(refused.error().found, "10000 waiting, 1 more");
  EXPECT_EQ(engine->Stats().waiting, 10'000);
  for (size_t i = 0; i < tickets.size(); i++) {
    if (i % 1000 != 7) engine->Cancel(tickets[i].id);
  }
  program.LetAllRun();
  EXPECT_EQ(ReadAll(*running.outbox).ids, FakeProgram::Expected(Prompt(4), 5, kVocab));
  for (size_t i = 0; i < tickets.size(); i++) {
    const Outcome outcome = ReadAll(*tickets[i].outbox);
    if (i % 1000 == 7) {
      EXPECT_EQ(outcome.ids, FakeProgram::Expected(Prompt(3, static_cast<TokenId>(i % 50)), 2, kVocab)) << i;
    } else {
      ASSERT_EQ(outcome.summary.reason, FinishReason::kCancelled) << i;
    }
  }
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.running + stats.waiting + stats.pages_held, 0);
  EXPECT_EQ(stats.submitted, stats.finished);
  EXPECT_TRUE(engine->Submit(NewRequest(Prompt(3), 2)));
}

// One place and six clients that ask again as soon as they are answered: first come, first served, so nobody waits for more than the five before.
TEST(Engine, ClientsInAClosedLoopAreServedInTheOrderInWhichTheyCame) {
  FakeProgram program(kVocab);
  EngineOptions options = Options(1, 64);
  options.check_each_step = true;
  auto engine = std::move(*Engine::Start(&program, options));
  constexpr size_t kClients = 6, kAsks = 84;
  std::vector<std::vector<std::pair<RequestId, Clock::time_point>>> ends(kClients);
  std::vector<std::thread> clients;
  for (size_t c = 0; c < kClients; c++) {
    clients.emplace_back([&, c] {
      for (size_t i = 0; i < kAsks; i++) {
        const auto prompt = Prompt(1 + i % 5, static_cast<TokenId>(c));
        const auto ticket = engine->Submit(NewRequest(prompt, static_cast<int64_t>(1 + i % 3)));
        ASSERT_TRUE(ticket);
        const Outcome outcome = ReadAll(*ticket->outbox);
        EXPECT_EQ(outcome.ids, FakeProgram::Expected(prompt, 1 + i % 3, kVocab));
        ends[c].emplace_back(ticket->id, outcome.summary.at);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  std::map<RequestId, Clock::time_point> all;
  for (const auto& some : ends) all.insert(some.begin(), some.end());
  ASSERT_EQ(all.size(), kClients * kAsks);
  for (auto at = all.begin(), next = std::next(at); next != all.end(); at = next++)
    EXPECT_LE(at->second, next->second) << "request " << next->first << " overtook one that came before";
}

// In a step that does not end, and where somebody holds up the engine's thread outside of one.
TEST(Engine, ThatItMakesNoProgressIsTold) {
  FakeProgram program(kVocab);
  program.LetRun(0);
  auto engine = std::move(*Engine::Start(&program, Options()));
  EXPECT_FALSE(engine->Stats().no_progress_since);
  const auto before = Clock::now();
  std::atomic<bool> held = false, go_on = false;
  Request request = NewRequest(Prompt(4), 3);
  request.notify = [&] {
    held = true;
    held.notify_all();
    go_on.wait(false);
  };
  const Ticket ticket = *engine->Submit(request);
  ASSERT_TRUE(program.Begun(1));
  EngineStats stats = engine->Stats();
  EXPECT_TRUE(stats.stepping);
  ASSERT_TRUE(stats.no_progress_since);
  EXPECT_GE(*stats.no_progress_since, before);
  EXPECT_EQ(engine->Stats().no_progress_since, stats.no_progress_since) << "it does not move by being looked at";
  EXPECT_TRUE(engine->Submit(NewRequest(Prompt(5), 2)));
  EXPECT_EQ(engine->Stats().no_progress_since, stats.no_progress_since) << "nor by others that come";
  program.LetAllRun();
  held.wait(false);
  stats = engine->Stats();
  ASSERT_TRUE(stats.no_progress_since);
  const auto since = *stats.no_progress_since;
  EXPECT_EQ(engine->Stats().no_progress_since, since) << "held up behind a step";
  go_on = true;
  go_on.notify_all();
  EXPECT_EQ(ReadAll(*ticket.outbox).summary.reason, FinishReason::kLength);
  while (engine->Stats().running + engine->Stats().waiting > 0) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(engine->Stats().no_progress_since);
}

TEST(Engine, EndingItEndsAllRequestsAsCancelled) {
  FakeProgram program(kVocab);
  program.step_ms = 10;  // neither ends by itself within a minute
  auto engine = Engine::Start(&program, Options(1, 2000));
  const auto running = (*engine)->Submit(NewRequest(Prompt(4), 7000)),
             waiting = (*engine)->Submit(NewRequest(Prompt(4), 7000));
  TokenEvent event;
  ASSERT_EQ(running->outbox->Next(kPatience, event), Outbox::Got::kToken);
  engine->reset();
  EXPECT_EQ(ReadAll(*running->outbox).summary.reason, FinishReason::kCancelled);
  EXPECT_EQ(ReadAll(*waiting->outbox).summary.reason, FinishReason::kCancelled);
}

TEST(Engine, LogprobsAreThoseOfTheModelWhateverTheSamplerDoes) {
  FakeProgram program(kVocab);  // one logit is 1, the others 0
  auto engine = Engine::Start(&program, Options());
  const double best = 1 - std::log(std::exp(1.0) + kVocab - 1), other = best - 1;
  Request request{
      .prompt = Prompt(4), .max_tokens = 20, .sampling = {.temperature = 5.0, .top_k = 0, .top_p = 1.0, .min_p = 0.0}};
  for (const int32_t n : {0, 3}) {
    request.logprobs = n;
    const Outcome outcome = ReadAll(*(*engine)->Submit(request)->outbox);
    ASSERT_EQ(outcome.events.size(), 20u);
    std::vector<TokenId> tokens = request.prompt;
    for (const TokenEvent& event : outcome.events) {
      const TokenId likeliest = FakeProgram::Expected(tokens, 1, kVocab)[0];
      tokens.push_back(event.token);
      ASSERT_TRUE(event.logprob);
      EXPECT_NEAR(*event.logprob, event.token == likeliest ? best : other, 1e-6);
      ASSERT_EQ(event.top.size(), static_cast<size_t>(n));
      if (n == 0) continue;
      EXPECT_EQ(event.top[0].first, likeliest);
      EXPECT_NEAR(event.top[0].second, best, 1e-6);
      EXPECT_NEAR(event.top[2].second, other, 1e-6);
    }
  }
  request.logprobs = -1;
  EXPECT_FALSE(ReadAll(*(*engine)->Submit(request)->outbox).events[0].logprob);
  for (const int32_t n : {-2, kMaxLogprobs + 1}) {
    request.logprobs = n;
    EXPECT_EQ((*engine)->Submit(request).error().code, Code::kInvalidArgument);
  }
}

TEST(Engine, AGroupIsAcceptedWholeOrNotAtAllAndItsAnswersDrawApart) {
  FakeProgram program(kVocab);
  EngineOptions options = Options(4, 64);
  options.max_waiting = 4;
  auto engine = Engine::Start(&program, options);
  Request request{
      .prompt = Prompt(4), .max_tokens = 20, .sampling = {.temperature = 5.0, .top_k = 0, .top_p = 1.0, .min_p = 0.0}};
  for (const int64_t n : {int64_t{-1}, int64_t{0}, int64_t{5}, int64_t{1} << 60})
    EXPECT_EQ((*engine)->SubmitGroup(request, n).error().code, Code::kInvalidArgument);
  const auto tickets = (*engine)->SubmitGroup(request, 3);
  ASSERT_TRUE(tickets);
  std::vector<std::vector<TokenId>> answers;
  for (const Ticket& ticket : *tickets) answers.push_back(ReadAll(*ticket.outbox).ids);
  EXPECT_NE(answers[0], answers[1]);
  EXPECT_NE(answers[1], answers[2]);
  request.draw_stream = 2;
  EXPECT_EQ(ReadAll(*(*engine)->Submit(request)->outbox).ids, answers[2]);
}

void ExpectLaws(const EngineStats& s) {
  EXPECT_EQ(s.pages_free + s.pages_held + s.pages_cached, s.pages_capacity);
  EXPECT_EQ(s.prompt_tokens_submitted,
            s.prompt_tokens_computed + s.prompt_tokens_cached + s.prompt_tokens_dropped + s.prompt_tokens_pending);
  EXPECT_GE(s.waiting, 0);
  EXPECT_EQ(s.submitted, s.finished + static_cast<uint64_t>(s.running + s.waiting));
  EXPECT_LE(s.drafts_accepted, s.drafts_proposed);
  EXPECT_EQ(s.ttft.count + s.gap.count, s.generated_tokens);
  EXPECT_LE(s.ttft.count, s.queue.count);
  EXPECT_LE(s.queue.count, s.submitted);
  EXPECT_LE(s.end_to_end.count, s.finished);
}

// Two of the laws follow from how Stats is made; check_each_step holds them against what is alive (Engine::CheckCounters).
TEST(Engine, CountersObeyTheirLawsAtEveryMoment) {
  FakeProgram program(kVocab);
  EngineOptions options = Options(4, 12, 4);
  options.check_each_step = true;
  auto engine = Engine::Start(&program, options);
  std::vector<Ticket> tickets;
  uint64_t prompt_tokens = 0, generated = 0;
  for (TokenId i = 0; i < 40; i++) {
    tickets.push_back(*(*engine)->Submit(NewRequest(Prompt(static_cast<size_t>(1 + i % 17), i), 10)));
    prompt_tokens += static_cast<uint64_t>(1 + i % 17);
    if (i % 5 == 0) (*engine)->Cancel(tickets.back().id);
    ExpectLaws((*engine)->Stats());
  }
  for (const Ticket& ticket : tickets) {
    generated += ReadAll(*ticket.outbox).ids.size();
    ExpectLaws((*engine)->Stats());
  }
  const EngineStats end = (*engine)->Stats();
  EXPECT_EQ(end.submitted, 40u);
  EXPECT_EQ(end.finished, 40u);
  EXPECT_EQ(end.running + end.waiting + end.pages_held, 0);
  EXPECT_EQ(end.prompt_tokens_submitted, prompt_tokens);
  EXPECT_EQ(end.prompt_tokens_pending, 0u);
  EXPECT_EQ(end.generated_tokens, generated);
  EXPECT_EQ(end.ttft.count + end.gap.count, generated);
  EXPECT_LE(end.end_to_end.count, 40u);
  EXPECT_GE(end.end_to_end.count, 32u);
  uint64_t in_buckets = 0;
  for (const uint64_t n : end.gap.buckets) in_buckets += n;
  EXPECT_EQ(in_buckets, end.gap.count);
}

TEST(EngineCache, ALaterTurnComputesOnlyWhatIsNewToTheToken) {
  for (const int64_t page : {1, 4, 16}) {
    FakeProgram program(kVocab);
    auto engine = Engine::Start(&program, Options(2, 256 / page, page));
    std::vector<TokenId> conversation = Prompt(37);
    int64_t before = 0;
    for (int turn = 0; turn < 4; turn++) {
      const size_t computed = program.computed_tokens;
      const Outcome outcome = Ask(**engine, NewRequest(conversation, 9));
      EXPECT_EQ(outcome.ids, FakeProgram::Expected(conversation, 9, kVocab)) << "turn " << turn << ", page " << page;
      EXPECT_EQ(outcome.summary.cached_tokens, before);
      const int64_t prompt = static_cast<int64_t>(conversation.size());
      EXPECT_EQ(program.computed_tokens - computed, static_cast<size_t>(prompt - before + 8));
      ASSERT_TRUE(outcome.summary.cache_miss);
      EXPECT_EQ(outcome.summary.cache_miss->at_token, before);
      EXPECT_EQ(outcome.summary.cache_miss->reason, cache::MissReason::kNew);
      before = prompt + 8;  // all but the last token of the answer
      conversation.insert(conversation.end(), outcome.ids.begin(), outcome.ids.end());
      for (TokenId i = 0; i < 11; i++) conversation.push_back(i + turn);
    }
    Request other = NewRequest(conversation, 5);
    other.cache_salt = "other";
    EXPECT_EQ(Ask(**engine, other).summary.cached_tokens, 0);
    Request tenant = NewRequest(conversation, 5);
    tenant.use_cache = false;
    const Outcome without = Ask(**engine, tenant);
    EXPECT_EQ(without.summary.cached_tokens, 0);
    EXPECT_FALSE(without.summary.cache_miss);
    EXPECT_EQ(without.ids, FakeProgram::Expected(conversation, 5, kVocab));
    const EngineStats stats = (*engine)->Stats();
    EXPECT_EQ(stats.pages_held, 0);
    EXPECT_GT(stats.pages_cached, 0);
  }
}

TEST(EngineCache, RequestsThatComeTogetherComputeTheirCommonPrefixOnce) {
  FakeProgram program(kVocab);
  program.LetRun(0);
  auto engine = Engine::Start(&program, Options(8, 64, 4));
  std::vector<Ticket> tickets;
  std::vector<std::vector<TokenId>> prompts;
  for (TokenId i = 0; i < 8; i++) {
    prompts.push_back(Prompt(32));
    for (TokenId j = 0; j < 5; j++) prompts.back().push_back(i * 7 + j);
    tickets.push_back(*(*engine)->Submit(NewRequest(prompts.back(), 3)));
  }
  program.LetAllRun();
  int64_t cached = 0;
  for (size_t i = 0; i < 8; i++) {
    const Outcome outcome = ReadAll(*tickets[i].outbox);
    EXPECT_EQ(outcome.ids, FakeProgram::Expected(prompts[i], 3, kVocab)) << i;
    cached += outcome.summary.cached_tokens;
  }
  EXPECT_EQ(cached, 7 * 32);
  EXPECT_EQ(program.computed_tokens, 32u + 8 * 5 + 8 * 2);
}

TEST(EngineCache, AGroupComputesItsPromptOnceWithTheCacheAndWithout) {
  for (const bool cache : {true, false}) {
    for (const size_t length : {1, 3, 8, 21}) {
      FakeProgram program(kVocab);
      EngineOptions options = Options(4, 64, 4);
      options.prefix_cache = cache;
      auto engine = Engine::Start(&program, options);
      Request request{.prompt = Prompt(length),
                      .max_tokens = 6,
                      .sampling = {.temperature = 5.0, .top_k = 0, .top_p = 1.0, .min_p = 0.0}};
      const auto tickets = (*engine)->SubmitGroup(request, 5);
      ASSERT_TRUE(tickets);
      std::vector<std::vector<TokenId>> answers;
      for (const Ticket& ticket : *tickets) answers.push_back(ReadAll(*ticket.outbox).ids);
      // Each answer computes the prompt's last token and its own tokens but the last.
      EXPECT_EQ(program.computed_tokens, length - 1 + 5 * (1 + 5)) << length << (cache ? " cached" : "");
      EXPECT_EQ((*engine)->Stats().pages_cached == 0, !cache);
      EXPECT_EQ((*engine)->Stats().pages_held, 0);
      for (uint64_t i = 0; i < 5; i++) {
        FakeProgram alone(kVocab);
        auto other = Engine::Start(&alone, options);
        request.draw_stream = i;
        EXPECT_EQ(Ask(**other, request).ids, answers[i]);
      }
      request.draw_stream = 0;
    }
  }
}

TEST(EngineCache, PreemptedRequestsGoOnFromWhatIsStillCached) {
  FakeProgram program(kVocab);
  program.LetRun(0);
  auto engine = Engine::Start(&program, Options(4, 24, 4));
  std::vector<Ticket> tickets;
  for (TokenId i = 0; i < 4; i++) tickets.push_back(*(*engine)->Submit(NewRequest(Prompt(10, i), 40)));
  program.LetAllRun();
  int64_t preemptions = 0;
  for (TokenId i = 0; i < 4; i++) {
    const Outcome outcome = ReadAll(*tickets[static_cast<size_t>(i)].outbox);
    EXPECT_EQ(outcome.ids, FakeProgram::Expected(Prompt(10, i), 40, kVocab)) << i;
    preemptions += outcome.summary.preemptions;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_EQ(static_cast<uint64_t>(preemptions), (*engine)->Stats().preemptions);
  ExpectLaws((*engine)->Stats());
}

// The prompt's tokens but the first, with the log-probabilities that the fake model gives them; then the answer.
void ExpectScores(const Outcome& outcome, const std::vector<TokenId>& prompt, size_t answer) {
  ASSERT_EQ(outcome.events.size(), prompt.size() - 1 + answer);
  const double sum = std::log(static_cast<double>(kVocab - 1) + std::exp(1.0));
  for (size_t i = 1; i < prompt.size(); i++) {
    const TokenEvent& event = outcome.events[i - 1];
    const TokenId likely =
        FakeProgram::Expected({prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(i)}, 1, kVocab)[0];
    ASSERT_TRUE(event.prompt && event.logprob.has_value());
    EXPECT_EQ(event.token, prompt[i]);
    EXPECT_FLOAT_EQ(*event.logprob, static_cast<float>((prompt[i] == likely ? 1.0 : 0.0) - sum));
    ASSERT_EQ(event.top.size(), 2u);
    EXPECT_EQ(event.top[0].first, likely);
    EXPECT_FLOAT_EQ(event.top[0].second, static_cast<float>(1.0 - sum));
  }
  const std::vector<TokenId> expected = FakeProgram::Expected(prompt, answer, kVocab);
  for (size_t i = 0; i < answer; i++) {
    EXPECT_FALSE(outcome.events[prompt.size() - 1 + i].prompt);
    EXPECT_EQ(outcome.ids[prompt.size() - 1 + i], expected[i]);
  }
}

class PromptScores : public ::testing::TestWithParam<bool> {};  // recurrent
INSTANTIATE_TEST_SUITE_P(Engine, PromptScores, ::testing::Bool());

// A row of logits per token in all, and never more at once than the program was compiled for: an 8k prompt needs no more memory than a short one.
TEST_P(PromptScores, ComeOnceInBoundedRowsWhateverTheChunks) {
  for (const size_t length : {1, 2, 21, 60}) {
    for (const int64_t chunk : {1, 3, 8, 64}) {
      for (const int64_t rows : {0, 4, 9}) {
        for (const int64_t answer : {0, 5}) {
          FakeProgram program(kVocab, GetParam());
          EngineOptions options = Options(1, 24, 4);
          options.step_tokens = chunk;
          options.max_logit_rows = rows;
          options.check_each_step = true;
          auto engine = Engine::Start(&program, options);
          Request request = NewRequest(Prompt(length), answer);
          request.prompt_logprobs = 2;
          const Outcome outcome = Ask(**engine, request);
          ExpectScores(outcome, request.prompt, static_cast<size_t>(answer));
          EXPECT_LE(program.most_rows, static_cast<size_t>(std::max<int64_t>(1, rows)));
          EXPECT_EQ(program.rows, length - 1 + static_cast<size_t>(answer));
          EXPECT_EQ(outcome.summary.cached_tokens, 0);
        }
      }
    }
  }
}

// A cached prompt is computed again, for its rows; what it leaves serves others. A group's first answer scores for all.
TEST_P(PromptScores, AreThereForACachedPromptAndOfAGroupOnce) {
  FakeProgram program(kVocab, GetParam());
  EngineOptions options = Options(4, 64, 4);
  options.max_logit_rows = 8;
  options.check_each_step = true;
  auto engine = Engine::Start(&program, options);
  Request plain = NewRequest(Prompt(30), 6), scored = plain;
  scored.prompt_logprobs = 2;
  Ask(**engine, plain);
  const Outcome again = Ask(**engine, scored);
  ExpectScores(again, plain.prompt, 6);
  EXPECT_EQ(again.summary.cached_tokens, 0);
  EXPECT_GE(Ask(**engine, plain).summary.cached_tokens, 16);
  Request other = NewRequest(Prompt(30, 50), 4);
  other.prompt_logprobs = 2;
  const auto tickets = (*engine)->SubmitGroup(other, 3);
  ASSERT_TRUE(tickets);
  ExpectScores(ReadAll(*tickets->at(0).outbox), other.prompt, 4);
  for (size_t i = 1; i < 3; i++)
    EXPECT_EQ(ReadAll(*tickets->at(i).outbox).ids, FakeProgram::Expected(other.prompt, 4, kVocab));
  ExpectLaws((*engine)->Stats());
}

// An evaluation of many texts beside a conversation.
TEST_P(PromptScores, LeaveNoTraceInTheCacheAndPushNothingOut) {
  FakeProgram program(kVocab, GetParam());
  EngineOptions options = Options(4, 64, 4);
  options.max_logit_rows = 8;
  options.check_each_step = true;
  auto engine = Engine::Start(&program, options);
  std::vector<TokenId> talk = Prompt(30);
  const Outcome first = Ask(**engine, NewRequest(talk, 6));
  talk.insert(talk.end(), first.ids.begin(), first.ids.end());
  const EngineStats before = (*engine)->Stats();
  EXPECT_GT(before.pages_cached, 0);
  for (TokenId i = 0; i < 20; i++) {
    Request scored = NewRequest(Prompt(30, 50 + i), i % 3);
    scored.prompt_logprobs = 2;
    const auto tickets = (*engine)->SubmitGroup(scored, 1 + i % 2);
    ASSERT_TRUE(tickets);
    for (const Ticket& ticket : *tickets) EXPECT_FALSE(ReadAll(*ticket.outbox).summary.cache_miss && i % 2 == 0);
  }
  const EngineStats after = (*engine)->Stats();
  EXPECT_EQ(after.pages_cached, before.pages_cached);
  EXPECT_EQ(after.pages_evicted, 0u);
  talk.push_back(9);
  EXPECT_EQ(Ask(**engine, NewRequest(talk, 2)).summary.cached_tokens, 35) << "all that was computed of the first turn";
  Request pinned = NewRequest(Prompt(9), 1);
  pinned.prompt_logprobs = 0;
  pinned.pin_s = 5;
  EXPECT_EQ((*engine)->Submit(pinned).error().where, "cache_pin_s");
}

TEST_P(PromptScores, ComeOnceAlsoOfThePreemptedAndBesideOthers) {
  FakeProgram program(kVocab, GetParam());
  program.LetRun(0);
  EngineOptions options = Options(4, 24, 4);
  options.max_logit_rows = 7;
  options.check_each_step = true;
  auto engine = Engine::Start(&program, options);
  std::vector<Ticket> tickets;
  for (TokenId i = 0; i < 8; i++) {
    Request request = NewRequest(Prompt(14, i), 40);
    if (i % 2 == 0) request.prompt_logprobs = 2;
    tickets.push_back(*(*engine)->Submit(request));
  }
  program.LetAllRun();
  int64_t preemptions = 0;
  for (TokenId i = 0; i < 8; i++) {
    const Outcome outcome = ReadAll(*tickets[static_cast<size_t>(i)].outbox);
    preemptions += outcome.summary.preemptions;
    if (i % 2 == 0) {
      ExpectScores(outcome, Prompt(14, i), 40);
    } else {
      EXPECT_EQ(outcome.ids, FakeProgram::Expected(Prompt(14, i), 40, kVocab));
    }
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_LE(program.most_rows, 7u);
  ExpectLaws((*engine)->Stats());
}

// Answers that repeat themselves: the fake model is periodic on small vocabularies.
class SpeculationOf : public ::testing::TestWithParam<bool> {};  // recurrent
INSTANTIATE_TEST_SUITE_P(Engine, SpeculationOf, ::testing::Bool());

TEST_P(SpeculationOf, AnyModelGivesTheSameAnswersInFewerSteps) {
  for (const double temperature : {0.0, 0.4}) {
    std::vector<Outcome> plain;
    for (const Speculation speculation : {Speculation::kOff, Speculation::kLookup, Speculation::kAuto}) {
      FakeClock clock;  // how much is drafted depends on measured times
      CopyingProgram program(kVocab, GetParam());
      program.clock = &clock;
      program.step_ms = 4;
      program.LetRun(0);
      EngineOptions options = Options(3, 128, 4);
      options.step_tokens = 64;
      options.max_logit_rows = 40;
      options.draft_slots = 8;
      options.check_each_step = true;
      options.now = clock.Source();
      auto engine = Engine::Start(&program, options);
      std::vector<Ticket> tickets;
      for (TokenId i = 0; i < 3; i++) {
        Request request{.prompt = Prompt(30, i),
                        .max_tokens = 60 + i,
                        .stop_tokens = {},
                        .sampling = {.temperature = temperature, .top_k = 0, .top_p = 1.0, .min_p = 0.0, .seed = 5},
                        .logprobs = 1};
        request.speculation = speculation;
        tickets.push_back(*(*engine)->Submit(request));
      }
      program.LetAllRun();
      uint64_t proposed = 0, accepted = 0;
      for (size_t i = 0; i < 3; i++) {
        const Outcome outcome = ReadAll(*tickets[i].outbox);
        EXPECT_EQ(outcome.summary.reason, FinishReason::kLength);
        EXPECT_EQ(outcome.ids.size(), 60 + i);
        proposed += static_cast<uint64_t>(outcome.summary.drafts_proposed);
        accepted += static_cast<uint64_t>(outcome.summary.drafts_accepted);
        EXPECT_LE(outcome.summary.drafts_accepted, outcome.summary.drafts_proposed);
        if (speculation == Speculation::kOff) {
          plain.push_back(outcome);
          continue;
        }
        EXPECT_EQ(outcome.ids, plain[i].ids);
        for (size_t t = 0; t < outcome.events.size(); t++)
          EXPECT_EQ(outcome.events[t].logprob, plain[i].events[t].logprob);
      }
      const EngineStats stats = (*engine)->Stats();
      ExpectLaws(stats);
      EXPECT_EQ(stats.drafts_proposed, proposed);
      EXPECT_EQ(stats.drafts_accepted, accepted);
      EXPECT_EQ(stats.pages_held, 0);
      if (speculation == Speculation::kOff) {
        EXPECT_EQ(proposed, 0u);
      } else if (temperature == 0) {
        EXPECT_GT(accepted, 50u);
        EXPECT_LT(stats.steps, 60u);
      }
    }
  }
}

TEST(Engine, PrioritiesComeFirstAndLateRequestsFail) {
  FakeProgram program(kVocab);
  program.LetRun(0);
  auto engine = Engine::Start(&program, Options());
  const auto first = *(*engine)->Submit(NewRequest(Prompt(4), 5));
  ASSERT_TRUE(program.Begun(1));
  Request request = NewRequest(Prompt(4, 9), 5);
  const auto low = *(*engine)->Submit(request);
  request.priority = 3;
  const auto high = *(*engine)->Submit(request);
  request.deadline = Clock::now() + 1ms;
  request.priority = 0;
  const auto late = *(*engine)->Submit(request);  // no step was measured: nobody knows that it comes too late
  const auto passed = *request.deadline;
  request.deadline = Clock::now() + 1h;
  const auto in_time = *(*engine)->Submit(request);
  std::this_thread::sleep_until(passed);
  program.LetAllRun();
  const Outcome failed = ReadAll(*late.outbox);
  EXPECT_EQ(failed.summary.reason, FinishReason::kFailed);
  ASSERT_TRUE(failed.summary.error);
  EXPECT_EQ(failed.summary.error->code, Code::kUnavailable);
  EXPECT_TRUE(failed.ids.empty());
  const Outcome a = ReadAll(*low.outbox), b = ReadAll(*high.outbox);
  EXPECT_LT(b.summary.at, a.summary.at);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(ReadAll(*in_time.outbox).ids, a.ids);
  EXPECT_EQ(ReadAll(*first.outbox).ids, FakeProgram::Expected(Prompt(4), 5, kVocab));
  ExpectLaws((*engine)->Stats());
}

TEST(Engine, ADeadlineThatCannotBeMetIsRefusedWithThePrediction) {
  FakeProgram program(kVocab);
  program.step_ms = 3;
  auto engine = std::move(*Engine::Start(&program, Options(1, 64)));
  Request hurried = NewRequest(Prompt(4), 2);
  hurried.deadline = Clock::now() + 1h;
  EXPECT_FALSE(engine->Predict(0, 4)) << "nothing is measured yet";
  const Outcome first = ReadAll(*engine->Submit(hurried)->outbox);
  EXPECT_FALSE(first.summary.predicted_ttft_ms);
  program.LetRun(program.steps + 6);  // it still runs when all that follows is asked
  const Ticket running = *engine->Submit(NewRequest(Prompt(5), 200));
  TokenEvent event;
  for (int i = 0; i < 3; i++) ASSERT_EQ(running.outbox->Next(kPatience, event), Outbox::Got::kToken);
  const auto forecast = engine->Predict(0, 4);
  ASSERT_TRUE(forecast);
  EXPECT_GT(forecast->begin_ms, 0);
  EXPECT_GT(forecast->ttft_ms, forecast->begin_ms);
  hurried.deadline = Clock::now();
  const auto refused = engine->Submit(hurried);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  const std::string words = "it would begin in ", &found = refused.error().found;
  ASSERT_TRUE(found.starts_with(words)) << found;
  EXPECT_GT(std::stod(found.substr(words.size())), 0) << found;
  hurried.deadline = Clock::now() + 1h;
  const auto waits = engine->Submit(hurried);
  ASSERT_TRUE(waits);
  engine->Cancel(running.id);
  program.LetAllRun();
  EXPECT_TRUE(ReadAll(*waits->outbox).summary.predicted_ttft_ms);
}

TEST(EngineSpeculation, IsRefusedWhereItCannotWork) {
  FakeProgram program(kVocab), recurrent(kVocab, true);
  Request request = NewRequest(Prompt(4), 4);
  request.speculation = Speculation::kLookup;
  auto engine = Engine::Start(&program, Options(2));
  EXPECT_EQ((*engine)->Submit(request).error().code, Code::kUnsupported);
  EngineOptions options = Options(2);
  options.max_logit_rows = 8;
  auto other = Engine::Start(&recurrent, options);  // no slots for states on the way
  EXPECT_EQ((*other)->Submit(request).error().code, Code::kUnsupported);
  request.speculation = Speculation::kAuto;
  EXPECT_EQ(Ask(**other, request).ids, FakeProgram::Expected(Prompt(4), 4, kVocab));
}

TEST(Engine, DrawsFollowTheSeedAloneAndNotTheOrderOfRequests) {
  FakeProgram program(kVocab);
  auto engine = Engine::Start(&program, Options(2));
  const auto ask = [&](uint64_t seed) {
    Request request{.prompt = Prompt(4),
                    .max_tokens = 20,
                    .sampling = {.temperature = 5.0, .top_k = 0, .top_p = 1.0, .min_p = 0.0, .seed = seed}};
    return ReadAll(*(*engine)->Submit(request)->outbox).ids;
  };
  const auto first = ask(1);
  EXPECT_NE(ask(2), first);
  EXPECT_EQ(ask(1), first);
}

}  // namespace
}  // namespace ridge::engine
