#include "bench_subject.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace ridge::app {

Result<BenchSubject> BenchSubject::Create(const service::Runtime& runtime, int64_t sequences, int64_t tokens) {
  BenchSubject s(runtime, sequences);
  backend::StateOptions options = runtime.state_options();
  s.pages_per_sequence_ = (tokens + options.page_tokens - 1) / options.page_tokens;
  options.n_pages = sequences * s.pages_per_sequence_;
  options.n_slots = 2 * sequences;  // each sequence, and what Keep keeps of it
  RIDGE_ASSIGN_OR_RETURN(s.state_, s.program_->NewState(options));
  if (s.state_->slot_bytes() > 0) {
    s.slots_.resize(static_cast<size_t>(sequences));
    std::iota(s.slots_.begin(), s.slots_.end(), 0);
  }
  s.table_.resize(static_cast<size_t>(options.n_pages));
  std::iota(s.table_.begin(), s.table_.end(), 0);
  s.logits_.resize(static_cast<size_t>(sequences * s.vocab_));
  return s;
}

// Any tokens do, as long as they are the same in each repetition: a multiplicative hash of sequence and position.
void BenchSubject::Append(int64_t sequence, int64_t position, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const uint64_t key = static_cast<uint64_t>(sequence) * 1000003 + static_cast<uint64_t>(position + i) + 1;
    tokens_.push_back(static_cast<int32_t>(key * 0x9e3779b97f4a7c15ull % static_cast<uint64_t>(vocab_)));
    positions_.push_back(static_cast<int32_t>(position + i));
  }
  seq_start_.push_back(static_cast<int32_t>(tokens_.size()));
  logit_rows_.push_back(static_cast<int32_t>(tokens_.size() - 1));
}

void BenchSubject::Keep() {
  for (const int32_t slot : slots_) state_->CopySlot(slot, slot + static_cast<int32_t>(sequences_));
}

void BenchSubject::Rewind(int64_t position) {
  position_ = position;
  for (const int32_t slot : slots_) {
    if (position > 0) state_->CopySlot(slot + static_cast<int32_t>(sequences_), slot);
  }
}

Status BenchSubject::Run(std::span<const int32_t> table, std::span<const int32_t> slots, bool logits) {
  const Status done = program_->Run({.tokens = tokens_,
                                     .positions = positions_,
                                     .seq_start = seq_start_,
                                     .page_table = table,
                                     .logit_rows = std::span(logit_rows_).first(logits ? logit_rows_.size() : 0),
                                     .state_slots = slots},
                                    *state_, logits_);
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  seq_start_.clear();
  return done;
}

Status BenchSubject::Prompt(int64_t n) {
  for (int64_t s = 0; s < sequences_; s++) {
    for (int64_t done = 0; done < n;) {
      const int64_t step = std::min(chunk_, n - done);
      seq_start_.assign(1, 0);
      Append(s, position_ + done, step);
      done += step;
      const std::span<const int32_t> pages = std::span<const int32_t>(table_).subspan(
          static_cast<size_t>(s * pages_per_sequence_), static_cast<size_t>(pages_per_sequence_));
      const auto slot =
          std::span<const int32_t>(slots_).subspan(slots_.empty() ? 0 : static_cast<size_t>(s), slots_.empty() ? 0 : 1);
      RIDGE_RETURN_IF_ERROR(Run(pages, slot, done == n));
    }
  }
  position_ += n;
  return {};
}

Status BenchSubject::AddSampler() {
  RIDGE_ASSIGN_OR_RETURN(sampler_, sampling::Sampler::Create({}, static_cast<int32_t>(vocab_)));
  return {};
}

Status BenchSubject::Sample() {
  picked_.resize(static_cast<size_t>(sequences_));
  for (int64_t s = 0; s < sequences_; s++) {
    const std::span<float> row =
        std::span(logits_).subspan(static_cast<size_t>(s * vocab_), static_cast<size_t>(vocab_));
    RIDGE_ASSIGN_OR_RETURN(picked_[static_cast<size_t>(s)],
                           sampler_->Sample(row, {}, static_cast<uint64_t>(s), static_cast<uint64_t>(position_)));
  }
  return {};
}

Status BenchSubject::Generate(int64_t n) {
  picked_.clear();
  for (int64_t i = 0; i < n; i++, position_++) {
    seq_start_.assign(1, 0);
    for (int64_t s = 0; s < sequences_; s++) Append(s, position_, 1);
    if (!picked_.empty()) tokens_ = picked_;
    RIDGE_RETURN_IF_ERROR(Run(table_, slots_, true));
    if (sampler_) RIDGE_RETURN_IF_ERROR(Sample());
  }
  return {};
}

lab::Work StepWork(const service::Runtime& runtime, double tokens, double logits, double context) {
  const backend::StateOptions& kv = runtime.state_options();
  const double value_bytes = (backend::ValueBytes(kv.k_type) + backend::ValueBytes(kv.v_type)) / 2;
  return lab::WorkOf(runtime.model().graph(),
                     {.tokens = tokens, .logits = logits, .context = context, .kv_bytes_per_value = value_bytes});
}

double StepReadBytes(const service::Runtime& runtime, double sequences, double context) {
  lab::Work work = StepWork(runtime, sequences, sequences, context);
  // Weights are read once a step, the KV and the state of recurrent layers once for each sequence; a step of one token reads them once.
  const double kv = StepWork(runtime, 1, 1, context).other_bytes - StepWork(runtime, 1, 1, 0).other_bytes;
  work.other_bytes += (sequences - 1) * (kv + static_cast<double>(runtime.model().StateBytes()));
  return lab::LayoutBytes(work);
}

}  // namespace ridge::app
