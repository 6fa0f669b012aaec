// Recurrent layers in a whole program: against the definition in double precision, and every way of cutting, sharing and resuming that must not matter.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "quant/quant.h"

namespace ridge::backend {
namespace {

using graph::Graph;
using graph::ValueId;
using graph::WeightId;

constexpr int64_t kWidth = 48, kVocab = 29, kKeyHeads = 2, kHeads = 4, kKeyDim = 16, kValueDim = 32, kTaps = 4;
constexpr int64_t kKeys = kKeyHeads * kKeyDim, kChannels = 2 * kKeys + kHeads * kValueDim;
constexpr float kEps = 1e-6f;

// Two recurrent layers, one behind the other; the second also has a norm and a gate.
class Model {
 public:
  Model() {
    ValueId x = graph_.Embed(Matrix(kWidth, kVocab, 1), 1);
    x = graph_.Add(x, graph_.MatMul(Delta(x), Matrix(kHeads * kValueDim, kWidth, 0.1f)));
    ValueId y = graph_.RmsNorm(Delta(x), Vector(kValueDim, 1, 0.1f), 1e-5f, kHeads);
    const ValueId gates = graph_.MatMul(x, Matrix(kWidth, 2 * kHeads * kValueDim, 0.2f));
    y = graph_.GatedAct(graph_.Slice(gates, kHeads, kValueDim, kValueDim), y, graph::Activation::kSigmoid);
    graph_.SetOutput(graph_.MatMul(graph_.SelectRows(y), Matrix(kHeads * kValueDim, kVocab, 0.2f)));
  }
  const Graph& graph() const { return graph_; }
  // Logits of the last of these tokens, in double.
  std::vector<double> Exact(const std::vector<int32_t>& tokens) const;

 private:
  WeightId Add(std::vector<int64_t> shape, std::vector<float> values) {
    const std::vector<float>& kept = data_.emplace_back(std::move(values));
    return graph_.AddWeight({.name = "w" + std::to_string(data_.size()),
                             .type = quant::TypeId::kF32,
                             .shape = std::move(shape),
                             .data = std::as_bytes(std::span(kept))});
  }
  std::vector<float> Values(int64_t n, float around, float spread) {
    std::normal_distribution<float> normal(around, spread);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) v = normal(rng_);
    return values;
  }
  WeightId Matrix(int64_t k, int64_t n, float spread) { return Add({k, n}, Values(k * n, 0, spread)); }
  WeightId Vector(int64_t n, float around, float spread) { return Add({n}, Values(n, around, spread)); }
  ValueId Delta(ValueId x) {
    const int32_t state = graph_.AddStateLayer(
        {.taps = kTaps, .channels = kChannels, .heads = kHeads, .key_dim = kKeyDim, .value_dim = kValueDim});
    const ValueId qkv = graph_.MatMul(x, Matrix(kWidth, kChannels, 0.2f));
    const ValueId alpha = graph_.MatMul(x, Matrix(kWidth, kHeads, 0.2f));
    const ValueId beta = graph_.MatMul(x, Matrix(kWidth, kHeads, 0.2f));
    const ValueId mixed = graph_.ShortConv(qkv, Matrix(kTaps, kChannels, 0.6f), state);
    return graph_.DeltaRule(mixed, alpha, beta, Vector(kHeads, -1, 0.2f), Vector(kHeads, -2, 0.5f), kKeyHeads, kEps,
                            state);
  }

