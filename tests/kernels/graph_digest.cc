#include "graph_digest.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/backend.h"
#include "inputs.h"
#include "quant/quant.h"

namespace ridge::digest {
namespace {

using graph::Graph;
using graph::ValueId;
using graph::WeightId;
using quant::TypeId;

constexpr int64_t kWidth = 256, kVocab = 37, kHeads = 4, kKvHeads = 2, kDim = 64;
constexpr size_t kTokens = 21;

// Blocks of one type: random bytes, and half-precision scales small enough that all decoded values are below 0.5. Where the scales lie
// is found by decoding blocks with a NaN in one place.
class Blocks {
 public:
  explicit Blocks(const quant::Type& type) : type_(type) {
    std::vector<float> out(type.block_elements);
    for (size_t i = 0; i + 2 <= type.block_bytes; i++) {
      std::vector<std::byte> block(type.block_bytes);
      block[i + 1] = std::byte{0x7e};
      type.decode(block.data(), out.data(), 1);
      for (float v : out) {
        if (!std::isnan(v)) continue;
        halves_.push_back(i);
        break;
      }
    }
    Random random(1);
    std::vector<std::byte> block(type.block_bytes);
    for (int good = 0; good < 50 && exponent_ > 0; good++) {
      if (Draw(block.data(), random) >= 0.5f) exponent_--, good = 0;
    }
  }
  void Fill(std::byte* to, size_t n_blocks, Random& random) const {
    for (size_t b = 0; b < n_blocks; b++, to += type_.block_bytes) {
      while (Draw(to, random) >= 0.5f) continue;
    }
  }

 private:
  // One block; returns its largest magnitude.
  float Draw(std::byte* to, Random& random) const {
    random.Bytes(to, type_.block_bytes);
    for (size_t at : halves_) {
      const uint16_t half = static_cast<uint16_t>((random.Next() & 0x83ff) | static_cast<unsigned>(exponent_ << 10));
      std::memcpy(to + at, &half, 2);
    }
    std::vector<float> out(type_.block_elements);
    type_.decode(to, out.data(), 1);
    float largest = 0;
    for (float v : out) largest = std::isfinite(v) ? std::max(largest, std::abs(v)) : 1e9f;
    return largest;
  }

  const quant::Type& type_;
  std::vector<size_t> halves_;
  int exponent_ = 14;  // of the scales: lowered by the constructor until the values are small
};

class Model {
 public:
  explicit Model(const quant::Type& type) : type_(type), blocks_(type) {
    graph::RopeSpec spec{.interleaved = false, .rotary_dims = kDim, .inv_freq = {}};
    double frequency = 1;
    for (int i = 0; i < kDim / 2; i++, frequency *= 0.75) spec.inv_freq.push_back(frequency);
    const int32_t halves = graph_.AddRope(spec);
    spec.interleaved = true;
    const int32_t pairs = graph_.AddRope(spec);
    ValueId x = graph_.Embed(Matrix(1, kWidth, kVocab), 1.5f);
    x = graph_.Add(x, Attention(100, graph_.RmsNorm(x, Vector(2, kWidth), 1e-5f), halves, 0));
    ValueId y = graph_.RmsNorm(x, Vector(3, kWidth), 1e-5f);
    y = graph_.GatedAct(graph_.MatMul(y, Matrix(4, kWidth, kWidth)), graph_.MatMul(y, Matrix(5, kWidth, kWidth)),
                        graph::Activation::kSilu);
    x = graph_.Add(x, graph_.MatMul(y, Matrix(6, kWidth, kWidth)));
    x = graph_.Add(x, Attention(200, graph_.RmsNorm(x, Vector(7, kWidth), 1e-5f), pairs, 9));
    y = graph_.RmsNorm(x, Vector(8, kWidth), 1e-5f);
    const ValueId router = graph_.MatMul(y, Matrix(9, kWidth, 3, 1, TypeId::kF32));
    y = graph_.Experts(
        y, router, Matrix(10, kWidth, kWidth, 3), Matrix(11, kWidth, kWidth, 3), Matrix(12, kWidth, kWidth, 3),
        {.experts = 3, .used = 2, .activation = graph::Activation::kGeluTanh, .normalize = true, .scale = 1});
    x = graph_.Scale(graph_.Add(x, y), 0.9f);
    x = graph_.RmsNorm(graph_.SelectRows(x), Vector(13, kWidth), 1e-5f);
    graph_.SetOutput(graph_.Softcap(graph_.MatMul(x, Matrix(14, kWidth, kVocab), Vector(15, kVocab)), 20));
  }
  const Graph& graph() const { return graph_; }

