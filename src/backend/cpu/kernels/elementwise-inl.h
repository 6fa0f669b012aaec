// Row operators: quantization of activations, norms, rotary embedding, activations, softmax. Written once for every target; where
// plain loops stand, no operation depends on another element, so the compiler may vectorize them as it likes.
#pragma once

#include "kernels.h"

namespace RIDGE_ISA {

using namespace ridge::cpu;

// e^x to about 1 ulp: x = n ln 2 + r, a polynomial of degree 6 in r (Cephes' expf coefficients), times 2^n.
// Below -87.3 the result is 0, above 88.3 it stays at e^88.3; NaN stays NaN.
static inline F Exp(F x) {
  const F lowest = FSet(-87.3f);
  const F clamped = FMin(FSet(88.3f), FMax(lowest, x));
  const I whole = IFromF(FMul(clamped, FSet(1.44269504088896341f)));
  const F n = FFromI(whole);
  const F r = Fma(n, FSet(2.12194440e-4f), Fma(n, FSet(-0.693359375f), clamped));
  F p = FSet(1.9875691500e-4f);
  p = Fma(p, r, FSet(1.3981999507e-3f));
  p = Fma(p, r, FSet(8.3334519073e-3f));
  p = Fma(p, r, FSet(4.1665795894e-2f));
  p = Fma(p, r, FSet(1.6666665459e-1f));
  p = Fma(p, r, FSet(5.0000001201e-1f));
  p = FAdd(Fma(p, FMul(r, r), r), FSet(1.0f));
  const F power = FCast(IShl23(IAdd(whole, ISet(127))));
  return FZeroBelow(x, lowest, FMul(p, power));
}

// x / (1 + e^-s): silu with s = x, the sigmoid of s with x = 1, tanh-gelu with s = 2 sqrt(2/pi) (x + 0.044715 x^3).
static inline F Sigmoidal(F x, F s) { return FDiv(x, FAdd(FSet(1.0f), Exp(FSub(FSet(0.0f), s)))); }

static inline F Gate(F x, GateKind kind) {
  if (kind == GateKind::kSilu) return Sigmoidal(x, x);
  if (kind == GateKind::kSigmoid) return Sigmoidal(FSet(1.0f), x);
  const F cubic = Fma(FMul(FMul(x, x), x), FSet(0.044715f), x);
  return Sigmoidal(x, FMul(cubic, FSet(1.5957691216057308f)));
}

// Applies fn to whole vectors, and to a padded copy of the rest.
template <class Fn>
static inline void ForLanes(int64_t n, const float* x, const float* y, float* out, Fn fn) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) FStore(out + i, fn(FLoad(x + i), FLoad(y + i)));
  if (i == n) return;
  float px[kLanes] = {}, py[kLanes] = {}, po[kLanes];
  memcpy(px, x + i, (size_t)(n - i) * sizeof(float));
  memcpy(py, y + i, (size_t)(n - i) * sizeof(float));
  FStore(po, fn(FLoad(px), FLoad(py)));
  memcpy(out + i, po, (size_t)(n - i) * sizeof(float));
}

struct GateFn {
  GateKind kind;
  inline F operator()(F gate, F up) const { return FMul(Gate(gate, kind), up); }
};
struct ActFn {
  GateKind kind;
  inline F operator()(F x, F) const { return Gate(x, kind); }
};
static void GatedAct(const float* gate, const float* up, GateKind kind, int64_t n, float* out) {
  if (up == nullptr) return ForLanes(n, gate, gate, out, ActFn{kind});
  ForLanes(n, gate, up, out, GateFn{kind});
}

// cap * tanh(x / cap); tanh(z) = 2 / (1 + e^-2z) - 1
struct SoftcapFn {
  float cap;
  inline F operator()(F x, F) const {
    const F z = FDiv(x, FSet(cap));
    const F e = Exp(FMul(FSet(-2.0f), z));
    return FMul(FSub(FDiv(FSet(2.0f), FAdd(FSet(1.0f), e)), FSet(1.0f)), FSet(cap));
  }
};
static void Softcap(const float* x, float cap, int64_t n, float* out) { ForLanes(n, x, x, out, SoftcapFn{cap}); }

static void Add(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}
static void Scale(const float* x, float factor, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) out[i] = x[i] * factor;
}
static void Axpy(float factor, const float* x, int64_t n, float* acc) {
  for (int64_t i = 0; i < n; i++) acc[i] = fmaf(factor, x[i], acc[i]);
}

// x / sqrt(mean(x^2) + eps) * weight. The squares are summed in 16 interleaved partials, whatever the vector width.
static void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  constexpr int kParts = 16 / kLanes;
  F part[kParts];
  for (int p = 0; p < kParts; p++) part[p] = FSet(0);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int p = 0; p < kParts; p++) {
      const F v = FLoad(x + i + p * kLanes);
      part[p] = Fma(v, v, part[p]);
    }
  }
  float lanes[16];
  for (int p = 0; p < kParts; p++) FStore(lanes + p * kLanes, part[p]);
  for (int j = 0; i < n; i++, j++) lanes[j] = fmaf(x[i], x[i], lanes[j]);
  const float scale = 1.0f / sqrtf(SumLanes(lanes) / (float)n + eps);
  for (i = 0; i < n; i++) out[i] = (x[i] * scale) * weight[i];
}