  std::mt19937 rng_{5};
  std::deque<std::vector<float>> data_;
  Graph graph_;
};

// The ops of graph.h by the letter.
std::vector<double> Model::Exact(const std::vector<int32_t>& tokens) const {
  using Rows = std::vector<std::vector<double>>;
  std::vector<Rows> values(graph_.values().size(), Rows(tokens.size()));
  const auto weight = [&](const graph::Op& op, size_t i) {
    return reinterpret_cast<const float*>(graph_.weight(op.weights[i]).data.data());
  };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (const graph::Op& op : graph_.ops()) {
    Rows& out = values[static_cast<size_t>(op.out)];
    const auto in = [&](size_t i) -> const Rows& { return values[static_cast<size_t>(op.in[i])]; };
    const size_t cols = static_cast<size_t>(graph_.value(op.out).cols);
    std::vector<std::vector<double>> matrices(kHeads, std::vector<double>(kKeyDim * kValueDim, 0.0));
    for (size_t t = 0; t < tokens.size(); t++) {
      out[t].assign(cols, 0.0);
      for (size_t c = 0; c < cols; c++) {
        switch (op.kind) {
          case graph::OpKind::kEmbed: out[t][c] = weight(op, 0)[static_cast<size_t>(tokens[t]) * cols + c]; break;
          case graph::OpKind::kAdd: out[t][c] = in(0)[t][c] + in(1)[t][c]; break;
          case graph::OpKind::kSelectRows: out[t][c] = in(0)[t][c]; break;
          case graph::OpKind::kGatedAct: out[t][c] = sigmoid(in(0)[t][c]) * in(1)[t][c]; break;
          case graph::OpKind::kMatMul:
            for (size_t k = 0; k < in(0)[t].size(); k++)
              out[t][c] += static_cast<double>(weight(op, 0)[c * in(0)[t].size() + k]) * in(0)[t][k];
            break;
          case graph::OpKind::kSlice:
            out[t][c] = in(0)[t][c / kValueDim * 2 * kValueDim + kValueDim + c % kValueDim];
            break;
          case graph::OpKind::kRmsNorm: {
            double sum = 0;
            for (size_t i = 0; i < kValueDim; i++) sum += std::pow(in(0)[t][c / kValueDim * kValueDim + i], 2);
            out[t][c] = in(0)[t][c] / std::sqrt(sum / kValueDim + 1e-5) * weight(op, 0)[c % kValueDim];
            break;
          }
          case graph::OpKind::kShortConv:
            for (size_t j = 0; j < kTaps; j++) {
              if (t + j >= kTaps - 1) out[t][c] += weight(op, 0)[c * kTaps + j] * in(0)[t + j - (kTaps - 1)][c];
            }
            out[t][c] *= sigmoid(out[t][c]);
            break;
          case graph::OpKind::kDeltaRule: {
            if (c % kValueDim != 0) break;  // a head at a time
            const size_t h = c / kValueDim, key_head = h % kKeyHeads;
            double *s = matrices[h].data(), q[kKeyDim], k[kKeyDim], q_sum = kEps, k_sum = kEps;
            for (size_t i = 0; i < kKeyDim; i++) {
              q[i] = in(0)[t][key_head * kKeyDim + i], k[i] = in(0)[t][kKeys + key_head * kKeyDim + i];
              q_sum += q[i] * q[i], k_sum += k[i] * k[i];
            }
            for (double& v : q) v /= std::sqrt(q_sum * kKeyDim);
            for (double& v : k) v /= std::sqrt(k_sum);
            const double decay =
                std::exp(weight(op, 0)[h] * std::log1p(std::exp(in(1)[t][h] + static_cast<double>(weight(op, 1)[h]))));
            for (size_t v = 0; v < kValueDim; v++) {
              double known = 0;
              for (size_t i = 0; i < kKeyDim; i++) known += k[i] * (s[i * kValueDim + v] *= decay);
              const double delta = sigmoid(in(2)[t][h]) * (in(0)[t][2 * kKeys + c + v] - known);
              for (size_t i = 0; i < kKeyDim; i++) out[t][c + v] += q[i] * (s[i * kValueDim + v] += k[i] * delta);
            }
            break;
          }
          default: ADD_FAILURE() << Name(op.kind);
        }
        if (op.kind == graph::OpKind::kDeltaRule) c += kValueDim - 1;
      }
    }
  }
  return values[static_cast<size_t>(graph_.output())].back();
}

std::vector<int32_t> Tokens(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng() % kVocab);
  return tokens;
}