 private:
  // The seed is told, for arguments of a call are evaluated in no fixed order.
  WeightId Matrix(uint64_t seed, int64_t k, int64_t n, int64_t experts = 1, TypeId fixed = TypeId::kQ8_1) {
    Random random(seed);
    const quant::Type& type = fixed == TypeId::kF32 ? quant::Get(fixed) : type_;
    const size_t n_blocks = static_cast<size_t>(k * n * experts) / type.block_elements;
    std::vector<std::byte>& data = data_.emplace_back(n_blocks * type.block_bytes);
    if (type.id == TypeId::kF32) {
      const std::vector<float> values = random.Floats(k * n * experts, 0.1f);
      std::memcpy(data.data(), values.data(), data.size());
    } else {
      blocks_.Fill(data.data(), n_blocks, random);
    }
    std::vector<int64_t> shape = {k, n};
    if (experts > 1) shape.push_back(experts);
    return graph_.AddWeight({.name = "matrix" + std::to_string(seed), .type = type.id, .shape = shape, .data = data});
  }
  WeightId Vector(uint64_t seed, int64_t n) {
    Random random(seed);
    std::vector<float> values = random.Floats(n, 0.2f);
    for (float& v : values) v += 1;
    std::vector<std::byte>& data = data_.emplace_back(values.size() * sizeof(float));
    std::memcpy(data.data(), values.data(), data.size());
    return graph_.AddWeight(
        {.name = "vector" + std::to_string(seed), .type = TypeId::kF32, .shape = {n}, .data = data});
  }
  ValueId Attention(uint64_t seed, ValueId x, int32_t rope, int64_t window) {
    ValueId q = graph_.MatMul(x, Matrix(seed + 1, kWidth, kHeads * kDim), Vector(seed + 2, kHeads * kDim));
    ValueId k = graph_.MatMul(x, Matrix(seed + 3, kWidth, kKvHeads * kDim));
    const ValueId v = graph_.MatMul(x, Matrix(seed + 4, kWidth, kKvHeads * kDim));
    q = graph_.Rope(graph_.RmsNorm(q, Vector(seed + 5, kDim), 1e-6f, kHeads), rope, kHeads);
    k = graph_.Rope(graph_.RmsNorm(k, Vector(seed + 6, kDim), 1e-6f, kKvHeads), rope, kKvHeads);
    const int32_t layer = graph_.AddKvLayer({kKvHeads, kDim, window});
    graph_.AppendKv(k, v, layer);
    const ValueId out = graph_.Attention(
        q,
        {.layer = layer, .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim, .scale = 0.125f, .window = window});
    return graph_.MatMul(out, Matrix(seed + 7, kHeads * kDim, kWidth));
  }

  const quant::Type& type_;
  Blocks blocks_;
  std::deque<std::vector<std::byte>> data_;
  Graph graph_;
};

// The hash of the logits of all tokens, computed in chunks of `chunk`; or what went wrong.
std::string Run(const Model& model, const std::string& isa, backend::KvType k_type, backend::KvType v_type,
                size_t chunk, int64_t page) {
  auto program = backend::NewCpuBackend()->Compile(
      model.graph(), {.n_threads = 2, .isa = isa, .max_tokens = kTokens, .max_logit_rows = kTokens});
  if (!program) return program.error().Message();
  const int64_t pages = (static_cast<int64_t>(kTokens) + page - 1) / page;
  auto state = (*program)->NewState({.n_pages = pages, .page_tokens = page, .k_type = k_type, .v_type = v_type});
  if (!state) return state.error().Message();
  std::vector<int32_t> tokens(kTokens), positions(kTokens), table(static_cast<size_t>(pages));
  Random random(99);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.Below(kVocab));
  std::iota(positions.begin(), positions.end(), 0);
  std::iota(table.rbegin(), table.rend(), 0);
  Hash hash;
  for (size_t at = 0; at < kTokens; at += chunk) {
    const size_t n = std::min(chunk, kTokens - at);
    const int32_t seq_start[] = {0, static_cast<int32_t>(n)};
    std::vector<int32_t> rows(n);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> logits(n * static_cast<size_t>(kVocab));
    const Status done = (*program)->Run({.tokens = std::span(tokens).subspan(at, n),
                                         .positions = std::span(positions).subspan(at, n),
                                         .seq_start = seq_start,
                                         .page_table = table,
                                         .logit_rows = rows},
                                        **state, logits);
    if (!done) return done.error().Message();
    for (float v : logits) {
      if (!std::isfinite(v)) return "a logit that is not finite, so the digest proves nothing";
    }
    hash.Floats(logits);
  }
  return hash.Hex();
}

}  // namespace

void PrintGraphs(const std::vector<std::string>& isas) {
  using backend::KvType;
  for (const quant::Type& type : quant::Types()) {
    if (type.decode == nullptr) continue;
    const Model model(type);
    for (const std::string& isa : isas) {
      std::printf("%s graph.%s %s\n", isa.c_str(), std::string(type.name).c_str(),
                  Run(model, isa, KvType::kF16, KvType::kF16, 16, 32).c_str());
    }
    std::fflush(stdout);
  }
  const Model model(quant::Get(TypeId::kQ4_0));
  for (const char* k : {"f16", "bf16", "f32", "q8_0", "q4_0"}) {
    for (const char* v : {"f16", "bf16", "f32", "q8_0", "q4_0"}) {
      const auto k_type = backend::ParseKvType(k), v_type = backend::ParseKvType(v);
      if (!k_type || !v_type) continue;  // not in this build
      for (const std::string& isa : isas)
        std::printf("%s graph.kv.%s.%s %s\n", isa.c_str(), k, v, Run(model, isa, *k_type, *v_type, 5, 16).c_str());
    }
  }
}

}  // namespace ridge::digest
