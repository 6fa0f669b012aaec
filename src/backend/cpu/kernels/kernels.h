// The table of kernels that each ISA target fills. Plain structs and function pointers: the rest of the backend sees no intrinsics.
//
//   const Kernels* k = SelectKernels("avx512").value(); k->matmul[(int)PanelKind::kQ4_K](args);
//
// Guarantee: every target gives the same bits for the same arguments (docs/numerics.md). Every function is pure but for its outputs,
// allocates nothing and may run on several threads at once over disjoint outputs.
#pragma once

#include <stdint.h>

#include "panels.h"

namespace ridge::cpu {

// Activations of T tokens in one of the forms of ActKind.
struct ActView {
  const float* f32 = nullptr;  // [T, f32_stride]
  int64_t f32_stride = 0;
  const int8_t* q = nullptr;      // [T, k]
  const float* d = nullptr;       // [T, ActScales(act, k)]
  const int32_t* sums = nullptr;  // [T, ActSums(act, k)]
  int64_t k = 0;
};

// out[t, r] = sum over k of w[r, k] * x[in_rows[t], k] (+ bias[r]), and residual[t, r] + that where there is a residual, for rows of the
// panels [panel_begin, panel_end).
struct MatMulArgs {
  const uint8_t* panels = nullptr;
  int64_t panel_bytes = 0;
  int64_t panel_begin = 0, panel_end = 0;
  int64_t n_rows = 0;  // of the whole matrix: the last panel may be partly padding
  ActView x;
  const int32_t* in_rows = nullptr;  // [n_tokens] rows of x; nullptr: token_begin + t
  int64_t token_begin = 0, token_end = 0;
  float* out = nullptr;  // [T, out_stride]
  int64_t out_stride = 0;
  const float* bias = nullptr;
  const float* residual = nullptr;  // [T, out_stride] like out, and may be out itself
  bool narrow_ports = false;  // of the processor (base/cpu.h): which tiles are the fastest, never what they compute
};

// KV is kept in tiles of 16 consecutive tokens of one KV head; a page is page_tokens / 16 tiles. Of K, tokens lie along the lanes; of V,
// channels do. A block of the quantized types is 32 channels of one token:
//
//   f16 bf16 f32   K [head_dim][16]                                            V [16][head_dim]
//   q8_0           K [head_dim / 4][16][4] int8 + 128, [head_dim / 32][16] d   V [16][head_dim] int8, [head_dim / 32][16] d
//   q4_0           K [head_dim / 32][4][16][4], [head_dim / 32][16] d          V [16][head_dim / 2],  [head_dim / 32][16] d
//                    byte (i, token, b): channels 4 i + b, 16 + 4 i + b          byte i of a block: channels i, 16 + i
//
// d is half precision; 4-bit values have 8 added; of two in a byte the first is in the low half.
enum class KvKind : int { kF16, kBF16, kF32, kQ8_0, kQ4_0, kCount };
constexpr int kKvTile = 16;
constexpr int64_t KvTileBytes(KvKind kind, int64_t head_dim) {
  switch (kind) {
    case KvKind::kF16:
    case KvKind::kBF16: return 32 * head_dim;
    case KvKind::kF32: return 64 * head_dim;
    case KvKind::kQ8_0: return 17 * head_dim;
    case KvKind::kQ4_0: return 9 * head_dim;
    case KvKind::kCount: break;
  }
  return 0;
}

// Where pages lie: 2^shift of them form a group, whose pages of one head are side by side; groups are `bytes` apart.
struct PageGroups {
  int64_t shift = 0, bytes = 0;