// A program, its state, and sequences that are fed piece by piece.
struct Session {
  explicit Session(const Model& model, int threads = 1, const std::string& isa = "", int64_t n_slots = 8) {
    program = std::move(*NewCpuBackend()->Compile(
        model.graph(), {.n_threads = threads, .isa = isa, .max_tokens = 256, .max_logit_rows = 16}));
    state = std::move(*program->NewState({.n_pages = 1, .n_slots = n_slots}));
  }
  struct Piece {
    int32_t slot;
    int64_t begin;
    std::vector<int32_t> tokens;
  };
  // Logits of the last token of each piece.
  Result<std::vector<std::vector<float>>> Step(const std::vector<Piece>& pieces,
                                               const std::vector<StateSave>& saves = {}) {
    std::vector<int32_t> tokens, positions, seq_start = {0}, rows, slots, table;
    for (const Piece& p : pieces) {
      tokens.insert(tokens.end(), p.tokens.begin(), p.tokens.end());
      for (size_t i = 0; i < p.tokens.size(); i++)
        positions.push_back(static_cast<int32_t>(p.begin) + static_cast<int32_t>(i));
      seq_start.push_back(static_cast<int32_t>(tokens.size()));
      rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
      slots.push_back(p.slot);
      table.insert(table.end(), 64, 0);
    }
    std::vector<float> logits(pieces.size() * kVocab);
    RIDGE_RETURN_IF_ERROR(program->Run({.tokens = tokens,
                                        .positions = positions,
                                        .seq_start = seq_start,
                                        .page_table = table,
                                        .logit_rows = rows,
                                        .state_slots = slots,
                                        .state_saves = saves},
                                       *state, logits));
    std::vector<std::vector<float>> result;
    for (size_t i = 0; i < pieces.size(); i++)
      result.emplace_back(logits.begin() + static_cast<std::ptrdiff_t>(i * kVocab),
                          logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * kVocab));
    return result;
  }
  std::vector<float> Feed(int32_t slot, const std::vector<int32_t>& tokens, size_t begin, size_t end, size_t chunk) {
    std::vector<float> last;
    for (size_t at = begin; at < end; at += chunk) {
      const size_t n = std::min(chunk, end - at);
      auto step = Step(
          {{slot,
            static_cast<int64_t>(at),
            {tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.begin() + static_cast<std::ptrdiff_t>(at + n)}}});
      EXPECT_TRUE(step) << (step ? "" : step.error().Message());
      if (step) last = step->front();
    }
    return last;
  }
  std::unique_ptr<Program> program;
  std::unique_ptr<StateStore> state;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Recurrent, FollowsItsDefinition) {
  const Model model;
  for (size_t n : {1u, 2u, 5u, 77u}) {
    const std::vector<int32_t> tokens = Tokens(n, 3);
    const std::vector<double> exact = model.Exact(tokens);
    const std::vector<float> found = Session(model).Feed(0, tokens, 0, n, n);
    double largest = 0;
    for (double v : exact) largest = std::max(largest, std::abs(v));
    ASSERT_GT(largest, 0.05);
    for (size_t i = 0; i < exact.size(); i++)
      EXPECT_NEAR(found[i], exact[i], 1e-4 * largest) << n << " tokens, logit " << i;
  }
}

TEST(Recurrent, ThreadsIsaAndChunksChangeNoBit) {
  const Model model;
  const std::vector<int32_t> tokens = Tokens(101, 4);
  const std::vector<float> want = Session(model).Feed(0, tokens, 0, 101, 101);
  for (const IsaInfo& isa : CpuIsas()) {
    if (!isa.supported) continue;
    EXPECT_TRUE(SameBits(want, Session(model, 2, isa.name).Feed(1, tokens, 0, 101, 40))) << isa.name;
  }
  for (int threads : {2, 3, 5}) {
    for (size_t chunk : {1u, 2u, 3u, 16u, 17u, 100u})
      EXPECT_TRUE(SameBits(want, Session(model, threads).Feed(0, tokens, 0, 101, chunk)))
          << threads << " threads, chunk " << chunk;
  }
}

TEST(Recurrent, ABatchAnswersAsEachAloneAndAFreshSequenceForgetsTheSlot) {
  const Model model;
  Session together(model, 3);
  std::vector<std::vector<int32_t>> prompts;
  for (uint32_t i = 0; i < 6; i++) prompts.push_back(Tokens(1 + 13 * i % 30, i));
  for (int round = 0; round < 2; round++) {  // the second finds slots that others have used
    std::vector<Session::Piece> begins, ends;
    for (int32_t i = 0; i < 6; i++) {
      const std::vector<int32_t>& p = prompts[static_cast<size_t>(i)];
      const int32_t slot = (i + round) % 6;
      begins.push_back({slot, 0, p});
      ends.push_back({slot, static_cast<int64_t>(p.size()), {7}});
    }
    const auto first = together.Step(begins), second = together.Step(ends);
    ASSERT_TRUE(first && second);
    for (size_t i = 0; i < 6; i++) {
      std::vector<int32_t> all = prompts[i];
      EXPECT_TRUE(SameBits((*first)[i], Session(model).Feed(0, all, 0, all.size(), 5))) << i;
      all.push_back(7);
      EXPECT_TRUE(SameBits((*second)[i], Session(model).Feed(0, all, 0, all.size(), 4))) << i;
    }
  }
}

TEST(Recurrent, ACopiedSlotGoesOnWhereTheOtherStood) {
  const Model model;
  Session run(model, 2);
  const std::vector<int32_t> tokens = Tokens(60, 8);
  const std::vector<float> want = Session(model).Feed(0, tokens, 0, 60, 60);
  run.Feed(0, tokens, 0, 33, 33);
  run.state->CopySlot(0, 5);
  EXPECT_EQ(run.state->slot_tokens(5), 33);
  EXPECT_TRUE(SameBits(want, run.Feed(0, tokens, 33, 60, 9)));
  const std::vector<int32_t> other = Tokens(40, 9);
  run.Feed(0, other, 0, 40, 40);  // leaves the copy alone
  run.state->CopySlot(5, 2);
  EXPECT_TRUE(SameBits(want, run.Feed(2, tokens, 33, 60, 27)));
  EXPECT_TRUE(SameBits(want, run.Feed(5, tokens, 33, 60, 1)));
  run.state->ClearSlot(5);
  EXPECT_EQ(run.state->slot_tokens(5), 0);
}

