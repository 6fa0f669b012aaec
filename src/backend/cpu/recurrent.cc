// Recurrent ops of a program: what is computed together, and by whom. Neither changes a bit of the result.
#include <algorithm>
#include <cstring>

#include "backend/cpu/program.h"
#include "base/math.h"

namespace ridge::cpu {
namespace {

using graph::Op;

constexpr int64_t kConvChannels = 128;  // of one unit of convolution
constexpr int64_t kConvGrain = 8192;    // values of one claim of it
constexpr int64_t kUnitsPerThread = 4;  // heads are cut into columns where there are fewer

// log(1 + e^x); above 40 the 1 is lost in the rounding.
double Softplus(double x) { return x > 40 ? x : Log1p(Exp(x)); }

}  // namespace

void CpuProgram::RunShortConv(const Op& op) {
  const graph::StateLayer& spec = graph_->state_layers()[static_cast<size_t>(op.state)];
  const float *x = Data(op.in[0]), *weight = weights_.vector(op.weights[0]);
  float* out = Data(op.out);
  const int64_t channels = spec.channels, taps = spec.taps, kept_rows = taps - 1;
  const int64_t blocks = (channels + kConvChannels - 1) / kConvChannels;
  const int64_t seqs = static_cast<int64_t>(step_->state_slots.size());
  const int64_t unit_values = static_cast<int64_t>(step_->tokens.size()) / seqs * kConvChannels;
  const size_t grain = static_cast<size_t>(std::max<int64_t>(1, kConvGrain / unit_values));
  pool_->ParallelFor(static_cast<size_t>(seqs * blocks), grain, [&](size_t begin, size_t end, int) {
    for (int64_t unit = static_cast<int64_t>(begin); unit < static_cast<int64_t>(end); unit++) {
      const size_t s = static_cast<size_t>(unit / blocks);
      const int64_t channel = unit % blocks * kConvChannels, n = std::min(kConvChannels, channels - channel);
      const int64_t first = step_->seq_start[s], count = step_->seq_start[s + 1] - first;
      float* kept = state_->conv(step_->state_slots[s], op.state) + channel;
      const float* rows_of_step = x + first * channels + channel;
      const auto row = [&](int64_t t) {
        return t >= 0 ? rows_of_step + t * channels : kept + (t + kept_rows) * channels;
      };
      const size_t bytes = static_cast<size_t>(n) * sizeof(float);
      if (step_->positions[static_cast<size_t>(first)] == 0) {
        for (int64_t r = 0; r < kept_rows; r++) std::memset(kept + r * channels, 0, bytes);
      }
      const float* rows[kMaxConvTaps];
      for (int64_t t = 0; t < count; t++) {
        for (int64_t j = 0; j < taps; j++) rows[j] = row(t + j - kept_rows);
        kernels_->short_conv(rows, weight + channel, taps, channels, n, out + (first + t) * channels + channel);
      }
      for (const backend::StateSave& save : step_->state_saves) {
        if (static_cast<size_t>(save.sequence) != s) continue;
        float* to = state_->conv(save.slot, op.state) + channel;
        for (int64_t r = 0; r < kept_rows; r++) std::memcpy(to + r * channels, row(save.tokens - kept_rows + r), bytes);
      }
      // Oldest first: a kept row moves to an older place only.
      for (int64_t r = 0; r < kept_rows; r++) std::memcpy(kept + r * channels, row(count - kept_rows + r), bytes);
    }
  });
}

void CpuProgram::RunDeltaRule(const Op& op) {
  const graph::StateLayer& spec = graph_->state_layers()[static_cast<size_t>(op.state)];
  const int64_t key_heads = op.groups, heads = spec.heads, key_dim = spec.key_dim, value_dim = spec.value_dim;
  const float *qkv = Data(op.in[0]), *alpha = Data(op.in[1]), *beta = Data(op.in[2]);
  const float *a = weights_.vector(op.weights[0]), *dt_bias = weights_.vector(op.weights[1]);
  float* out = Data(op.out);
  const int64_t cols = graph_->value(op.in[0]).cols, blocks = value_dim / 16;
  const int64_t jobs = static_cast<int64_t>(step_->state_slots.size()) * heads;
  const int64_t parts = std::clamp<int64_t>((kUnitsPerThread * pool_->size() + jobs - 1) / jobs, 1, blocks);
  pool_->ParallelFor(static_cast<size_t>(jobs * parts), 1, [&](size_t begin, size_t end, int worker) {
    float decays[kDeltaTokens], betas[kDeltaTokens];
    for (int64_t unit = static_cast<int64_t>(begin); unit < static_cast<int64_t>(end); unit++) {
      const size_t s = static_cast<size_t>(unit / parts / heads);
      const int64_t part = unit % parts, h = unit / parts % heads, first = step_->seq_start[s];
      DeltaRuleArgs args{.key_dim = key_dim,
                         .stride = cols,
                         .decay = decays,
                         .beta = betas,
                         .eps = op.scalar,
                         .state = state_->matrices(step_->state_slots[s], op.state) + h * key_dim * value_dim,
                         .block_begin = blocks * part / parts,
                         .block_end = blocks * (part + 1) / parts,
                         .out_stride = heads * value_dim,
                         .scratch = worker_tile_[static_cast<size_t>(worker)]};
      if (step_->positions[static_cast<size_t>(first)] == 0) {
        std::fill(args.state + args.block_begin * key_dim * 16, args.state + args.block_end * key_dim * 16, 0.0f);
      }
      const int64_t from = args.block_begin * key_dim * 16, to = args.block_end * key_dim * 16;
      for (int64_t t = first; t < step_->seq_start[s + 1]; t += args.n_tokens) {
        args.n_tokens = std::min<int64_t>(kDeltaTokens, step_->seq_start[s + 1] - t);
        for (const backend::StateSave& save : step_->state_saves) {
          if (static_cast<size_t>(save.sequence) == s && first + save.tokens > t)
            args.n_tokens = std::min(args.n_tokens, first + save.tokens - t);
        }
        for (int64_t i = 0; i < args.n_tokens; i++) {
          const int64_t at = (t + i) * heads + h;
          const double step = Softplus(static_cast<double>(alpha[at]) + static_cast<double>(dt_bias[h]));
          decays[i] = static_cast<float>(Exp(static_cast<double>(a[h]) * step));
          betas[i] = static_cast<float>(1.0 / (1.0 + Exp(-static_cast<double>(beta[at]))));
        }
        args.q = qkv + t * cols + h % key_heads * key_dim;
        args.k = args.q + key_heads * key_dim;
        args.v = qkv + t * cols + 2 * key_heads * key_dim + h * value_dim;
        args.out = out + t * args.out_stride + h * value_dim;
        kernels_->delta_rule(args);
        for (const backend::StateSave& save : step_->state_saves) {
          if (static_cast<size_t>(save.sequence) != s || first + save.tokens != t + args.n_tokens) continue;
          float* kept = state_->matrices(save.slot, op.state) + h * key_dim * value_dim;
          std::copy(args.state + from, args.state + to, kept + from);
        }
      }
    }
  });
}

// The slots as the step will leave them.
void CpuProgram::NoteSlots() {
  for (size_t s = 0; s < step_->state_slots.size(); s++)
    state_->SetSlotTokens(step_->state_slots[s],
                          step_->positions[static_cast<size_t>(step_->seq_start[s + 1]) - 1] + 1);
  for (const backend::StateSave& save : step_->state_saves) {
    const int32_t first = step_->seq_start[static_cast<size_t>(save.sequence)];
    state_->SetSlotTokens(save.slot, step_->positions[static_cast<size_t>(first + save.tokens) - 1] + 1);
  }
}

Status CpuProgram::CheckSlots(const backend::Step& step, const PagedState& state) const {
  const auto bad = [](std::string what) -> Status {
    return Fail(Code::kInvalidArgument, "step does not fit the state slots").Found(std::move(what));
  };
  if (graph_->state_layers().empty()) {
    if (!step.state_slots.empty() || !step.state_saves.empty())
      return bad("slots for a model without recurrent layers");
    return {};
  }
  if (step.state_slots.size() + 1 != step.seq_start.size()) return bad("not one slot for each sequence");
  for (size_t s = 0; s < step.state_slots.size(); s++) {
    const int32_t slot = step.state_slots[s];
    if (slot < 0 || slot >= state.n_slots()) return bad("slot " + std::to_string(slot));
    const auto before = step.state_slots.first(s);
    if (std::ranges::find(before, slot) != before.end()) return bad("slot " + std::to_string(slot) + " twice");
    const size_t first = static_cast<size_t>(step.seq_start[s]), end = static_cast<size_t>(step.seq_start[s + 1]);
    if (first >= end) return bad("a sequence without tokens");
    const int64_t begin = step.positions[first];
    if (begin != 0 && begin != state.slot_tokens(slot)) {
      return Fail(Code::kInvalidArgument, "a sequence does not go on where its state stands")
          .Where("slot " + std::to_string(slot))
          .Found("position " + std::to_string(begin))
          .Expected("0 or " + std::to_string(state.slot_tokens(slot)));
    }
    for (size_t t = first; t < end; t++) {
      if (step.positions[t] != begin + static_cast<int64_t>(t - first)) return bad("positions with a gap");
    }
  }
  for (size_t i = 0; i < step.state_saves.size(); i++) {
    const backend::StateSave& save = step.state_saves[i];
    const size_t s = static_cast<size_t>(save.sequence);
    if (save.sequence < 0 || s >= step.state_slots.size()) return bad("a save of no sequence");
    if (save.tokens < 1 || save.tokens > step.seq_start[s + 1] - step.seq_start[s]) return bad("a save of no token");
    if (save.slot < 0 || save.slot >= state.n_slots()) return bad("slot " + std::to_string(save.slot));
    const auto same = [&](const backend::StateSave& other) { return other.slot == save.slot; };
    if (std::ranges::find(step.state_slots, save.slot) != step.state_slots.end() ||
        std::ranges::any_of(step.state_saves.first(i), same))
      return bad("slot " + std::to_string(save.slot) + " twice");
  }
  return {};
}

}  // namespace ridge::cpu
