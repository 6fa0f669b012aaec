// Requests to an engine over a FakeProgram, and what came back.
//
//   const Outcome outcome = Ask(*engine, NewRequest(Prompt(12), 5));
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace ridge::engine::test {

constexpr int64_t kVocab = 97;
constexpr std::chrono::seconds kPatience{120};

struct Outcome {
  std::vector<TokenId> ids;
  std::vector<TokenEvent> events;
  Summary summary;
};

inline Outcome ReadAll(Outbox& outbox) {
  Outcome outcome;
  TokenEvent event;
  for (Outbox::Got got; (got = outbox.Next(kPatience, event)) != Outbox::Got::kEnd;) {
    if (got == Outbox::Got::kNothing) {
      ADD_FAILURE() << "no event for two minutes";
      return outcome;
    }
    outcome.ids.push_back(event.token);
    outcome.events.push_back(event);
  }
  outcome.summary = outbox.summary();
  return outcome;
}

inline EngineOptions Options(int64_t max_running = 1, int64_t pages = 16, int64_t page_tokens = 4) {
  return {.vocab = kVocab,
          .context_tokens = pages * page_tokens,
          .step_tokens = 8,
          .max_running = max_running,
          .state = {.n_pages = pages, .page_tokens = page_tokens}};
}

inline Request NewRequest(std::vector<TokenId> prompt, int64_t max_tokens) {
  return {.prompt = std::move(prompt), .max_tokens = max_tokens, .sampling = {.temperature = 0}};
}

inline std::vector<TokenId> Prompt(size_t n, TokenId first = 3) {
  std::vector<TokenId> prompt;
  for (size_t i = 0; i < n; i++) prompt.push_back(static_cast<TokenId>((first + static_cast<TokenId>(i) * 5) % kVocab));
  return prompt;
}

inline Outcome Ask(Engine& engine, Request request) {
  const auto ticket = engine.Submit(std::move(request));
  EXPECT_TRUE(ticket) << (ticket ? "" : ticket.error().Message());
  return ticket ? ReadAll(*ticket->outbox) : Outcome{};
}

}  // namespace ridge::engine::test