TEST(Recurrent, ASaveOnTheWayIsTheStateThere) {
  const Model model;
  const std::vector<int32_t> tokens = Tokens(60, 8), other = Tokens(9, 2);
  const std::vector<float> want = Session(model).Feed(0, tokens, 0, 60, 60);
  for (int threads : {1, 3}) {
    Session run(model, threads);
    run.Feed(0, tokens, 0, 2, 2);
    const std::vector<int32_t> rest(tokens.begin() + 2, tokens.end());
    const auto step = run.Step({{6, 0, other}, {0, 2, rest}}, {{.sequence = 1, .tokens = 30, .slot = 1},
                                                               {.sequence = 1, .tokens = 1, .slot = 2},
                                                               {.sequence = 0, .tokens = 9, .slot = 3},
                                                               {.sequence = 1, .tokens = 58, .slot = 4}});
    ASSERT_TRUE(step) << step.error().Message();
    EXPECT_TRUE(SameBits(want, (*step)[1]));
    EXPECT_EQ(run.state->slot_tokens(4), 60);
    EXPECT_TRUE(SameBits(want, run.Feed(1, tokens, 32, 60, 11)));
    EXPECT_TRUE(SameBits(want, run.Feed(2, tokens, 3, 60, 57)));
    std::vector<int32_t> longer = other;
    longer.push_back(5);
    EXPECT_TRUE(SameBits(Session(model).Feed(0, longer, 0, 10, 10), run.Feed(3, longer, 9, 10, 1)));
  }
}

TEST(Recurrent, RefusesAStepThatDoesNotFitTheSlots) {
  const Model model;
  Session run(model, 1, "", 2);
  EXPECT_GE(run.state->size_bytes(), 2 * run.state->slot_bytes());
  EXPECT_GE(run.state->slot_bytes(), 2 * 4u * (kHeads * kKeyDim * kValueDim + (kTaps - 1) * kChannels));
  const auto code = [&](const std::vector<Session::Piece>& pieces) {
    const auto step = run.Step(pieces);
    return step ? std::nullopt : std::optional(step.error().code);
  };
  EXPECT_EQ(code({{0, 0, {1, 2, 3}}}), std::nullopt);
  EXPECT_EQ(code({{0, 2, {4}}}), Code::kInvalidArgument) << "token 2 again";
  EXPECT_EQ(code({{0, 4, {4}}}), Code::kInvalidArgument) << "a token left out";
  EXPECT_EQ(code({{1, 3, {4}}}), Code::kInvalidArgument) << "another's slot";
  EXPECT_EQ(code({{2, 0, {4}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{-1, 0, {4}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{1, 0, {4}}, {1, 0, {5}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{0, 3, {4}}, {1, 0, {5}}}), std::nullopt);
  for (const StateSave& save : {StateSave{0, 1, 0}, StateSave{0, 0, 1}, StateSave{0, 2, 1}, StateSave{1, 1, 1},
                                StateSave{-1, 1, 1}, StateSave{0, 1, 2}})
    EXPECT_FALSE(run.Step({{0, 4, {4}}}, {save})) << save.sequence << " " << save.tokens << " " << save.slot;
  EXPECT_FALSE(
      run.Step({{0, 0, {4, 5}}}, {{.sequence = 0, .tokens = 1, .slot = 1}, {.sequence = 0, .tokens = 2, .slot = 1}}));
  const std::vector<int32_t> one = {1}, zero = {0}, seq_start = {0, 1};
  std::vector<float> logits(kVocab);
  EXPECT_FALSE(run.program->Run(
      {.tokens = one, .positions = zero, .seq_start = seq_start, .page_table = zero, .logit_rows = zero}, *run.state,
      logits))
      << "no slots named";
  EXPECT_FALSE(run.program->NewState({.n_pages = 1, .n_slots = 0}));
}

TEST(Recurrent, TheCostOfStateGrowsWithSequencesAndNotWithContext) {
  const Model model;
  const auto bytes = [&](double sequences, double context) {
    double sum = 0;
    for (const graph::Op& op : model.graph().ops()) {
      if (op.kind == graph::OpKind::kDeltaRule)
        sum += graph::CostOf(model.graph(), op, {.tokens = sequences, .context = context, .sequences = sequences})
                   .bytes_read;
    }
    return sum;
  };
  EXPECT_EQ(bytes(1, 0), 2.0 * 4 * kHeads * kKeyDim * kValueDim);
  EXPECT_EQ(bytes(1, 5000), bytes(1, 0));
  EXPECT_EQ(bytes(3, 0), 3 * bytes(1, 0));
}

}  // namespace
}  // namespace ridge::backend
