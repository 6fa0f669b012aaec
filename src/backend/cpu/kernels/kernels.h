// The table of kernels that each ISA target fills. Plain structs and function pointers: the rest of the backend sees no intrinsics.
//
//   const Kernels* k = FindIsa("avx512"); k->matmul[(int)PanelKind::kQ4_K](args);
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
  const float* d = nullptr;       // [T, k / block]   one scale per block
  const int32_t* sums = nullptr;  // [T, k / 32] (kQ8x32) or [T, k / 16] (kQ8x256): sums of quants
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
};

// Attention of some query rows (heads of one KV head, of one or several tokens) over the pages of one sequence.
struct AttentionArgs {
  int64_t n_rows = 0;               // 1 .. kMaxQueryRows
  const float* const* q = nullptr;  // [n_rows] -> [head_dim]
  float* const* out = nullptr;      // [n_rows] -> [head_dim]
  const int64_t* lo = nullptr;      // [n_rows] first token seen
  const int64_t* hi = nullptr;      // [n_rows] one past the last
  const uint8_t* k = nullptr;       // pages of K of this head: [page][head_dim][page_tokens], k_page_bytes apart
  const uint8_t* v = nullptr;       // pages of V: [page][page_tokens][head_dim]
  int64_t k_page_bytes = 0, v_page_bytes = 0;
  const int32_t* pages = nullptr;  // page ids of the sequence
  int64_t page_tokens = 0, head_dim = 0;
  float scale = 1;
  float* scratch = nullptr;  // AttentionScratchFloats(head_dim)
};
constexpr int kMaxQueryRows = 8;
constexpr int kKvSplit =
    512;  // tokens per split: scores of a split are computed, then softmaxed, then combined in order
constexpr int64_t AttentionScratchFloats(int64_t head_dim) { return kMaxQueryRows * (kKvSplit + head_dim + 64); }

enum class KvKind : int { kF16, kBF16, kF32, kCount };
enum class GateKind : int { kSilu, kGeluTanh };

struct Kernels {
  const char* isa;
  void (*matmul[static_cast<int>(PanelKind::kCount)])(const MatMulArgs& args);
  // Quantizes one token: x [k] -> q [k], d [k / block], sums; an infinity or NaN in a block makes its scale NaN.
  void (*quantize_q8x32)(const float* x, int64_t k, int8_t* q, float* d, int32_t* sums);
  void (*quantize_q8x256)(const float* x, int64_t k, int8_t* q, float* d, int32_t* sums);
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
  // One head in place: x [rotary_dims], cos and sin [rotary_dims / 2].
  void (*rope)(float* x, const float* cos, const float* sin, int64_t rotary_dims, bool interleaved);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  void (*softcap)(const float* x, float cap, int64_t n, float* out);
  void (*gated_act)(const float* gate, const float* up, GateKind kind, int64_t n, float* out);
  // acc[i] = fma(factor, x[i], acc[i])
  void (*axpy)(float factor, const float* x, int64_t n, float* acc);
  // x [n] -> softmax in place.
  void (*softmax)(float* x, int64_t n);
  void (*attention[static_cast<int>(KvKind::kCount)][static_cast<int>(KvKind::kCount)])(
      const AttentionArgs& args);  // [K][V]
  void (*store_kv[static_cast<int>(KvKind::kCount)])(const float* x, int64_t n, uint8_t* out,
                                                     int64_t stride_values);  // one row, strided
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
