// TQ1_0: ternary, five to a byte; layout at BlockTQ1_0.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

// Where element n lies: its byte (48 and more: in qs, then in qh) and its digit.
struct Place {
  int byte;
  int digit;
};

constexpr Place PlaceOf(int n) {
  if (n < 160) return {n % 32, n / 32};
  if (n < 240) return {32 + (n - 160) % 16, (n - 160) / 16};
  return {48 + (n - 240) % 4, (n - 240) / 4};
}

constexpr int kPower[] = {1, 3, 9, 27, 81};

void Decode(const BlockTQ1_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int n = 0; n < 256; ++n) {
    const Place place = PlaceOf(n);
    const int byte = place.byte < 48 ? block.qs[place.byte] : block.qh[place.byte - 48];
    const int digit = (byte * kPower[place.digit] & 0xff) * 3 >> 8;
    out[n] = d * static_cast<float>(digit - 1);
  }
}

// Rounded up, so that multiplying by a power of 3 and cutting gives every digit again.
uint8_t Pack(int number) { return static_cast<uint8_t>((number * 256 + 242) / 243); }

void Encode(const float* in, BlockTQ1_0& block) {
  const float d = std::fabs(LargestMagnitude(in, 256));
  const float inverse = Inverse(d);
  block.d = FloatToHalf(d);
  int numbers[52] = {};  // base 3, digit 0 the highest of five
  for (int n = 0; n < 256; ++n) {
    const Place place = PlaceOf(n);
    numbers[place.byte] += (Quantize(in[n] * inverse, -1, 1) + 1) * kPower[4 - place.digit];
  }
  for (int i = 0; i < 48; ++i) block.qs[i] = Pack(numbers[i]);
  for (int i = 0; i < 4; ++i) block.qh[i] = Pack(numbers[48 + i]);
}

}  // namespace

constinit const Type kTypeTQ1_0 = {TypeId::kTQ1_0,
                                   "TQ1_0",
                                   BlockTQ1_0::kElements,
                                   sizeof(BlockTQ1_0),
                                   DecodeBlocks<BlockTQ1_0, Decode>,
                                   EncodeBlocks<BlockTQ1_0, Encode>};

}  // namespace ridge::quant