// sum of fn(x[i]) in 16 interleaved partials, as RmsNorm sums.
template <class Fn>
static inline float SumOf(const float* x, int64_t n, Fn fn) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; i++) lanes[i % 16] = fn(x[i], lanes[i % 16]);
  return SumLanes(lanes);
}

static void LayerNorm(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out) {
  const float mean = SumOf(x, n, [](float v, float sum) { return sum + v; }) / (float)n;
  const float squares = SumOf(x, n, [mean](float v, float sum) { return fmaf(v - mean, v - mean, sum); });
  const float scale = 1.0f / sqrtf(squares / (float)n + eps);
  for (int64_t i = 0; i < n; i++) out[i] = fmaf((x[i] - mean) * scale, weight[i], bias[i]);
}

static void Rope(float* x, const float* cos, const float* sin, int64_t dims, bool interleaved) {
  const int64_t half = dims / 2;
  if (interleaved) {
    for (int64_t i = 0; i < half; i++) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = fmaf(a, cos[i], -(b * sin[i]));
      x[2 * i + 1] = fmaf(a, sin[i], b * cos[i]);
    }
    return;
  }
  for (int64_t i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half];
    x[i] = fmaf(a, cos[i], -(b * sin[i]));
    x[i + half] = fmaf(a, sin[i], b * cos[i]);
  }
}

// One block of kBlock columns: q = round(x / d) with d = max|x| / 127; fn(sum, i) for the sum of each kSum quants.
template <int kBlock, int kSum, class Fn>
static inline float QuantizeBlock(const float* x, int8_t* q, Fn fn) {
  I largest = ISet(0);
  for (int i = 0; i < kBlock; i += kLanes) largest = IMax(largest, IAbsBits(FLoad(x + i)));
  const uint32_t bits = (uint32_t)IReduceMax(largest);
  float scale = FloatOf(bits) / 127.0f, inverse = 127.0f / FloatOf(bits);
  if (bits >= 0x7f800000) scale = FloatOf(0x7fc00000), inverse = 0;  // infinity or NaN
  if (bits < 0x03800000) scale = 0, inverse = 0;                     // below 2^-120: 127 / max would overflow
  const F factor = FSet(inverse);
  for (int s = 0; s < kBlock / kSum; s++) {
    I sum = ISet(0);
    for (int i = s * kSum; i < (s + 1) * kSum; i += kLanes) {
      const I v = bits >= 0x7f800000 ? ISet(0) : IFromF(FMul(FLoad(x + i), factor));
      IStoreS8(q + i, v);
      sum = IAdd(sum, v);
    }
    fn(IReduceAdd(sum), s);
  }
  return scale;
}

static void Quantize32(const float* x, int64_t k, int8_t* q, float* d, int32_t* sums) {
  const int64_t n = k / 32;
  for (int64_t b = 0; b < n; b++) {
    d[b] = QuantizeBlock<32, 32>(x + 32 * b, q + 32 * b, [&](int32_t sum, int) { sums[b] = sum; });
    d[n + b] = d[b] * (float)sums[b];
  }
}

static void Quantize256(const float* x, int64_t k, int8_t* q, float* d, int32_t* sums) {
  int16_t *of16 = (int16_t*)sums, *of32 = of16 + k / 16;
  for (int64_t b = 0; b < k / 256; b++, of16 += 16, of32 += 8) {
    d[b] = QuantizeBlock<256, 16>(x + 256 * b, q + 256 * b, [&](int32_t sum, int s) { of16[s] = (int16_t)sum; });
    for (int s = 0; s < 8; s++) of32[s] = (int16_t)(of16[2 * s] + of16[2 * s + 1]);
  }
}

static inline void ExpSum(float* x, int64_t n, float max, float* lanes /* [16], summed into */) {
  constexpr int kParts = 16 / kLanes;
  F part[kParts];
  for (int p = 0; p < kParts; p++) part[p] = FLoad(lanes + p * kLanes);
  const F m = FSet(max);
  for (int64_t i = 0; i < n; i += 16) {
    for (int p = 0; p < kParts; p++) {
      const F e = Exp(FSub(FLoad(x + i + p * kLanes), m));
      FStore(x + i + p * kLanes, e);
      part[p] = FAdd(part[p], e);
    }
  }
  for (int p = 0; p < kParts; p++) FStore(lanes + p * kLanes, part[p]);
}

// n need not be a multiple of 16: the router's width is a handful.
static void Softmax(float* x, int64_t n) {
  float max = x[0];
  for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
  float lanes[16] = {}, tail[16];
  const int64_t whole = n / 16 * 16;
  ExpSum(x, whole, max, lanes);
  if (whole < n) {
    for (int64_t i = 0; i < 16; i++) tail[i] = whole + i < n ? x[whole + i] : -INFINITY;
    ExpSum(tail, 16, max, lanes);
    memcpy(x + whole, tail, (size_t)(n - whole) * sizeof(float));
  }
  const float sum = SumLanes(lanes);
  for (int64_t i = 0; i < n; i++) x[i] = x[i] / sum;
}

}  // namespace RIDGE_ISA
