// The numerics contract on a whole program: a small model with every op, run in every way that must not matter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/state.h"
#include "backend/cpu/test_rows.h"
#include "quant/quant.h"

namespace ridge::backend {
namespace {

using graph::Graph;
using graph::ValueId;
using graph::WeightId;
using quant::TypeId;

constexpr int64_t kWidth = 256, kVocab = 77, kHeads = 6, kKvHeads = 2, kDim = 32, kHidden = 512;

// A random model: two attention blocks (one with a window, one with a norm behind it), a gated FFN and an expert layer, which computes only the
// rows that give logits; each matrix of the type that `types` names in turn.
class TestModel {
 public:
  explicit TestModel(std::vector<TypeId> types) : types_(std::move(types)) {
    const int32_t rope = graph_.AddRope(Rope(false)), rope2 = graph_.AddRope(Rope(true));
    ValueId x = graph_.Embed(Matrix("token_embd", kWidth, kVocab), 1.5f);
    x = graph_.Add(x, Attention(graph_.RmsNorm(x, Vector(kWidth), 1e-5f), rope, 0));
    ValueId y = graph_.RmsNorm(x, Vector(kWidth), 1e-5f);
    y = graph_.GatedAct(graph_.MatMul(y, Matrix("gate", kWidth, kHidden)),
                        graph_.MatMul(y, Matrix("up", kWidth, kHidden)), graph::Activation::kSilu);
    x = graph_.Add(x, graph_.MatMul(y, Matrix("down", kHidden, kWidth)));
    y = graph_.SelectRows(Attention(graph_.RmsNorm(x, Vector(kWidth), 1e-5f), rope2, 40));
    x = graph_.SelectRows(x);
    x = graph_.Add(x, graph_.RmsNorm(y, Vector(kWidth), 1e-5f));
    y = graph_.RmsNorm(x, Vector(kWidth), 1e-5f);
    const ValueId router = graph_.MatMul(y, Matrix("router", kWidth, 5, 1, TypeId::kF32));
    y = graph_.Experts(
        y, router, Matrix("gates", kWidth, kHidden, 5), Matrix("ups", kWidth, kHidden, 5),
        Matrix("downs", kHidden, kWidth, 5),
        {.experts = 5, .used = 2, .activation = graph::Activation::kGeluTanh, .normalize = true, .scale = 1});
    x = graph_.Scale(graph_.Add(x, y), 0.9f);
    x = graph_.RmsNorm(x, Vector(kWidth), 1e-5f);
    graph_.SetOutput(graph_.Softcap(graph_.MatMul(x, Matrix("output", kWidth, kVocab), Vector(kVocab)), 20));
  }
  const Graph& graph() const { return graph_; }

 private:
  graph::RopeSpec Rope(bool interleaved) {
    graph::RopeSpec spec{.interleaved = interleaved, .rotary_dims = kDim, .inv_freq = {}};
    for (int i = 0; i < kDim / 2; i++) spec.inv_freq.push_back(std::pow(1e4, -i / 16.0));
    return spec;
  }
  WeightId Matrix(const std::string& name, int64_t k, int64_t n, int64_t experts = 1,
                  std::optional<TypeId> fixed = std::nullopt) {
    const quant::Type& type = quant::Get(fixed ? *fixed : types_[next_++ % types_.size()]);
    data_.push_back(cpu::TestRows(type, static_cast<size_t>(k * n * experts), static_cast<uint32_t>(rng_())));
    return graph_.AddWeight({.name = name + ".weight",
                             .type = type.id,
                             .shape = experts > 1 ? std::vector<int64_t>{k, n, experts} : std::vector<int64_t>{k, n},
                             .data = data_.back()});
  }
  WeightId Vector(int64_t n) {
    std::normal_distribution<float> normal(1, 0.1f);
    data_.emplace_back(static_cast<size_t>(n) * sizeof(float));
    for (int64_t i = 0; i < n; i++) reinterpret_cast<float*>(data_.back().data())[i] = normal(rng_);
    return graph_.AddWeight(
        {.name = "norm" + std::to_string(data_.size()), .type = TypeId::kF32, .shape = {n}, .data = data_.back()});
  }
  ValueId Attention(ValueId x, int32_t rope, int64_t window) {
    ValueId q = graph_.MatMul(x, Matrix("q", kWidth, kHeads * kDim), Vector(kHeads * kDim));
    ValueId k = graph_.MatMul(x, Matrix("k", kWidth, kKvHeads * kDim));
    const ValueId v = graph_.MatMul(x, Matrix("v", kWidth, kKvHeads * kDim));
    q = graph_.Rope(graph_.RmsNorm(q, Vector(kDim), 1e-6f, kHeads), rope, kHeads);
    if (window > 0) k = graph_.RmsNorm(k, Vector(kDim), 1e-6f, kKvHeads);
    k = graph_.Rope(k, rope, kKvHeads);
    const int32_t layer = graph_.AddKvLayer({kKvHeads, kDim, window});
    graph_.AppendKv(k, v, layer);
    return graph_.MatMul(
        graph_.Attention(
            q,
            {.layer = layer, .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim, .scale = 0.2f, .window = window}),
        Matrix("o", kHeads * kDim, kWidth, 1, TypeId::kQ8_0));
  }

