// Prints one line per kernel of each ISA target that this CPU runs, "ISA KERNEL HASH", over seeded inputs: the hashes of all targets,
// on x86-64 and on Arm, must be the same (tests/python/kernel_digest_test.py compares them, the Arm ones under emulation).
//
// The tables are enumerated, so a new panel or KV kind is covered unasked. With arguments: only the ISAs named; --list: which run
// here, with lanes, columns and tokens of their largest tile.
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/pack.h"
#include "base/cpu.h"
#include "graph_digest.h"
#include "inputs.h"

namespace ridge::digest {
namespace {

using namespace ridge::cpu;

// A function pointer that is added to the table and not to this program would go unproved.
constexpr size_t kKinds = static_cast<size_t>(PanelKind::kCount), kKvKinds = static_cast<size_t>(KvKind::kCount);
static_assert(sizeof(Kernels) == sizeof(void*) * (1 + 2 + kKinds + 11 + 2 + 2 * kKvKinds + 2) + sizeof(PeakLoops),
              "the kernel table has changed: cover the new kernel here");

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
const float kPoison = kNan;

// ---------------------------------------------------------------- activations

struct Activations {
  std::vector<float> x, d;
  std::vector<int8_t> q;
  std::vector<int32_t> sums;
  int64_t k = 0;
  ActView view() const {
    return {.f32 = x.data(), .f32_stride = k, .q = q.data(), .d = d.data(), .sums = sums.data(), .k = k};
  }
};

Activations Quantized(const Kernels& kernels, ActKind act, std::vector<float> x, int64_t k) {
  Activations a;
  a.k = k;
  a.x = std::move(x);
  if (act == ActKind::kF32) return a;
  const int64_t tokens = static_cast<int64_t>(a.x.size()) / k, scales = ActScales(act, k), sums = ActSums(act, k);
  a.q.assign(a.x.size(), 99);
  a.d.assign(static_cast<size_t>(tokens * scales), kPoison);
  a.sums.assign(static_cast<size_t>(tokens * sums), 99);
  const auto quantize = act == ActKind::kQ8x32 ? kernels.quantize_q8x32 : kernels.quantize_q8x256;
  for (int64_t t = 0; t < tokens; t++)
    quantize(a.x.data() + t * k, k, a.q.data() + t * k, a.d.data() + t * scales, a.sums.data() + t * sums);
  return a;
}

// Tokens of every awkward sort, in turn: ordinary, zero, subnormal, near the largest float, all at the largest quant, an infinity, a
// NaN, ties of the rounding, one value far above the rest.
std::vector<float> Awkward(Random& random, int64_t tokens, int64_t k) {
  std::vector<float> x = random.Floats(tokens * k, 1.0f);
  for (int64_t t = 0; t < tokens; t++) {
    float* row = x.data() + t * k;
    for (int64_t i = 0; i < k; i++) {
      switch (t % 10) {
        case 1: row[i] = i % 3 == 0 ? -0.0f : 0.0f; break;
        case 2: row[i] *= 1e-39f; break;
        case 3: row[i] *= 1.6e38f; break;
        case 4: row[i] = i % 2 == 0 ? 3.0f : -3.0f; break;
        case 5: row[i] = i % 97 == 13 ? (i % 2 == 0 ? kInf : -kInf) : row[i]; break;
        case 6: row[i] = i % 113 == 50 ? kNan : row[i]; break;
        case 7: row[i] = i % 32 == 0 ? 127.0f : static_cast<float>(random.Below(200) - 100) + 0.5f; break;
        case 8: row[i] = i % 256 == 77 ? 1e6f : row[i]; break;
        case 9: row[i] *= 3e-36f; break;  // around the bound below which a block counts as zero
        default: break;
      }
    }
  }
  return x;
}

void QuantizeDigest(const Kernels& kernels, ActKind act, Hash& hash) {
  for (int64_t k : {256, 512, 1280}) {
    Random random(static_cast<uint64_t>(k));
    const Activations a = Quantized(kernels, act, Awkward(random, 20, k), k);
    hash.Bytes(a.q.data(), a.q.size());
    hash.Floats(a.d);
    for (int32_t sum : a.sums) hash.Word(static_cast<uint64_t>(sum));
  }
}

// ---------------------------------------------------------------- panels

uint16_t FiniteHalf(Random& random) {  // magnitudes from 0 and subnormals up to 2
  uint16_t h = static_cast<uint16_t>(random.Next());
  if ((h & 0x4000) != 0) h &= 0x83ff;
  return h;
}

std::vector<float> Multiply(const Kernels& kernels, PanelKind kind, MatMulArgs args, int64_t n_tokens,
                            bool residual = false) {
  args.out_stride = args.n_rows + 3;
  std::vector<float> out(static_cast<size_t>(n_tokens * args.out_stride), 77.0f);
  args.out = out.data();
  if (residual) args.residual = out.data();
  kernels.matmul[static_cast<int>(kind)](args);
  return out;
}

// For each 32 bytes of the blocks of 256 columns: do they hold half-precision scales? Found out by putting NaNs there.
std::vector<bool> ScaleGroups(PanelKind kind) {
  const int64_t bytes = PanelBytes(kind, 256);
  std::vector<bool> groups(static_cast<size_t>(bytes / 32));
  const Activations zero = Quantized(kScalarKernels, ActOf(kind), std::vector<float>(256, 0.0f), 256);
  std::vector<uint8_t> panel(static_cast<size_t>(bytes) + 64);
  for (size_t g = 0; g < groups.size(); g++) {
    std::fill(panel.begin(), panel.end(), uint8_t{0});
    for (size_t i = 0; i < 16; i++)
      panel[32 * g + 2 * i] = 0xff, panel[32 * g + 2 * i + 1] = 0x7f;  // NaN as either 16-bit type
    const std::vector<float> out = Multiply(
        kScalarKernels, kind,
        {.panels = panel.data(), .panel_bytes = bytes, .panel_end = 1, .n_rows = 16, .x = zero.view(), .token_end = 1},
        1);
    for (size_t r = 0; r < 16; r++) groups[g] = groups[g] || std::isnan(out[r]);
  }
  return groups;
}

// Random bytes with finite scales. fill >= 0: all quants and integer scales are that byte. Wild: scales are anything, NaN included.
std::vector<uint8_t> Panels(PanelKind kind, const std::vector<bool>& scales, int64_t n_panels, int64_t k, int fill,
                            bool wild, Random& random) {
  std::vector<uint8_t> bytes(static_cast<size_t>(n_panels * PanelBytes(kind, k)));
  if (fill >= 0)
    std::memset(bytes.data(), fill, bytes.size());
  else
    random.Bytes(bytes.data(), bytes.size());
  if (wild) return bytes;
  for (size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    uint16_t word = FiniteHalf(random);
    if (ActOf(kind) == ActKind::kF32) {
      word = static_cast<uint16_t>((random.Next() & 0x80ff) |
                                   0x3f00);  // ordinary as float16, as bfloat16 and as upper half of float32
    } else if (!scales[i / 32 % scales.size()]) {
      continue;
    }
    std::memcpy(bytes.data() + i, &word, 2);
  }
  return bytes;
}

void MatMulDigest(const Kernels& kernels, PanelKind kind, Hash& hash) {
  const std::vector<bool> scales = ActOf(kind) == ActKind::kF32 ? std::vector<bool>{} : ScaleGroups(kind);
  struct Shape {
    int64_t rows, k;
  };
  for (const Shape& shape : {Shape{1, 256}, Shape{16, 512}, Shape{37, 768}, Shape{150, 256}}) {
    Random random(static_cast<uint64_t>(shape.rows * shape.k));
    const int64_t n_panels = (shape.rows + 15) / 16;
    const std::vector<float> bias = random.Floats(n_panels * 16, 1.0f);
    int turn = 0;
    std::vector<int64_t> counts;
    for (int64_t tokens = 1; tokens <= 17; tokens += shape.rows > 100 ? 5 : 1) counts.push_back(tokens);
    if (shape.rows == 37) counts.insert(counts.end(), {23, 38, 71, 131});  // sharing what is unpacked, 64 at most
    for (const int64_t tokens : counts) {
      const int fills[] = {-1, -1, 0xff, 0x00, 0x7f, 0x80};
      const std::vector<uint8_t> panels =
          Panels(kind, scales, n_panels, shape.k, fills[turn % 6], turn % 6 == 1 && turn > 6, random);
      const Activations a =
          Quantized(kernels, ActOf(kind),
                    turn % 2 == 0 ? random.Floats(tokens * shape.k, 2.0f) : Awkward(random, tokens, shape.k), shape.k);
      std::vector<int32_t> rows(static_cast<size_t>(tokens));
      for (int32_t& row : rows) row = static_cast<int32_t>(random.Below(tokens));
      MatMulArgs args{.panels = panels.data(),
                      .panel_bytes = PanelBytes(kind, shape.k),
                      .panel_begin = turn % 3 == 2 && n_panels > 1 ? 1 : 0,
                      .panel_end = n_panels,
                      .n_rows = shape.rows,
                      .x = a.view(),
                      .in_rows = turn % 4 == 3 ? rows.data() : nullptr,
                      .token_begin = tokens > 4 ? 1 : 0,
                      .token_end = tokens,
                      .bias = turn % 3 == 1 ? bias.data() : nullptr};
      hash.Floats(Multiply(kernels, kind, args, tokens, turn % 5 == 4));
      turn++;
    }
  }
}

// ---------------------------------------------------------------- row operators

template <class Run>
void Elementwise(Hash& hash, Run run) {
  for (int64_t n : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 64, 100, 513}) {
    for (int sort = 0; sort < 3; sort++) {
      Random random(static_cast<uint64_t>(10 * n + sort));
      std::vector<float> a = random.Floats(n, 6.0f), b = random.Floats(n, 1.0f),
                         out(static_cast<size_t>(n) + 8, kPoison);
      if (sort == 1) {
        const float edges[] = {-0.0f, 0.0f, 88.4f, -87.4f, 1e-40f, -1e-40f, 3e38f, -3e38f, 120.0f, -120.0f, 1.0f};
        for (int64_t i = 0; i < n; i++) a[static_cast<size_t>(i)] = edges[(i + n) % 11];
      }
      if (sort == 2) {
        const float edges[] = {kInf, -kInf, kNan};
        a[static_cast<size_t>(n / 2)] = edges[n % 3];
        b[static_cast<size_t>(n / 3)] = edges[(n + 1) % 3];
      }
      run(a, b, n, out);
      hash.Floats(out);
    }
  }
}

// ---------------------------------------------------------------- attention

bool HasBlocks(KvKind kind) { return kind == KvKind::kQ8_0 || kind == KvKind::kQ4_0; }

void AttentionDigest(const Kernels& kernels, KvKind k_kind, KvKind v_kind, Hash& hash) {
  struct Case {
    int64_t head_dim, page_tokens, n_tokens, rows;
    float size;
  };
  for (Case c : {Case{64, 32, 70, 3, 1.0f}, Case{16, 16, 1, 1, 1.0f}, Case{80, 16, 33, 8, 4.0f},
                 Case{128, 512, 1030, 5, 1.0f}, Case{32, 64, 600, 13, 30.0f}}) {
    if (HasBlocks(k_kind) || HasBlocks(v_kind)) c.head_dim = (c.head_dim + 31) / 32 * 32;
    Random random(static_cast<uint64_t>(c.head_dim * c.n_tokens));
    const int64_t pages = (c.n_tokens + c.page_tokens - 1) / c.page_tokens, tiles = c.page_tokens / kKvTile;
    const int64_t k_tile = KvTileBytes(k_kind, c.head_dim), v_tile = KvTileBytes(v_kind, c.head_dim);
    std::vector<uint8_t> k(static_cast<size_t>(pages * tiles * k_tile), 0),
        v(static_cast<size_t>(pages * tiles * v_tile), 0);
    std::vector<int32_t> table(static_cast<size_t>(pages));
    for (int64_t p = 0; p < pages; p++) table[static_cast<size_t>(p)] = static_cast<int32_t>(pages - 1 - p);
    for (int64_t t = 0; t < c.n_tokens; t++) {
      const int64_t tile = table[static_cast<size_t>(t / c.page_tokens)] * tiles + t % c.page_tokens / kKvTile;
      const std::vector<float> key = random.Floats(c.head_dim, c.size), value = random.Floats(c.head_dim, c.size);
      kernels.store_k[static_cast<int>(k_kind)](key.data(), c.head_dim, k.data() + tile * k_tile, t % kKvTile);
      kernels.store_v[static_cast<int>(v_kind)](value.data(), c.head_dim, v.data() + tile * v_tile, t % kKvTile);
    }
    hash.Bytes(v.data(), v.size());
    hash.Bytes(k.data(), k.size());
    const std::vector<float> q = random.Floats(c.rows * c.head_dim, c.size);
    std::vector<float> out(q.size(), kPoison),
        scratch(static_cast<size_t>(AttentionScratchFloats(c.head_dim)), kPoison);
    std::vector<const float*> q_rows;
    std::vector<float*> out_rows;
    std::vector<int64_t> lo, hi;
    for (int64_t r = 0; r < c.rows; r++) {
      q_rows.push_back(q.data() + r * c.head_dim);
      out_rows.push_back(out.data() + r * c.head_dim);
      lo.push_back(r == 0 ? 0 : random.Below(c.n_tokens));
      hi.push_back(r == 0 ? c.n_tokens : lo.back() + 1 + random.Below(c.n_tokens - lo.back()));
    }
    AttentionArgs args{.n_rows = c.rows,
                       .q = q_rows.data(),
                       .out = out_rows.data(),
                       .lo = lo.data(),
                       .hi = hi.data(),
                       .k_kind = k_kind,
                       .v_kind = v_kind,
                       .k = k.data(),
                       .v = v.data(),
                       .k_page_bytes = tiles * k_tile,
                       .v_page_bytes = tiles * v_tile,
                       .pages = table.data(),
                       .page_tokens = c.page_tokens,
                       .head_dim = c.head_dim,
                       .scale = 0.125f,
                       .scratch = scratch.data()};
    kernels.attention(args);
    hash.Floats(out);
    // The same from its splits, and without splits.
    const std::vector<float> whole = out;
    const int64_t splits = (c.n_tokens + kKvSplit - 1) / kKvSplit, part = AttentionPartFloats(c.head_dim);
    std::vector<float> parts(static_cast<size_t>(splits * c.rows * part), kPoison);
    args.parts = parts.data(), args.split_end = splits;
    kernels.attention(args);
    for (int64_t r = 0; r < c.rows; r++)
      kernels.combine_attention(parts.data() + r * part, splits, c.rows * part, c.head_dim,
                                out_rows[static_cast<size_t>(r)]);
    hash.Floats(out);
    if (std::memcmp(whole.data(), out.data(), out.size() * sizeof(float)) != 0) hash.Bytes("parts", 5);
    const int64_t stride = c.n_tokens / kKvTile * kKvTile + 2 * kKvTile;
    std::vector<float> full(static_cast<size_t>(kMaxTileRows * stride), kPoison);
    args.parts = nullptr, args.full = full.data(), args.full_stride = stride;
    kernels.attention(args);
    hash.Floats(out);
  }
}

// ---------------------------------------------------------------- recurrent layers

void ShortConvDigest(const Kernels& kernels, Hash& hash) {
  for (int64_t taps : {2, 4, 5}) {
    for (int64_t n : {16, 48, 128}) {
      Random random(static_cast<uint64_t>(100 * taps + n));
      const int64_t stride = n + 16;
      const std::vector<float> weight = random.Floats(taps * stride, 1.0f), x = Awkward(random, taps + 9, n);
      for (int64_t first = 0; first < 10; first++) {
        std::vector<const float*> rows;
        for (int64_t t = 0; t < taps; t++) rows.push_back(x.data() + (first + t) * n);
        std::vector<float> out(static_cast<size_t>(stride), kPoison);
        kernels.short_conv(rows.data(), weight.data() + 16, taps, stride, n, out.data());
        hash.Floats(out);
      }
    }
  }
}

void DeltaRuleDigest(const Kernels& kernels, Hash& hash) {
  struct Case {
    int64_t key_dim, blocks, tokens;
    float size;
  };
  for (const Case c : {Case{128, 8, 16, 1.0f}, Case{16, 1, 1, 1.0f}, Case{48, 3, 7, 1e-20f}, Case{64, 2, 16, 1e18f}}) {
    Random random(static_cast<uint64_t>(c.key_dim * c.tokens));
    const int64_t stride = 2 * c.key_dim + 16 * c.blocks + 5;
    const std::vector<float> qkv = random.Floats(c.tokens * stride, c.size);
    std::vector<float> state = random.Floats(c.blocks * c.key_dim * 16, 1.0f), decay, beta,
                       out(static_cast<size_t>(c.tokens * 16 * c.blocks), kPoison),
                       scratch(static_cast<size_t>(DeltaScratchFloats(c.key_dim)), kPoison);
    for (int64_t t = 0; t < c.tokens; t++) {
      decay.push_back(static_cast<float>(random.Below(1001)) / 1000.0f);
      beta.push_back(static_cast<float>(random.Below(1001)) / 1000.0f);
    }
    DeltaRuleArgs args{.n_tokens = c.tokens,
                       .key_dim = c.key_dim,
                       .q = qkv.data(),
                       .k = qkv.data() + c.key_dim,
                       .v = qkv.data() + 2 * c.key_dim,
                       .stride = stride,
                       .decay = decay.data(),
                       .beta = beta.data(),
                       .eps = 1e-6f,
                       .state = state.data(),
                       .block_begin = c.blocks / 2,
                       .block_end = c.blocks,
                       .out = out.data(),
                       .out_stride = 16 * c.blocks,
                       .scratch = scratch.data()};
    kernels.delta_rule(args);
    args.block_end = args.block_begin, args.block_begin = 0;
    if (args.block_end > 0) kernels.delta_rule(args);
    hash.Floats(out);
    hash.Floats(state);
  }
}

// ---------------------------------------------------------------- the table

void Print(const Kernels& kernels, const std::string& name, const Hash& hash) {
  std::printf("%s %s %s\n", kernels.isa, name.c_str(), hash.Hex().c_str());
  std::fflush(stdout);
}

template <class Run>
void PrintElementwise(const Kernels& kernels, const char* name, Run run) {
  Hash hash;
  Elementwise(hash, run);
  Print(kernels, name, hash);
}

using Floats = std::vector<float>;

void PrintTable(const Kernels& t) {
  for (size_t i = 0; i < kKinds; i++) {
    const PanelKind kind = static_cast<PanelKind>(i);
    Hash hash;
    MatMulDigest(t, kind, hash);
    Print(t, std::string("matmul.") + Name(kind), hash);
  }
  for (ActKind act : {ActKind::kQ8x32, ActKind::kQ8x256}) {
    Hash hash;
    QuantizeDigest(t, act, hash);
    Print(t, act == ActKind::kQ8x32 ? "quantize_q8x32" : "quantize_q8x256", hash);
  }
  PrintElementwise(t, "rms_norm", [&](Floats& a, Floats& b, int64_t n, Floats& out) {
    t.rms_norm(a.data(), b.data(), n, 1e-5f, out.data());
  });
  PrintElementwise(t, "layer_norm", [&](Floats& a, Floats& b, int64_t n, Floats& out) {
    t.layer_norm(a.data(), b.data(), a.data(), n, 1e-5f, out.data());
  });
  PrintElementwise(t, "act.gelu", [&](Floats& a, Floats&, int64_t n, Floats& out) {
    t.gated_act(a.data(), nullptr, GateKind::kGeluTanh, n, out.data());
  });
  PrintElementwise(t, "add",
                   [&](Floats& a, Floats& b, int64_t n, Floats& out) { t.add(a.data(), b.data(), n, out.data()); });
  PrintElementwise(t, "scale",
                   [&](Floats& a, Floats&, int64_t n, Floats& out) { t.scale(a.data(), 0.7f, n, out.data()); });
  PrintElementwise(t, "softcap",
                   [&](Floats& a, Floats&, int64_t n, Floats& out) { t.softcap(a.data(), 30.0f, n, out.data()); });
  PrintElementwise(t, "gated_act.silu", [&](Floats& a, Floats& b, int64_t n, Floats& out) {
    t.gated_act(a.data(), b.data(), GateKind::kSilu, n, out.data());
  });
  PrintElementwise(t, "gated_act.gelu", [&](Floats& a, Floats& b, int64_t n, Floats& out) {
    t.gated_act(a.data(), b.data(), GateKind::kGeluTanh, n, out.data());
  });
  PrintElementwise(t, "gated_act.sigmoid", [&](Floats& a, Floats& b, int64_t n, Floats& out) {
    t.gated_act(a.data(), b.data(), GateKind::kSigmoid, n, out.data());
  });
  PrintElementwise(t, "axpy", [&](Floats& a, Floats& b, int64_t n, Floats& out) {
    std::copy(b.begin(), b.end(), out.begin());
    t.axpy(0.3f, a.data(), n, out.data());
  });
  PrintElementwise(t, "softmax", [&](Floats& a, Floats&, int64_t n, Floats& out) {
    std::copy(a.begin(), a.end(), out.begin());
    t.softmax(out.data(), n);
  });
  Hash conv, delta;
  ShortConvDigest(t, conv);
  Print(t, "short_conv", conv);
  DeltaRuleDigest(t, delta);
  Print(t, "delta_rule", delta);
  for (bool interleaved : {false, true}) {
    PrintElementwise(t, interleaved ? "rope.interleaved" : "rope.halves",
                     [&](Floats& a, Floats& b, int64_t n, Floats& out) {
                       std::copy(a.begin(), a.end(), out.begin());
                       t.rope(out.data(), b.data(), b.data() + n / 2, n / 2 * 2, interleaved);
                     });
  }
  for (size_t k = 0; k < kKvKinds; k++) {
    for (size_t v = 0; v < kKvKinds; v++) {
      Hash hash;
      AttentionDigest(t, static_cast<KvKind>(k), static_cast<KvKind>(v), hash);
      Print(t, "attention." + std::to_string(k) + "." + std::to_string(v), hash);
    }
  }
}

// What the loops of the roofline compute means nothing; that they run is all.
void RunPeaks(const PeakLoops& peaks) {
  const std::vector<uint8_t> data(4096, 1);
  float sink = 0;
  peaks.int8(3, 1, &sink);
  peaks.fp32(3, 1, &sink);
  if (peaks.bf16 != nullptr && Cpu().avx512_bf16) peaks.bf16(3, 1, &sink);
  for (int streams : {1, 2, 4, 8}) peaks.read(data.data(), static_cast<int64_t>(data.size()), streams, 0, &sink);
}

// The tables that run here. A test-only build codes AVX-VNNI's instruction as AVX-512 VNNI does, so more CPUs can run that one.
std::vector<const Kernels*> Runnable() {
  std::vector<const Kernels*> tables;
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    if (isa.supported) tables.push_back(*SelectKernels(isa.name));
  }
#if defined(RIDGE_AVX_VNNI_AS_EVEX)
  tables.clear();
  if (Cpu().avx512_vl && Cpu().avx512_vnni) tables.push_back(&kAvxVnniKernels);
#endif
  return tables;
}

}  // namespace
}  // namespace ridge::digest

int main(int argc, char** argv) {
  std::vector<std::string> isas;
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const ridge::cpu::Kernels* table : ridge::digest::Runnable())
      std::printf("%s %d %d %d\n", table->isa, table->lanes, table->columns, table->max_tokens);
    return 0;
  }
  for (const ridge::cpu::Kernels* table : ridge::digest::Runnable()) {
    bool wanted = argc < 2;
    for (int i = 1; i < argc; i++) wanted = wanted || std::string(argv[i]) == table->isa;
    if (!wanted) continue;
    ridge::digest::PrintTable(*table);
    ridge::digest::RunPeaks(table->peaks);
    isas.push_back(table->isa);
  }
#if !defined(RIDGE_AVX_VNNI_AS_EVEX)  // a program refuses a target that the CPU lacks
  ridge::digest::PrintGraphs(isas);
#endif
  return isas.empty() ? 1 : 0;
}
