// A backend for tests: its "KV" holds the tokens themselves, and its logits follow from all tokens that it finds in the pages of a sequence. So a
// wrong page, position or chunk gives another answer than Expected().
//
//   FakeProgram program(kVocab);
//   FakeProgram recurrent(kVocab, /*recurrent=*/true);   // looks into the sequence's slot instead, which holds a hash of all tokens
//   std::vector<TokenId> answer = FakeProgram::Expected(prompt, 10, kVocab);
//   program.LetRun(0);                                   // steps wait, while the test does what must come before them; then
//   program.LetAllRun();
//   FakeClock clock; program.clock = &clock;             // with EngineOptions::now: steps take the time that step_ms says, by this clock
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "base/token_id.h"
#include "engine/request.h"

namespace ridge::engine::test {

class FakeState : public backend::StateStore {
 public:
  explicit FakeState(const backend::StateOptions& options)
      : options_(options), slots(static_cast<size_t>(options.n_pages * options.page_tokens), -1) {}
  struct Recurrent {
    int64_t tokens = 0;
    uint64_t hash = 0;
  };
  FakeState(const backend::StateOptions& options, bool recurrent) : FakeState(options) {
    if (recurrent) states.resize(static_cast<size_t>(options.n_slots));
  }
  size_t slot_bytes() const override { return states.empty() ? 0 : sizeof(Recurrent); }
  int64_t slot_tokens(int32_t slot) const override { return states.at(static_cast<size_t>(slot)).tokens; }
  void ClearSlot(int32_t slot) override { states.at(static_cast<size_t>(slot)) = {}; }
  void CopySlot(int32_t from, int32_t to) override {
    states.at(static_cast<size_t>(to)) = states.at(static_cast<size_t>(from));
  }
  const backend::StateOptions& options() const override { return options_; }
  void ReadSlot(int32_t slot, std::span<std::byte> bytes) const override {
    std::memcpy(bytes.data(), &states.at(static_cast<size_t>(slot)), bytes.size());
  }
  void WriteSlot(int32_t slot, int64_t /*tokens*/, std::span<const std::byte> bytes) override {
    std::memcpy(&states.at(static_cast<size_t>(slot)), bytes.data(), bytes.size());
  }
  size_t page_bytes() const override { return static_cast<size_t>(options_.page_tokens) * sizeof(TokenId); }
  void ReadPage(int32_t page, std::span<std::byte> bytes) const override {
    std::memcpy(bytes.data(), &slots.at(static_cast<size_t>(page * options_.page_tokens)), bytes.size());
  }
  void WritePage(int32_t page, std::span<const std::byte> bytes) override {
    std::memcpy(&slots.at(static_cast<size_t>(page * options_.page_tokens)), bytes.data(), bytes.size());
  }
  size_t size_bytes() const override { return slots.size() * sizeof(TokenId); }
  void CopyPage(int32_t from, int32_t to) override {
    for (int64_t i = 0; i < options_.page_tokens; i++)
      slots[static_cast<size_t>(to * options_.page_tokens + i)] =
          slots[static_cast<size_t>(from * options_.page_tokens + i)];
    copies++;
  }

 private:
  backend::StateOptions options_;

 public:
  std::vector<TokenId> slots;     // [pages, page_tokens]
  std::vector<Recurrent> states;  // by state slot
  int64_t copies = 0;
};

// Time that passes with the steps of programs alone, so that what follows from measured times does not follow from the machine.
class FakeClock {
 public:
  Clock::time_point now() const { return Clock::time_point(std::chrono::microseconds(us_)); }
  std::function<Clock::time_point()> Source() const {
    return [this] { return now(); };
  }
  void Pass(int64_t us) { us_ += us; }

 private:
  std::atomic<int64_t> us_ = 1;
};

class FakeProgram : public backend::Program {
 public:
  explicit FakeProgram(int64_t vocab, bool recurrent = false) : vocab_(vocab), recurrent_(recurrent) {}

  // The greedy answer of n tokens.
  static std::vector<TokenId> Expected(std::vector<TokenId> tokens, size_t n, int64_t vocab) {
    std::vector<TokenId> answer;
    while (answer.size() < n) {
      uint64_t hash = kSeed;
      for (const TokenId token : tokens) hash = Mix(hash, token);
      answer.push_back(static_cast<TokenId>(hash % static_cast<uint64_t>(vocab)));
      tokens.push_back(answer.back());
    }
    return answer;
  }

  // The steps after the n-th wait. Not for ever, so that a test that has failed ends.
  void LetRun(int n) {
    {
      const std::lock_guard lock(gate_);
      let_run_ = n;
    }
    changed_.notify_all();
  }
  void LetAllRun() { LetRun(INT_MAX); }
  // Until so many steps have begun, which may wait in there.
  bool Begun(int n) {
    std::unique_lock lock(gate_);
    return changed_.wait_for(lock, kPatience, [&] { return steps >= n; });
  }

