// A second, smaller model that drafts for the first: it reads what the sequences hold and proposes their next tokens, all sequences in one pass.
//
//   RIDGE_ASSIGN_OR_RETURN(auto drafter, Drafter::Create(&draft_program, options));
//   drafter->Choose(asks, rows, room, costs);     // who is drafted how much: sets each `take`
//   RIDGE_RETURN_IF_ERROR(drafter->Draft(asks, draw));   // into sequence.drafts
//
// Its KV lies in a store of its own under the target's page ids (DraftMap), so a cached prefix, a fork, a copy, a preemption or a refused draft needs
// no care of its own: what is not there is read again. It reads a prompt only when somebody is drafted, in portions, so that no first token
// waits for it and no gap grows by much.
// Guarantees: a drafted token is a function of the tokens before it, the request's sampling, its seed and the position. No allocation once it has seen
// its largest step. Engine thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "engine/draft_map.h"
#include "engine/draft_model_policy.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/scheduler.h"

namespace ridge::engine {

struct DrafterOptions {
  int64_t vocab = 0;         // logits of a row of the draft model
  int64_t target_vocab = 0;  // of the target; tokens that only one of them has are not drafted
  int64_t step_tokens = 512;
  int64_t max_rows = 1;     // sequences that are drafted at once
  double cost_ratio = 0.5;  // see DraftModelPolicy
  backend::StateOptions state;
  std::function<Clock::time_point()> now = {};  // see EngineOptions
};

class Drafter {
 public:
  // The token that the request would draw from these logits of its next position; none: no draft.
  using Draw =
      std::function<std::optional<TokenId>(Sequence&, std::span<float> logits, std::span<const TokenId> history)>;

  // program is borrowed. Errors: those of NewState; kUnsupported where the draft model has recurrent state.
  static Result<std::unique_ptr<Drafter>> Create(backend::Program* program, const DrafterOptions& options);

  void CopyPage(cache::PageId from, cache::PageId to);
  // Sets the `take` of each; rows and room: tokens that the step has, and drafts that it still takes.
  void Choose(std::span<DraftAsk> asks, int64_t rows, int64_t room, const StepCosts& costs);
  // Those with a take, whose pages have room for as many tokens. Reads what is missing first; a sequence that it does not get to has no drafts.
  Status Draft(std::span<const DraftAsk> asks, const Draw& draw);
  void Learn(Sequence& sequence, int64_t proposed, int64_t accepted) {
    policy_.Learn(sequence.model_record, proposed, accepted);
  }

  size_t state_bytes() const { return state_->size_bytes(); }
  int64_t passes() const { return passes_; }

 private:
  struct Row {
    Sequence* sequence = nullptr;
    int64_t known = 0;  // tokens of `history` whose KV is there
    int64_t take = 0;
    uint64_t hash = 0;             // of history up to its latest draft
    std::vector<TokenId> history;  // the sequence's tokens, then its drafts
  };
  Drafter(const DrafterOptions& options, backend::Program* program, std::unique_ptr<backend::StateStore> state);
  Clock::time_point Now() const { return options_.now ? options_.now() : Clock::now(); }
  double MsSince(Clock::time_point begin) const {
    return std::chrono::duration<double, std::milli>(Now() - begin).count();
  }
  bool Claim(const Sequence& sequence, int64_t begin, int64_t end);
  Status CatchUp();
  Status Pass(std::span<Row*> rows);
  std::span<float> LogitsOf(int64_t row);

  DrafterOptions options_;
  std::unique_ptr<backend::StateStore> state_;
  DraftMap map_;
  DraftModelPolicy policy_;
  Runner runner_;
  Plan plan_;
  int64_t catch_up_tokens_ = 0;  // that this call may read
  int64_t passes_ = 0;
  std::vector<DraftModelAsk> choices_;
  std::vector<Row> rows_;
  std::vector<Row*> active_, next_;
  std::vector<float> widened_;     // [target_vocab], where the draft model has fewer
  std::vector<uint32_t> claimed_;  // [pages] the latest pass that writes into the page
  uint32_t pass_ = 0;
};

}  // namespace ridge::engine
