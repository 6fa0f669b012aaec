#include "lab/quality/scoring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace ridge::lab {
namespace {

constexpr int64_t kMostWindowsPerStep = 32;

// Rows of a group of windows that share their steps.
class GroupRun {
 public:
  GroupRun(const ScoringSubject& subject, std::span<const TokenId> ids, std::span<const Window> windows,
           backend::StateStore& state, std::vector<float>& logits)
      : subject_(subject), ids_(ids), windows_(windows), state_(state), logits_(logits) {
    const int64_t page = state.options().page_tokens;
    const size_t table = static_cast<size_t>((windows[0].tokens + page - 1) / page);
    for (size_t s = 0; s < windows.size(); s++) {
      for (size_t p = 0; p < table; p++) pages_.push_back(static_cast<int32_t>(s * table + p));
      if (state.slot_bytes() == 0) continue;
      slots_.push_back(static_cast<int32_t>(s));
      state.ClearSlot(static_cast<int32_t>(s));
    }
  }

  // All windows have the same length and score the same positions.
  Status Run(int64_t& index, const RowSink& sink) {
    const Window& shape = windows_[0];
    const int64_t n = static_cast<int64_t>(windows_.size());
    // The last position predicts nothing that is scored: it need not be computed.
    for (int64_t at = 0; at < shape.score_end;) {
      if (subject_.cancelled && subject_.cancelled()) return Fail(Code::kCancelled, "interrupted");
      const bool scored = at >= shape.score_begin;
      const int64_t room = std::max<int64_t>(1, (scored ? subject_.step_rows : subject_.step_tokens) / n);
      const int64_t end = std::min(at + room, scored ? shape.score_end : std::min(shape.score_begin, shape.score_end));
      RIDGE_RETURN_IF_ERROR(Step(at, end, scored));
      if (scored) RIDGE_RETURN_IF_ERROR(Emit(at, end, index, sink));
      at = end;
    }
    index += n * (shape.score_end - shape.score_begin);
    return {};
  }

 private:
  Status Step(int64_t begin, int64_t end, bool scored) {
    std::vector<int32_t> tokens, positions, rows, seq_start = {0};
    for (const Window& window : windows_) {
      for (int64_t p = begin; p < end; p++) {
        if (scored) rows.push_back(static_cast<int32_t>(tokens.size()));
        tokens.push_back(p == 0 && subject_.bos ? *subject_.bos : ids_[static_cast<size_t>(window.first_token + p)]);
        positions.push_back(static_cast<int32_t>(p));
      }
      seq_start.push_back(static_cast<int32_t>(tokens.size()));
    }
    return subject_.program->Run({.tokens = tokens,
                                  .positions = positions,
                                  .seq_start = seq_start,
                                  .page_table = pages_,
                                  .logit_rows = rows,
                                  .state_slots = slots_},
                                 state_, logits_);
  }

  // Numbers are those of the windows one after the other, whatever shared a step.
  Status Emit(int64_t begin, int64_t end, int64_t index, const RowSink& sink) {
    const Window& shape = windows_[0];
    const size_t vocab = static_cast<size_t>(subject_.vocab);
    std::vector<ScoredRow> rows;
    for (size_t s = 0; s < windows_.size(); s++) {
      for (int64_t p = begin; p < end; p++) {
        const int64_t token = windows_[s].first_token + p + 1;
        rows.push_back(
            {.index = index + static_cast<int64_t>(s) * (shape.score_end - shape.score_begin) + p - shape.score_begin,
             .token = token,
             .target = ids_[static_cast<size_t>(token)],
             .logits = std::span<const float>(logits_).subspan(rows.size() * vocab, vocab)});
      }
    }
    return sink(rows);
  }

  const ScoringSubject& subject_;
  std::span<const TokenId> ids_;
  std::span<const Window> windows_;
  backend::StateStore& state_;
  std::vector<float>& logits_;
  std::vector<int32_t> pages_, slots_;
};

}  // namespace

Result<std::vector<Window>> PlanWindows(int64_t n_tokens, const WindowOptions& options) {
  const int64_t size = options.window_tokens, stride = options.stride_tokens;
  if (size < 4)
    return Fail(Code::kInvalidArgument, "the window is too short to score anything")
        .Where("-c")
        .Found(std::to_string(size))
        .Expected("4 tokens at least");
  if (stride < 0 || stride >= size)
    return Fail(Code::kInvalidArgument, "the stride must leave context before it")
        .Where("--stride")
        .Found(std::to_string(stride))
        .Expected(fmt::format("0 (none) to {}, less than the window", size - 1));
  if (options.whole && stride > 0)
    return Fail(Code::kUsage, "give one of --whole and --stride: a stride says itself what is scored");
  if (n_tokens < size)
    return Fail(Code::kInvalidArgument, "the text is shorter than one window")
        .Found(fmt::format("{} tokens", n_tokens))
        .Expected(fmt::format("{} tokens at least", size))
        .Remedy("give a longer text or a smaller -c");
  std::vector<Window> windows;
  // llama-perplexity's counts. With a stride it leaves out the last window where the text ends exactly with it, but for a text of one window.
  int64_t n = stride > 0 ? std::max<int64_t>(1, (n_tokens - size + stride - 1) / stride) : n_tokens / size;
  if (options.max_windows > 0) n = std::min(n, options.max_windows);
  for (int64_t i = 0; i < n; i++) {
    Window window{.first_token = i * (stride > 0 ? stride : size),
                  .tokens = size,
                  .score_begin = size / 2,
                  .score_end = size - 1};
    if (options.whole) window.score_begin = 0;
    if (stride > 0) window.score_begin = size - stride - 1;
    windows.push_back(window);
  }
  return windows;
}

int64_t CountScored(std::span<const Window> windows) {
  int64_t n = 0;
  for (const Window& w : windows) n += w.score_end - w.score_begin;
  return n;
}

int64_t WindowsPerStep(int64_t window_tokens, int64_t step_tokens) {
  return std::clamp<int64_t>(step_tokens / window_tokens, 1, kMostWindowsPerStep);
}

Status ScoreWindows(const ScoringSubject& subject, std::span<const TokenId> ids, std::span<const Window> windows,
                    const RowSink& sink) {
  if (windows.empty()) return {};
  const int64_t size = windows[0].tokens, page = subject.state.page_tokens;
  const int64_t group = std::min({WindowsPerStep(size, subject.step_tokens), static_cast<int64_t>(windows.size()),
                                  std::max<int64_t>(1, subject.step_rows)});
  backend::StateOptions options = subject.state;
  options.n_pages = group * ((size + page - 1) / page);
  options.n_slots = group;
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<backend::StateStore> state, subject.program->NewState(options));
  std::vector<float> logits(static_cast<size_t>(std::max(group, subject.step_rows) * subject.vocab));
  int64_t index = 0;
  for (size_t first = 0; first < windows.size(); first += static_cast<size_t>(group)) {
    const size_t n = std::min(static_cast<size_t>(group), windows.size() - first);
    GroupRun run(subject, ids, windows.subspan(first, n), *state, logits);
    RIDGE_RETURN_IF_ERROR(run.Run(index, sink));
  }
  return {};
}

std::optional<double> MeanError::error() const {
  if (n_ < 2) return std::nullopt;
  const double n = static_cast<double>(n_), average = sum_ / n;
  return std::sqrt(std::max(0.0, squares_ / n - average * average) / (n - 1));
}

}  // namespace ridge::lab
