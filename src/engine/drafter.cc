#include "engine/drafter.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ridge::engine {
namespace {

// Tokens that go along with the first pass: after a step whose drafts were all right there are two.
constexpr int64_t kFewTokens = 4;

}  // namespace

Drafter::Drafter(const DrafterOptions& options, backend::Program* program, std::unique_ptr<backend::StateStore> state)
    : options_(options),
      state_(std::move(state)),
      map_(options.state.n_pages, options.state.page_tokens),
      policy_(options.max_rows, options.cost_ratio),
      runner_(program, state_.get(), options.vocab, options.max_rows),
      rows_(static_cast<size_t>(options.max_rows)),
      claimed_(static_cast<size_t>(options.state.n_pages)) {
  if (options.vocab < options.target_vocab) widened_.resize(static_cast<size_t>(options.target_vocab));
}

Result<std::unique_ptr<Drafter>> Drafter::Create(backend::Program* program, const DrafterOptions& options) {
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<backend::StateStore> state, program->NewState(options.state));
  if (state->slot_bytes() > 0) {
    return Fail(Code::kUnsupported, "a recurrent model cannot draft: its state cannot be taken back")
        .Where("draft model")
        .Remedy("use a draft model of an attention family");
  }
  return std::unique_ptr<Drafter>(new Drafter(options, program, std::move(state)));
}

void Drafter::CopyPage(cache::PageId from, cache::PageId to) {
  state_->CopyPage(from, to);
  map_.Copy(from, to);
}

void Drafter::Choose(std::span<DraftAsk> asks, int64_t rows, int64_t room, const StepCosts& costs) {
  asks = asks.first(std::min(asks.size(), rows_.size()));
  choices_.clear();
  for (const DraftAsk& ask : asks) {
    const int64_t behind = ask.sequence->length() - 1 - map_.Known(*ask.sequence);
    choices_.push_back({.odds = policy_.Odds(ask.sequence->model_record),
                        .most = ask.most,
                        .behind = behind <= kFewTokens ? 0 : behind,
                        .left = ask.left});
  }
  policy_.Choose(choices_, rows, room, costs);
  for (size_t i = 0; i < asks.size(); i++) {
    asks[i].take = choices_[i].take;
    asks[i].sequence->model_odds = choices_[i].pays ? choices_[i].odds : 0;
  }
  catch_up_tokens_ = policy_.CatchUpTokens(rows, costs);
}

// Whether nobody else writes into these tokens' pages in the present pass: shared pages are read once.
bool Drafter::Claim(const Sequence& sequence, int64_t begin, int64_t end) {
  const int64_t page = options_.state.page_tokens;
  const auto pages = sequence.pages->pages().subspan(static_cast<size_t>(begin / page),
                                                     static_cast<size_t>((end - 1) / page - begin / page + 1));
  const auto stamp = [&](cache::PageId id) -> uint32_t& { return claimed_[static_cast<size_t>(id)]; };
  if (std::ranges::any_of(pages, [&](cache::PageId id) { return stamp(id) == pass_; })) return false;
  for (const cache::PageId id : pages) stamp(id) = pass_;
  return true;
}

// One run over plan_, after which its KV is known.
Status Drafter::Pass(std::span<Row*> rows) {
  RIDGE_RETURN_IF_ERROR(runner_.Run(plan_));
  passes_++;
  for (size_t i = 0; i < rows.size(); i++) {
    Row& row = *rows[i];
    const Chunk& chunk = plan_.chunks[i];
    const std::vector<uint64_t>& hashes = row.sequence->prefix_hashes;
    for (int64_t at = chunk.begin; at < chunk.begin + static_cast<int64_t>(chunk.tokens.size()); at++)
      map_.Write(chunk.pages, at, static_cast<size_t>(at) < hashes.size() ? hashes[static_cast<size_t>(at)] : row.hash);
    row.known = chunk.begin + static_cast<int64_t>(chunk.tokens.size());
  }
  return {};
}