  std::vector<TypeId> types_;
  size_t next_ = 0;
  std::mt19937 rng_{42};
  std::deque<std::vector<std::byte>> data_;
  Graph graph_;
};

struct Setting {
  std::string isa;
  int threads = 1;
  int64_t chunk = 64, page = 32;
  KvType kv = KvType::kF16;
  std::optional<KvType> v = std::nullopt;  // where it is not as K
  bool flash = true;
  std::string fusion = "on";
};

std::vector<int32_t> Tokens(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng() % kVocab);
  return tokens;
}

std::unique_ptr<Program> Compile(const TestModel& model, const Setting& s, int64_t max_tokens) {
  auto program = NewCpuBackend()->Compile(model.graph(), {.n_threads = s.threads,
                                                          .isa = s.isa,
                                                          .max_tokens = max_tokens,
                                                          .max_logit_rows = max_tokens,
                                                          .passes = *graph::ParsePasses(s.fusion)});
  EXPECT_TRUE(program) << (program ? "" : program.error().Message());
  return std::move(*program);
}

// Logits of all positions, chunk by chunk.
std::vector<float> Logits(const TestModel& model, const std::vector<int32_t>& tokens, const Setting& s) {
  const auto program = Compile(model, s, s.chunk);
  const int64_t pages = (static_cast<int64_t>(tokens.size()) + s.page - 1) / s.page;
  const auto state = std::move(*program->NewState({.n_pages = pages,
                                                   .page_tokens = s.page,
                                                   .k_type = s.kv,
                                                   .v_type = s.v.value_or(s.kv),
                                                   .flash_attention = s.flash}));
  std::vector<int32_t> table(static_cast<size_t>(pages)), positions(tokens.size());
  std::iota(table.rbegin(), table.rend(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<float> logits(tokens.size() * kVocab);
  for (size_t at = 0; at < tokens.size(); at += static_cast<size_t>(s.chunk)) {
    const size_t n = std::min(tokens.size() - at, static_cast<size_t>(s.chunk));
    const int32_t seq_start[] = {0, static_cast<int32_t>(n)};
    std::vector<int32_t> rows(n);
    std::iota(rows.begin(), rows.end(), 0);
    const Status done = program->Run({.tokens = std::span(tokens).subspan(at, n),
                                      .positions = std::span(positions).subspan(at, n),
                                      .seq_start = seq_start,
                                      .page_table = table,
                                      .logit_rows = rows},
                                     *state, std::span(logits).subspan(at * kVocab));
    EXPECT_TRUE(done) << (done ? "" : done.error().Message());
  }
  return logits;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<TypeId> FastTypes() {
  std::vector<TypeId> types;
  for (const quant::Type& type : quant::Types()) {
    if (cpu::PanelFor(type.id)) types.push_back(type.id);
  }
  return types;
}

class Contract : public ::testing::TestWithParam<std::vector<TypeId>> {};

TEST_P(Contract, ThreadsIsaChunksAndPagesChangeNoBit) {
  const TestModel model(GetParam());
  const std::vector<int32_t> tokens = Tokens(150, 7);
  const std::vector<float> want = Logits(model, tokens, {});
  for (float v : want) ASSERT_TRUE(std::isfinite(v));
  for (const IsaInfo& isa : CpuIsas()) {
    if (isa.supported) {
      EXPECT_TRUE(SameBits(want, Logits(model, tokens, {.isa = isa.name}))) << isa.name;
    }
  }
  for (int threads : {2, 3, 4})
    EXPECT_TRUE(SameBits(want, Logits(model, tokens, {.isa = "", .threads = threads}))) << threads << " threads";
  for (int64_t chunk : {1, 7, 32, 150})
    EXPECT_TRUE(SameBits(want, Logits(model, tokens, {.isa = "", .threads = 2, .chunk = chunk}))) << "chunk " << chunk;
  for (int64_t page : {16, 64, 512})
    EXPECT_TRUE(SameBits(want, Logits(model, tokens, {.isa = "", .page = page}))) << "page " << page;
}

// Each pass alone, each left out, and all off, over everything else that must not matter.
TEST_P(Contract, FusionChangesNoBit) {
  const TestModel model(GetParam());
  const std::vector<int32_t> tokens = Tokens(70, 9);
  const std::vector<float> want = Logits(model, tokens, {.isa = "", .fusion = "off"});
  for (const IsaInfo& isa : CpuIsas()) {
    if (!isa.supported) continue;
    for (const char* fusion : {"on", "off"})
      EXPECT_TRUE(SameBits(want, Logits(model, tokens, {.isa = isa.name, .threads = 2, .fusion = fusion})))
          << isa.name << " " << fusion;
  }
  for (const std::string& pass : graph::PassSet::All().names()) {
    for (int64_t chunk : {1, 13, 70}) {
      for (const std::string& fusion : {pass, "no-" + pass}) {
        EXPECT_TRUE(SameBits(
            want, Logits(model, tokens, {.isa = "", .threads = 3, .chunk = chunk, .page = 16, .fusion = fusion})))
            << fusion << " chunk " << chunk;
      }
    }
  }
}

// Rows that give no logits change none of those that do.
TEST_P(Contract, OnlyTheRowsThatAreAskedFor) {
  const TestModel model(GetParam());
  const std::vector<int32_t> tokens = Tokens(40, 10);
  const std::vector<float> all = Logits(model, tokens, {});
  for (const char* fusion : {"on", "off"}) {
    const auto program = Compile(model, {.isa = "", .threads = 2, .fusion = fusion}, 40);
    const auto state = std::move(*program->NewState({.n_pages = 2, .page_tokens = 32}));
    std::vector<int32_t> positions(40);
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<int32_t> seq_start = {0, 40}, table = {1, 0}, rows = {3, 17, 39};
    std::vector<float> logits(3 * kVocab);
    ASSERT_TRUE(program->Run(
        {.tokens = tokens, .positions = positions, .seq_start = seq_start, .page_table = table, .logit_rows = rows},
        *state, logits));
    for (size_t r = 0; r < rows.size(); r++)
      EXPECT_EQ(std::memcmp(logits.data() + r * kVocab, all.data() + static_cast<size_t>(rows[r]) * kVocab,
                            kVocab * sizeof(float)),
                0)
          << "row " << rows[r] << ", fusion " << fusion;
    EXPECT_TRUE(program->Run(
        {.tokens = tokens, .positions = positions, .seq_start = seq_start, .page_table = table, .logit_rows = {}},
        *state, {}));
  }
}

TEST_P(Contract, AnotherTokenChangesWhatFollowsAndNothingBefore) {
  const TestModel model(GetParam());
  std::vector<int32_t> tokens = Tokens(60, 8);
  const std::vector<float> before = Logits(model, tokens, {});
  tokens[30] = (tokens[30] + 1) % kVocab;
  const std::vector<float> after = Logits(model, tokens, {});
  EXPECT_EQ(std::memcmp(before.data(), after.data(), 30 * kVocab * sizeof(float)), 0);
  EXPECT_NE(std::memcmp(before.data() + 30 * kVocab, after.data() + 30 * kVocab, kVocab * sizeof(float)), 0);
}

// Two sequences go on from one page: each from its copy or the original, with other tokens.
TEST_P(Contract, ACopiedPageIsThePage) {
  const TestModel model(GetParam());
  for (const KvType kv : {KvType::kF16, KvType::kF32}) {
    const std::vector<int32_t> common = Tokens(40, 11);
    const auto program = Compile(model, {.isa = "", .threads = 2}, 64);
    const auto state = std::move(*program->NewState({.n_pages = 5, .page_tokens = 16, .k_type = kv, .v_type = kv}));
    const auto run = [&](std::span<const int32_t> tokens, int32_t begin, const std::vector<int32_t>& table) {
      std::vector<int32_t> positions(tokens.size()), rows(tokens.size());
      std::iota(positions.begin(), positions.end(), begin);
      std::iota(rows.begin(), rows.end(), 0);
      const std::vector<int32_t> seq_start = {0, static_cast<int32_t>(tokens.size())};
      std::vector<float> logits(tokens.size() * kVocab);
      EXPECT_TRUE(program->Run(
          {.tokens = tokens, .positions = positions, .seq_start = seq_start, .page_table = table, .logit_rows = rows},
          *state, logits));
      return logits;
    };
    run(common, 0, {4, 2, 0});
    state->CopyPage(0, 3);
    for (const auto& [seed, last_page] : {std::pair(12u, 3), std::pair(13u, 0)}) {
      const std::vector<int32_t> more = Tokens(8, seed);
      std::vector<int32_t> whole = common;
      whole.insert(whole.end(), more.begin(), more.end());
      std::vector<float> want = Logits(model, whole, {.isa = "", .kv = kv});
      want.erase(want.begin(), want.begin() + 40 * kVocab);
      EXPECT_TRUE(SameBits(want, run(more, 40, {4, 2, last_page}))) << seed;
    }
  }
}

TEST_P(Contract, SequencesOfOneStepDoNotSeeEachOther) {
  const TestModel model(GetParam());
  const std::vector<std::vector<int32_t>> prompts = {Tokens(33, 1), Tokens(1, 2), Tokens(90, 3), Tokens(16, 4)};
  const auto program = Compile(model, {.isa = "", .threads = 2}, 256);
  const auto state = std::move(*program->NewState({.n_pages = 16, .page_tokens = 16}));
  std::vector<int32_t> tokens, positions, seq_start = {0}, table, rows;
  int32_t page = 0;
  for (const auto& prompt : prompts) {
    for (size_t i = 0; i < prompt.size(); i++)
      tokens.push_back(prompt[i]), positions.push_back(static_cast<int32_t>(i)),
          rows.push_back(static_cast<int32_t>(rows.size()));
    seq_start.push_back(static_cast<int32_t>(tokens.size()));
    const int32_t used = static_cast<int32_t>((prompt.size() + 15) / 16);
    for (int32_t p = 0; p < 6; p++) table.push_back(p < used ? page + p : 0);
    page += used;
  }
  std::vector<float> logits(tokens.size() * kVocab);
  ASSERT_TRUE(program->Run(
      {.tokens = tokens, .positions = positions, .seq_start = seq_start, .page_table = table, .logit_rows = rows},
      *state, logits));
  for (size_t s = 0; s < prompts.size(); s++) {
    const std::vector<float> alone = Logits(model, prompts[s], {});
    EXPECT_EQ(std::memcmp(alone.data(), logits.data() + static_cast<size_t>(seq_start[s]) * kVocab,
                          alone.size() * sizeof(float)),
              0)
        << "sequence " << s;
  }
}

std::string ContractName(const ::testing::TestParamInfo<std::vector<TypeId>>& info) {
  return std::vector<std::string>{"All", "Decoded", "K", "Float"}[info.index];
}

// All fast types in turn; a type without a kernel beside a fast one; and the usual mixes alone. Each type by itself is MatMulTest's.
INSTANTIATE_TEST_SUITE_P(Types, Contract,
                         ::testing::Values(FastTypes(), std::vector<TypeId>{TypeId::kQ8_K, TypeId::kQ4_K},
                                           std::vector<TypeId>{TypeId::kQ4_K, TypeId::kQ6_K},
                                           std::vector<TypeId>{TypeId::kF16, TypeId::kBF16}),
                         ContractName);

// Long enough for three splits of the KV, so that threads share out the splits of one row.
TEST(Program, KvTypesKeepTheContract) {
  const TestModel model({TypeId::kQ8_0});
  const std::vector<int32_t> tokens = Tokens(290, 5);
  std::vector<std::vector<float>> seen;
  for (const auto& [k, v] : {std::pair{KvType::kF16, KvType::kF16},
                             {KvType::kBF16, KvType::kBF16},
                             {KvType::kF32, KvType::kF32},
                             {KvType::kQ8_0, KvType::kQ8_0},
                             {KvType::kQ4_0, KvType::kQ4_0},
                             {KvType::kQ8_0, KvType::kF16},
                             {KvType::kF16, KvType::kQ4_0}}) {
    for (bool flash : {true, false}) {
      if (!flash && k != v) continue;
      const std::vector<float> want = Logits(model, tokens, {.isa = "", .chunk = 290, .kv = k, .v = v, .flash = flash});
      for (const std::vector<float>& other : seen) EXPECT_FALSE(SameBits(other, want)) << "a setting has no effect";
      seen.push_back(want);
      const auto same = [&](Setting s) {
        s.kv = k, s.v = v, s.flash = flash;
        EXPECT_TRUE(SameBits(want, Logits(model, tokens, s)))
            << Name(k) << " " << Name(v) << " " << s.isa << " " << s.threads << " threads, chunk " << s.chunk
            << ", page " << s.page;
      };
      for (const IsaInfo& isa : CpuIsas()) {
        if (isa.supported) same({.isa = isa.name, .threads = 3, .chunk = 61, .page = 16});
      }
      same({.isa = "", .threads = 2, .chunk = 1});
      same({.isa = "", .threads = 4, .chunk = 200, .page = 256});
    }
  }
}

TEST(Program, BlockKvTypesNeedWholeBlocks) {
  Graph graph;
  std::vector<std::byte> data(16 * 16 * sizeof(float));
  const auto matrix = [&] {
    return graph.AddWeight({.name = "w", .type = TypeId::kF32, .shape = {16, 16}, .data = data});
  };
  const ValueId x = graph.Embed(matrix(), 1);
  const int32_t layer = graph.AddKvLayer({1, 16, 0});
  graph.AppendKv(graph.MatMul(x, matrix()), graph.MatMul(x, matrix()), layer);
  const ValueId y =
      graph.Attention(graph.MatMul(x, matrix()), {.layer = layer, .heads = 1, .kv_heads = 1, .head_dim = 16});
  graph.SetOutput(graph.MatMul(graph.SelectRows(y), matrix()));
  const auto program = std::move(*NewCpuBackend()->Compile(graph, {}));
  EXPECT_TRUE(program->NewState({.n_pages = 1}));
  const auto k = program->NewState({.n_pages = 1, .k_type = KvType::kQ8_0});
  ASSERT_FALSE(k);
  EXPECT_EQ(k.error().code, Code::kUnsupported);
  EXPECT_EQ(k.error().where, "-ctk");
  EXPECT_NE(k.error().remedy.find("f16"), std::string::npos);
  const auto v = program->NewState({.n_pages = 1, .v_type = KvType::kQ4_0});
  ASSERT_FALSE(v);
  EXPECT_EQ(v.error().where, "-ctv");
}

// The bytes of a state are what ValueBytes says, so that memory figures are right for block types.
TEST(Program, StateSizeIsWhatValueBytesSays) {
  const TestModel model({TypeId::kQ8_0});
  const auto program = Compile(model, {}, 8);
  for (KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8_0, KvType::kQ4_0}) {
    const auto state =
        std::move(*program->NewState({.n_pages = 16, .page_tokens = 64, .k_type = type, .v_type = type}));
    EXPECT_EQ(static_cast<double>(state->size_bytes()), ValueBytes(type) * 2 * 2 * kKvHeads * kDim * 16 * 64)
        << Name(type);
  }
}

// Pages of one split of attention lie together, whatever the pool's size and theirs, so that a few tokens touch little of a large pool; each page
// has bytes of its own.
TEST(Program, PagesLieInGroups) {
  const TestModel model({TypeId::kQ8_0});
  const auto program = Compile(model, {}, 8);
  struct Pool {
    int64_t n_pages, page_tokens, group;
  };
  for (const Pool& pool : {Pool{64, 32, 8}, Pool{65, 32, 8}, Pool{56, 32, 8}, Pool{49, 32, 4}, Pool{12, 32, 4},
                           Pool{7, 32, 1}, Pool{48, 16, 16}, Pool{6, 256, 1}, Pool{4, 512, 1}}) {
    const auto store = std::move(*program->NewState({.n_pages = pool.n_pages, .page_tokens = pool.page_tokens}));
    auto& state = static_cast<cpu::PagedState&>(*store);
    EXPECT_EQ(int64_t{1} << state.groups().shift, pool.group) << pool.n_pages << " pages of " << pool.page_tokens;
    EXPECT_EQ(state.groups().bytes, pool.group * static_cast<int64_t>(state.page_bytes()));
    EXPECT_EQ(state.size_bytes(), static_cast<size_t>(pool.n_pages) * state.page_bytes());
    std::vector<std::byte> bytes(state.page_bytes()), read(state.page_bytes());
    const auto fill = [&](int64_t page) {
      for (size_t i = 0; i < bytes.size(); i++)
        bytes[i] = static_cast<std::byte>(static_cast<size_t>(page) * 37 + i * 11 + i / 256);
    };
    for (int32_t page = 0; page < pool.n_pages; page++) {
      fill(page);
      state.WritePage(page, bytes);
    }
    for (int32_t page = 0; page < pool.n_pages; page++) {
      fill(page);
      state.ReadPage(page, read);
      EXPECT_EQ(read, bytes) << page;
    }
  }
}

TEST(Program, PlanNamesKernelsAndFallbacks) {
  const TestModel model({TypeId::kQ4_K, TypeId::kQ8_K});
  const auto program = Compile(model, {.isa = "scalar"}, 8);
  bool fast = false, slow = false;
  for (const PlanEntry& entry : program->plan()) {
    EXPECT_EQ(entry.isa, "scalar");
    EXPECT_FALSE(entry.reason.empty());
    if (entry.op == "matmul Q4_K") fast = !entry.fallback && entry.kernel == "panel16.q4_k";
    if (entry.op == "matmul Q8_K") slow = entry.fallback;
  }
  EXPECT_TRUE(fast && slow);
  const TestModel codebooks({TypeId::kIQ2_XXS, TypeId::kIQ4_XS});
  const auto reencoded = Compile(codebooks, {.isa = ""}, 8);
  for (const PlanEntry& entry : reencoded->plan()) {
    if (entry.op.ends_with(" IQ2_XXS") && !entry.op.starts_with("embed")) {
      EXPECT_NE(entry.reason.find("3.31 bits a weight instead of 2.06"), std::string::npos) << entry.reason;
    } else {
      EXPECT_EQ(entry.reason.find("re-encoded"), std::string::npos) << entry.op << ": " << entry.reason;
    }
  }
  const auto strict = NewCpuBackend()->Compile(model.graph(), {.strict = true});
  ASSERT_FALSE(strict);
  EXPECT_EQ(strict.error().code, Code::kUnsupported);
}

TEST(Program, PlanAndTimesNameWhatIsFused) {
  const TestModel model({TypeId::kQ4_K});
  for (const bool on : {true, false}) {
    const auto program = Compile(model, {.isa = "", .fusion = on ? "on" : "off"}, 8);
    std::vector<std::string> fused;
    for (const PlanEntry& entry : program->plan()) {
      if (entry.op.starts_with("fused ")) fused.push_back(entry.op.substr(6));
    }
    EXPECT_EQ(fused, on ? graph::PassSet::All().names() : std::vector<std::string>{});
    EXPECT_TRUE(program->op_times().empty());
    program->TraceOps(true);
    const auto state = std::move(*program->NewState({.n_pages = 2, .page_tokens = 16}));
    std::vector<float> logits(kVocab);
    const std::vector<int32_t> token = {1}, zero = {0}, start = {0, 1}, table = {0, 1};
    ASSERT_TRUE(
        program->Run({.tokens = token, .positions = zero, .seq_start = start, .page_table = table, .logit_rows = zero},
                     *state, logits));
    int64_t gate_up = 0;
    for (const OpTime& time : program->op_times()) {
      EXPECT_TRUE(time.decode);
      EXPECT_EQ(time.steps, 1);
      if (time.op.starts_with("gate-up ")) gate_up += time.calls;
    }
    EXPECT_EQ(gate_up, on ? 1 : 0);
    program->TraceOps(false);
    EXPECT_TRUE(program->op_times().empty());
  }
}

TEST(Program, TracedStepsKeepTheirBitsAndCoverTheRun) {
  const TestModel model({TypeId::kQ4_K});
  const auto program = Compile(model, {.isa = "", .fusion = "on"}, 8);
  const auto run = [&](int64_t every, int steps) {
    program->TraceSteps(every);
    const auto state = std::move(*program->NewState({.n_pages = 8, .page_tokens = 16}));
    std::vector<float> logits(kVocab), all;
    const std::vector<int32_t> table = {0, 1, 2, 3, 4, 5, 6, 7}, prompt = {1, 2, 3}, at = {0, 1, 2}, rows = {2};
    EXPECT_TRUE(program->Run({.tokens = prompt,
                              .positions = at,
                              .seq_start = std::vector<int32_t>{0, 3},
                              .page_table = table,
                              .logit_rows = rows},
                             *state, logits));
    for (int32_t i = 0; i < steps; i++) {
      const std::vector<int32_t> token = {i % 7}, position = {3 + i}, start = {0, 1}, zero = {0};
      EXPECT_TRUE(program->Run(
          {.tokens = token, .positions = position, .seq_start = start, .page_table = table, .logit_rows = zero}, *state,
          logits));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  };
  const std::vector<float> plain = run(0, 100);
  EXPECT_TRUE(program->op_trace().steps.empty());
  EXPECT_EQ(run(1, 100), plain);
  const OpTrace every = program->op_trace();
  size_t prompts = 0, steps = 0;
  double last = 0;
  for (const TracedStep& step : every.steps) {
    (step.decode ? steps : prompts)++;
    EXPECT_EQ(step.tokens, step.decode ? 1 : 3);
    EXPECT_EQ(step.us.size(), every.ops.size());
    EXPECT_GT(step.begin_s, last);
    last = step.begin_s;
  }
  EXPECT_EQ(prompts, 1u);
  EXPECT_GE(steps, 16u);  // of 100 steps: thinned twice, the later ones are there too
  EXPECT_LE(steps, 32u);
  run(16, 40);
  EXPECT_EQ(program->op_trace().steps.size(), 1u + 3);  // the prompt; steps 0, 16, 32
  program->TraceNextSteps();
  const size_t before = program->op_trace().steps.size();
  {
    const auto state = std::move(*program->NewState({.n_pages = 8, .page_tokens = 16}));
    std::vector<float> logits(kVocab);
    const std::vector<int32_t> token = {1}, zero = {0}, start = {0, 1}, table = {0};
    EXPECT_TRUE(
        program->Run({.tokens = token, .positions = zero, .seq_start = start, .page_table = table, .logit_rows = zero},
                     *state, logits));
  }
  EXPECT_EQ(program->op_trace().steps.size(), before + 1);
  EXPECT_NE(std::ranges::find(every.ops, "attention"), every.ops.end());
}

TEST(Program, BadStepsAreRefused) {
  const TestModel model({TypeId::kQ8_0});
  const auto program = Compile(model, {}, 8);
  const auto state = std::move(*program->NewState({.n_pages = 2, .page_tokens = 16}));
  std::vector<float> logits(8 * kVocab);
  const std::vector<int32_t> good = {1}, zero = {0}, start = {0, 1}, table = {0, 1};
  const auto run = [&](std::vector<int32_t> token, std::vector<int32_t> position, std::vector<int32_t> pages) {
    return program
        ->Run({.tokens = token, .positions = position, .seq_start = start, .page_table = pages, .logit_rows = zero},
              *state, logits)
        .has_value();
  };
  EXPECT_TRUE(run({1}, {0}, {0, 1}));
  EXPECT_FALSE(run({-1}, {0}, {0, 1}));
  EXPECT_FALSE(run({kVocab}, {0}, {0, 1}));
  EXPECT_FALSE(run({1}, {-1}, {0, 1}));
  EXPECT_FALSE(run({1}, {32}, {0, 1}));
  EXPECT_FALSE(run({1}, {0}, {2, 1}));
  EXPECT_FALSE(run({1}, {0}, {-1, 1}));
  EXPECT_FALSE(program->NewState({.n_pages = 1, .page_tokens = 20}));
  EXPECT_FALSE(program->NewState({.n_pages = 0, .page_tokens = 32}));
  EXPECT_FALSE(NewCpuBackend()->Compile(model.graph(), {.isa = "mmx"}));
}

}  // namespace
}  // namespace ridge::backend
