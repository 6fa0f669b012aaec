#include "engine/runner.h"

#include <algorithm>
#include <new>

namespace ridge::engine {

Runner::Runner(backend::Program* program, backend::StateStore* state, int64_t vocab, int64_t max_rows)
    : program_(program), state_(state), vocab_(vocab), logits_(static_cast<size_t>(vocab * max_rows)) {}

void Runner::Prepare(const Plan& plan) {
  tokens_.clear();
  positions_.clear();
  seq_start_.assign(1, 0);
  logit_rows_.clear();
  slots_.clear();
  saves_.clear();
  size_t table = 0;  // P, the longest of all sequences
  for (const Chunk& chunk : plan.chunks) table = std::max(table, chunk.pages.size());
  page_table_.assign(table * plan.chunks.size(), 0);
  for (size_t s = 0; s < plan.chunks.size(); s++) {
    const Chunk& chunk = plan.chunks[s];
    tokens_.insert(tokens_.end(), chunk.tokens.begin(), chunk.tokens.end());
    tokens_.insert(tokens_.end(), chunk.drafts.begin(), chunk.drafts.end());
    for (size_t i = 0; i < chunk.tokens.size() + chunk.drafts.size(); i++)
      positions_.push_back(static_cast<int32_t>(chunk.begin) + static_cast<int32_t>(i));
    seq_start_.push_back(static_cast<int32_t>(tokens_.size()));
    for (int64_t i = 0; i < chunk.score_rows; i++)
      logit_rows_.push_back(seq_start_[seq_start_.size() - 2] + static_cast<int32_t>(chunk.score_begin + i));
    for (int64_t left = chunk.logit_rows() - chunk.score_rows; left > 0; left--)
      logit_rows_.push_back(static_cast<int32_t>(static_cast<int64_t>(tokens_.size()) - left));
    if (state_->slot_bytes() > 0) {
      slots_.push_back(chunk.sequence->slot);
      for (const StateMark& mark : chunk.sequence->marks) {
        const int64_t at = mark.token - chunk.begin;
        if (at < 1 || at > static_cast<int64_t>(chunk.tokens.size())) continue;
        saves_.push_back({.sequence = static_cast<int32_t>(s), .tokens = static_cast<int32_t>(at), .slot = mark.slot});
      }
    }
    if (state_->slot_bytes() > 0) {
      const std::vector<int32_t>& kept = chunk.sequence->draft_slots;  // of the state before each draft
      RIDGE_CHECK(kept.size() == chunk.drafts.size());
      for (size_t i = 0; i < kept.size(); i++)
        saves_.push_back({.sequence = static_cast<int32_t>(s),
                          .tokens = static_cast<int32_t>(chunk.tokens.size() + i),
                          .slot = kept[i]});
    }
    std::copy(chunk.pages.begin(), chunk.pages.end(), page_table_.begin() + static_cast<std::ptrdiff_t>(s * table));
  }
}

Status Runner::Run() try {
  const size_t wanted = logit_rows_.size() * static_cast<size_t>(vocab_);
  RIDGE_CHECK(wanted <= logits_.size());
  return program_->Run({.tokens = tokens_,
                        .positions = positions_,
                        .seq_start = seq_start_,
                        .page_table = page_table_,
                        .logit_rows = logit_rows_,
                        .state_slots = slots_,
                        .state_saves = saves_},
                       *state_, std::span<float>(logits_).first(wanted));
} catch (const std::bad_alloc&) {
  return Fail(Code::kResourceExhausted, "no memory for the step");
}

}  // namespace ridge::engine