// Reads what is missing of prompts and answers, but for the few tokens that the first pass takes along.
Status Drafter::CatchUp() {
  while (catch_up_tokens_ > 0) {
    plan_.chunks.clear();
    next_.clear();
    pass_++;
    int64_t room = std::min(catch_up_tokens_, options_.step_tokens);
    for (Row* row : active_) {
      Sequence& sequence = *row->sequence;
      row->known = map_.Known(sequence);  // others may have read a page that both hold
      const int64_t behind = sequence.length() - 1 - row->known, count = std::min(room, behind);
      if (behind <= kFewTokens || count <= 0 || !Claim(sequence, row->known, row->known + count)) continue;
      plan_.chunks.push_back({.sequence = &sequence,
                              .begin = row->known,
                              .tokens = std::span<const TokenId>(row->history)
                                            .subspan(static_cast<size_t>(row->known), static_cast<size_t>(count)),
                              .pages = sequence.pages->pages()});
      next_.push_back(row);
      room -= count;
    }
    if (next_.empty()) return {};
    const Clock::time_point begin = Now();
    RIDGE_RETURN_IF_ERROR(Pass(next_));
    const int64_t read = std::min(catch_up_tokens_, options_.step_tokens) - room;
    catch_up_tokens_ -= read;
    if (read > 2 * kFewTokens) policy_.ObserveCatchUp(read, MsSince(begin));
  }
  return {};
}

std::span<float> Drafter::LogitsOf(int64_t row) {
  const std::span<float> logits = runner_.logits(row);
  const auto target = static_cast<size_t>(options_.target_vocab);
  if (logits.size() >= target) return logits.first(target);
  std::ranges::copy(logits, widened_.begin());
  std::fill(widened_.begin() + static_cast<std::ptrdiff_t>(logits.size()), widened_.end(),
            -std::numeric_limits<float>::infinity());
  return widened_;
}

Status Drafter::Draft(std::span<const DraftAsk> asks, const Draw& draw) {
  active_.clear();
  for (const DraftAsk& ask : asks) {
    ask.sequence->drafts.clear();
    if (ask.take <= 0) continue;
    Row& row = rows_[active_.size()];
    row.sequence = ask.sequence;
    row.take = ask.take;
    row.known = map_.Known(*ask.sequence);
    row.hash = ask.sequence->prefix_hashes.back();
    row.history.assign(ask.sequence->tokens.begin(), ask.sequence->tokens.end());
    active_.push_back(&row);
  }
  RIDGE_RETURN_IF_ERROR(CatchUp());
  std::erase_if(active_, [&](Row* row) { return row->sequence->length() - 1 - row->known > kFewTokens; });
  while (!active_.empty()) {
    const Clock::time_point begin = Now();
    plan_.chunks.clear();
    next_.clear();
    pass_++;
    for (Row* row : active_) {
      const auto end = static_cast<int64_t>(row->history.size());
      if (!Claim(*row->sequence, row->known, end)) continue;  // its few tokens are being read: next time
      plan_.chunks.push_back({.sequence = row->sequence,
                              .begin = row->known,
                              .tokens = std::span<const TokenId>(row->history).subspan(static_cast<size_t>(row->known)),
                              .pages = row->sequence->pages->pages(),
                              .logits = true});
      next_.push_back(row);
    }
    RIDGE_RETURN_IF_ERROR(Pass(next_));
    active_.clear();
    for (size_t i = 0; i < next_.size(); i++) {
      Row& row = *next_[i];
      const std::optional<TokenId> token = draw(*row.sequence, LogitsOf(static_cast<int64_t>(i)), row.history);
      if (!token) continue;
      row.history.push_back(*token);
      row.hash = DraftMap::Extend(row.hash, *token);
      row.sequence->drafts.push_back(*token);
      if (static_cast<int64_t>(row.sequence->drafts.size()) < row.take) active_.push_back(&row);
    }
    policy_.ObservePass(static_cast<int64_t>(next_.size()), MsSince(begin));
  }
  return {};
}

}  // namespace ridge::engine