  // The likeliest token, modulo the vocabulary: by the hash of all tokens.
  virtual uint64_t Choose(uint64_t hash, std::span<const TokenId> /*tokens*/) const { return hash; }

  // What follows these tokens.
  virtual void Logits(uint64_t hash, std::span<const TokenId> tokens, std::span<float> out) const {
    std::fill(out.begin(), out.end(), 0.0f);
    out[Choose(hash, tokens) % static_cast<uint64_t>(vocab_)] = 1.0f;
  }

  Result<std::unique_ptr<backend::StateStore>> NewState(const backend::StateOptions& options) override {
    return std::make_unique<FakeState>(options, recurrent_);
  }

  Status Run(const backend::Step& step, backend::StateStore& store, std::span<float> logits) override {
    {
      std::unique_lock lock(gate_);
      steps++;
      changed_.notify_all();
      changed_.wait_for(lock, kPatience, [&] { return steps <= let_run_; });
    }
    largest_step = std::max(largest_step.load(), step.tokens.size());
    computed_tokens += step.tokens.size();
    if (clock != nullptr) {
      clock->Pass(kLeastUs + 1000 * step_ms);
    } else if (step_ms > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(step_ms));
    }
    if (steps == fail_at_step) return Fail(Code::kInternal, "the fake program fails here");
    auto& state = static_cast<FakeState&>(store);
    const size_t sequences = step.seq_start.size() - 1, table = step.page_table.size() / sequences;
    size_t row = 0;
    for (size_t s = 0; s < sequences; s++) {
      const auto slot = [&](int64_t position) -> TokenId& {
        const int64_t page_tokens = state.options().page_tokens;
        const int32_t page = step.page_table[s * table + static_cast<size_t>(position / page_tokens)];
        return state.slots[static_cast<size_t>(page * page_tokens + position % page_tokens)];
      };
      FakeState::Recurrent* recurrent =
          recurrent_ ? &state.states.at(static_cast<size_t>(step.state_slots[s])) : nullptr;
      const int64_t begin = step.positions[static_cast<size_t>(step.seq_start[s])];
      if (recurrent_ && begin == 0) *recurrent = {.tokens = 0, .hash = kSeed};
      if (recurrent_ && begin != recurrent->tokens)
        return Fail(Code::kInternal, "the slot is not where the step begins");
      for (int32_t t = step.seq_start[s]; t < step.seq_start[s + 1]; t++) {
        if (recurrent_) {
          recurrent->hash = Mix(recurrent->hash, step.tokens[static_cast<size_t>(t)]);
          recurrent->tokens++;
          for (const backend::StateSave& save : step.state_saves) {
            if (static_cast<size_t>(save.sequence) == s && save.tokens == t + 1 - step.seq_start[s])
              state.states.at(static_cast<size_t>(save.slot)) = *recurrent;
          }
        }
        slot(step.positions[static_cast<size_t>(t)]) = step.tokens[static_cast<size_t>(t)];
        if (row >= step.logit_rows.size() || step.logit_rows[row] != t) continue;
        uint64_t hash = kSeed;
        std::vector<TokenId> seen;
        for (int64_t p = 0; p <= step.positions[static_cast<size_t>(t)]; p++) {
          hash = Mix(hash, slot(p));
          seen.push_back(slot(p));
        }
        if (recurrent_ && hash != recurrent->hash) return Fail(Code::kInternal, "pages and slot tell different tokens");
        const auto out = logits.subspan(row++ * static_cast<size_t>(vocab_), static_cast<size_t>(vocab_));
        Logits(hash, seen, out);
      }
    }
    rows += row;
    if (row > most_rows) most_rows = row;
    if (row != step.logit_rows.size()) return Fail(Code::kInternal, "a logit row is not in the step");
    return {};
  }

  const std::vector<backend::PlanEntry>& plan() const override { return plan_; }
  size_t weight_bytes() const override { return 0; }
  size_t workspace_bytes() const override { return 0; }
  std::string isa() const override { return "fake"; }
  int n_threads() const override { return 1; }

  std::atomic<int> steps = 0, fail_at_step = -1, step_ms = 0;
  std::atomic<size_t> largest_step = 0, computed_tokens = 0, rows = 0, most_rows = 0;
  FakeClock* clock = nullptr;  // borrowed; none: step_ms is slept

 private:
  static constexpr std::chrono::seconds kPatience{60};
  static constexpr int64_t kLeastUs = 50;  // of a step by the clock
  static constexpr uint64_t kSeed = 1469598103934665603u;
  static uint64_t Mix(uint64_t hash, TokenId token) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
  }

  int64_t vocab_;
  bool recurrent_;
  std::vector<backend::PlanEntry> plan_;
  std::mutex gate_;
  std::condition_variable changed_;
  int let_run_ = INT_MAX;
};

}  // namespace ridge::engine::test
