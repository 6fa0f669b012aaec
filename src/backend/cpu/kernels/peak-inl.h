// Loops that do nothing but what a limit of the processor is made of: arithmetic in registers, and reading. `ridge roofline` times them.
// Their results mean nothing; they are returned so that the compiler keeps the work.
#pragma once

#include "kernels.h"

namespace RIDGE_ISA {

using namespace ridge::cpu;

// Independent sums, enough to hide the latency of one multiply-add (4 cycles, 2 pipes; 4 pipes on big Arm cores) and few enough to stay in registers.
#if defined(__aarch64__)
constexpr int kPeakChains = 16;
#else
constexpr int kPeakChains = kLanes == 16 ? 12 : kLanes == 8 ? 10 : 4;
#endif

// The compiler must take `b` for changed, or it would compute what does not change (of vpmaddubsw + vpmaddwd all but the sum) only once.
template <class T>
static inline void Hide(T& b) {
#if defined(__x86_64__) && defined(__AVX512F__)
  if constexpr (sizeof(T) == 64) asm volatile("" : "+v"(b));
#elif defined(__x86_64__) && defined(__AVX2__)
  asm volatile("" : "+x"(b.v));
#elif defined(__ARM_FEATURE_DOTPROD)
  asm volatile("" : "+w"(b));
#else
  asm volatile("" : "+m"(b));
#endif
}

static int64_t PeakInt8(int64_t rounds, int32_t seed, float* sink) {
  uint8_t bytes[4 * kLanes];
  for (int i = 0; i < 4 * kLanes; i++) bytes[i] = (uint8_t)((seed + i) & 1);
  B w = BLoad(bytes);
  I acc[kPeakChains];
  for (int j = 0; j < kPeakChains; j++) acc[j] = ISet(seed);
  for (int64_t i = 0; i < rounds; i++) {
    for (int j = 0; j < kPeakChains; j++) {
      Hide(w);
      acc[j] = Dot(acc[j], w, 0x01020304);
    }
  }
  for (int j = 1; j < kPeakChains; j++) acc[0] = IAdd(acc[0], acc[j]);
  float lanes[kLanes];
  FStore(lanes, FFromI(acc[0]));
  *sink += lanes[0];
  return rounds * kPeakChains * kLanes * 8;  // 4 products and 4 sums a lane
}

static int64_t PeakFp32(int64_t rounds, int32_t seed, float* sink) {
  F acc[kPeakChains];
  for (int j = 0; j < kPeakChains; j++) acc[j] = FSet((float)(seed + j));
  const F shrink = FSet(0.999f), step = FSet(1.0f);  // the sums stay near 1000: no infinities, no subnormals
  for (int64_t i = 0; i < rounds; i++) {
    for (int j = 0; j < kPeakChains; j++) acc[j] = Fma(acc[j], shrink, step);
  }
  float lanes[kLanes];
  for (int j = 1; j < kPeakChains; j++) acc[0] = FAdd(acc[0], acc[j]);
  FStore(lanes, acc[0]);
  *sink += lanes[0];
  return rounds * kPeakChains * kLanes * 2;
}

// Products of bfloat16 pairs summed in float32. Has flags of its own, since the kernels of this target do without it.
#if defined(__x86_64__) && defined(__AVX512F__)
__attribute__((target("avx512bf16"))) static int64_t PeakBf16(int64_t rounds, int32_t seed, float* sink) {
  __m512 acc[kPeakChains];
  for (int j = 0; j < kPeakChains; j++) acc[j] = _mm512_set1_ps((float)(seed + j));
  const __m512bh u = (__m512bh)_mm512_set1_epi16(0x3f80), w = (__m512bh)_mm512_set1_epi16(0x3f00);
  for (int64_t i = 0; i < rounds; i++) {
    for (int j = 0; j < kPeakChains; j++) acc[j] = _mm512_dpbf16_ps(acc[j], u, w);
  }
  for (int j = 1; j < kPeakChains; j++) acc[0] = _mm512_add_ps(acc[0], acc[j]);
  float lanes[16];
  _mm512_storeu_ps(lanes, acc[0]);
  *sink += lanes[0];
  return rounds * kPeakChains * 64;
}
#define RIDGE_PEAK_BF16 RIDGE_ISA::PeakBf16
#else
#define RIDGE_PEAK_BF16 nullptr
#endif

// ---------------------------------------------------------------- reading

constexpr int kReadLine = 64;

template <int kStreams, bool kPrefetch>
static B ReadStreams(const uint8_t* data, int64_t stream_bytes, int64_t ahead_bytes) {
  B sum[4];
  for (int j = 0; j < 4; j++) sum[j] = BLoad(data);
  for (int64_t at = 0; at < stream_bytes; at += 4 * kReadLine) {
    for (int s = 0; s < kStreams; s++) {
      const uint8_t* p = data + s * stream_bytes + at;
      for (int line = 0; line < 4; line++) {
        for (int i = 0; i < kReadLine; i += 4 * kLanes) sum[line] = BOr(sum[line], BLoad(p + line * kReadLine + i));
        if constexpr (kPrefetch) Prefetch(p + ahead_bytes + line * kReadLine);
      }
    }
  }
  return BOr(BOr(sum[0], sum[1]), BOr(sum[2], sum[3]));
}

template <bool kPrefetch>
static B ReadBy(const uint8_t* data, int64_t bytes, int streams, int64_t ahead_bytes) {
  switch (streams) {
    case 2: return ReadStreams<2, kPrefetch>(data, bytes / 2, ahead_bytes);
    case 4: return ReadStreams<4, kPrefetch>(data, bytes / 4, ahead_bytes);
    case 8: return ReadStreams<8, kPrefetch>(data, bytes / 8, ahead_bytes);
  }
  return ReadStreams<1, kPrefetch>(data, bytes, ahead_bytes);
}

static void Read(const uint8_t* data, int64_t bytes, int streams, int64_t ahead_bytes, float* sink) {
  const B sum = ahead_bytes > 0 ? ReadBy<true>(data, bytes, streams, ahead_bytes)
                                : ReadBy<false>(data, bytes, streams, ahead_bytes);
  float lanes[kLanes];
  FStore(lanes, FFromI(Dot(ISet(0), BLow4(sum), 0x01010101)));
  *sink += lanes[0];
}

}  // namespace RIDGE_ISA