  // From page 0 of a head to `page`, of which it has page_bytes.
  [[gnu::always_inline]] int64_t At(int64_t page, int64_t page_bytes) const {  // inlined: kernels emit no shared symbol
    return (page >> shift) * bytes + (page & ((int64_t{1} << shift) - 1)) * page_bytes;
  }
};

// Attention of some query rows (heads of one KV head, of one or several tokens) over the pages of one sequence.
struct AttentionArgs {
  int64_t n_rows = 0;               // 1 .. kMaxQueryRows
  const float* const* q = nullptr;  // [n_rows] -> [head_dim]
  float* const* out = nullptr;      // [n_rows] -> [head_dim]
  const int64_t* lo = nullptr;      // [n_rows] first token seen
  const int64_t* hi = nullptr;      // [n_rows] one past the last
  KvKind k_kind = KvKind::kF16, v_kind = KvKind::kF16;
  const uint8_t* k = nullptr;  // this head's page 0 of K: [page_tokens / 16] tiles
  const uint8_t* v = nullptr;  // and of V
  int64_t k_page_bytes = 0, v_page_bytes = 0;
  PageGroups groups = {.shift = 62, .bytes = 0};  // all pages side by side
  const int32_t* pages = nullptr;                 // page ids of the sequence
  int64_t page_tokens = 0, head_dim = 0;
  float scale = 1;
  float* scratch = nullptr;  // AttentionScratchFloats(head_dim)
  // Not null: only splits [split_begin, split_end) are computed and stay uncombined, [split][n_rows][AttentionPartFloats(head_dim)];
  // `out` is not written.
  float* parts = nullptr;
  int64_t split_begin = 0, split_end = 0;
  // Not null: no splits; the scores of up to kMaxTileRows rows are computed in full before one softmax, [row][full_stride].
  float* full = nullptr;
  int64_t full_stride = 0;  // tokens, a multiple of 16: all that a row can see, and 16 more
};
constexpr int kMaxQueryRows = 128;  // they share each split while it is in L2
constexpr int kMaxTileRows = 8;     // they share each load
constexpr int kKvSplit = 256;  // tokens per split: their scores are softmaxed together; splits are combined in order
constexpr int64_t AttentionPartFloats(int64_t head_dim) { return head_dim + 16; }  // values, largest score, sum, seen
constexpr int64_t AttentionScratchFloats(int64_t head_dim) {
  return kMaxQueryRows * (2 * head_dim + kKvSplit + 16) + 2 * kKvTile * head_dim +
         (head_dim / 32 + 1) * kMaxTileRows * 80 + kKvSplit * head_dim / 4;
}

enum class GateKind : int { kSilu, kGeluTanh, kSigmoid };

// The gated delta rule (graph.h) of one head, on columns [16 * block_begin, 16 * block_end) of its matrix.
struct DeltaRuleArgs {
  int64_t n_tokens = 0;  // 1 .. kDeltaTokens
  int64_t key_dim = 0;   // a multiple of 16
  const float *q = nullptr, *k = nullptr,
              *v = nullptr;  // of the first token, `stride` floats apart; q, k not yet scaled
  int64_t stride = 0;
  const float *decay = nullptr, *beta = nullptr;  // [n_tokens]
  float eps = 0;
  float* state = nullptr;  // [value_dim / 16][key_dim][16]
  int64_t block_begin = 0, block_end = 0;
  float* out = nullptr;  // [n_tokens, out_stride]
  int64_t out_stride = 0;
  float* scratch = nullptr;  // DeltaScratchFloats(key_dim)
};
constexpr int kDeltaTokens = 16;  // their q and k, and 16 columns, fit the first-level cache
constexpr int64_t DeltaScratchFloats(int64_t key_dim) { return 2 * kDeltaTokens * key_dim; }
constexpr int kMaxConvTaps = 16;

// Loops that do nothing but what a limit of the processor is made of; see peak-inl.h. `sink` takes a result without meaning.
struct PeakLoops {
  // Products and sums in registers; each returns how many of them it made.
  int64_t (*int8)(int64_t rounds, int32_t seed, float* sink);
  int64_t (*bf16)(int64_t rounds, int32_t seed, float* sink);  // nullptr: this target has no such instruction
  int64_t (*fp32)(int64_t rounds, int32_t seed, float* sink);
  // Reads data [bytes] once, as 1, 2, 4 or 8 streams side by side; bytes is a multiple of 2048; ahead_bytes 0: no prefetch.
  void (*read)(const uint8_t* data, int64_t bytes, int streams, int64_t ahead_bytes, float* sink);
};

struct Kernels {
  const char* isa;
  int lanes, columns, max_tokens;  // the largest tile of a matrix product: columns vectors of lanes rows, times tokens
  void (*matmul[static_cast<int>(PanelKind::kCount)])(const MatMulArgs& args);
  // Quantizes one token: x [k] -> q [k], scales and sums as panels.h has them; an infinity or NaN in a block makes its scale NaN.
  void (*quantize_q8x32)(const float* x, int64_t k, int8_t* q, float* d, int32_t* sums);
  void (*quantize_q8x256)(const float* x, int64_t k, int8_t* q, float* d, int32_t* sums);
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
  // (x - mean) / sqrt(variance + eps) * weight + bias
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out);
  // One head in place: x [rotary_dims], cos and sin [rotary_dims / 2].
  void (*rope)(float* x, const float* cos, const float* sin, int64_t rotary_dims, bool interleaved);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  void (*softcap)(const float* x, float cap, int64_t n, float* out);
  // act(gate) * up; up nullptr: act(gate)
  void (*gated_act)(const float* gate, const float* up, GateKind kind, int64_t n, float* out);
  // acc[i] = fma(factor, x[i], acc[i])
  void (*axpy)(float factor, const float* x, int64_t n, float* acc);
  // x [n] -> softmax in place.
  void (*softmax)(float* x, int64_t n);
  void (*attention)(const AttentionArgs& args);
  // Combines the parts of one row, n of them `stride` floats apart, in order: what attention without parts would have given.
  void (*combine_attention)(const float* parts, int64_t n, int64_t stride, int64_t head_dim, float* out);
  // One token x [head_dim] into slot 0 .. 15 of a tile.
  void (*store_k[static_cast<int>(KvKind::kCount)])(const float* x, int64_t head_dim, uint8_t* tile, int64_t slot);
  void (*store_v[static_cast<int>(KvKind::kCount)])(const float* x, int64_t head_dim, uint8_t* tile, int64_t slot);
  // out[i] = silu(sum over t of weight[t * stride + i] * rows[t][i]), t increasing; n a multiple of 16.
  void (*short_conv)(const float* const* rows, const float* weight, int64_t taps, int64_t stride, int64_t n,
                     float* out);
  void (*delta_rule)(const DeltaRuleArgs& args);
  PeakLoops peaks;
};

// One per target that this binary was built with; which of them the CPU can run is decided in isa.cc.
extern const Kernels kScalarKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvxVnniKernels;
extern const Kernels kAvx512Kernels;
#elif defined(__aarch64__)
extern const Kernels kNeonKernels;
extern const Kernels kNeonI8mmKernels;
#endif

}  // namespace ridge::cpu
