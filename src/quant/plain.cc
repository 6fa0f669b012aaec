// Types without blocks: floats, and the integer types that hold no weights (only their size counts).
#include <cstring>

#include "quant/types.h"

namespace ridge::quant {
namespace {

void CopyF32(const std::byte* in, float* out, size_t n) {
  if (n != 0) std::memcpy(out, in, n * sizeof(float));
}

void StoreF32(const float* in, std::byte* out, size_t n) {
  if (n != 0) std::memcpy(out, in, n * sizeof(float));
}

template <float (*kConvert)(uint16_t)>
void Widen(const std::byte* in, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, in + 2 * i, 2);
    out[i] = kConvert(bits);
  }
}

template <uint16_t (*kConvert)(float)>
void Narrow(const float* in, std::byte* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const uint16_t bits = kConvert(in[i]);
    std::memcpy(out + 2 * i, &bits, 2);
  }
}

}  // namespace

constinit const Type kTypeF32 = {TypeId::kF32, "F32", 1, 4, CopyF32, StoreF32};
constinit const Type kTypeF16 = {TypeId::kF16, "F16", 1, 2, Widen<HalfToFloat>, Narrow<FloatToHalf>};
constinit const Type kTypeBF16 = {TypeId::kBF16, "BF16", 1, 2, Widen<Bf16ToFloat>, Narrow<FloatToBf16>};
constinit const Type kTypeF64 = {TypeId::kF64, "F64", 1, 8, nullptr, nullptr};
constinit const Type kTypeI8 = {TypeId::kI8, "I8", 1, 1, nullptr, nullptr};
constinit const Type kTypeI16 = {TypeId::kI16, "I16", 1, 2, nullptr, nullptr};
constinit const Type kTypeI32 = {TypeId::kI32, "I32", 1, 4, nullptr, nullptr};
constinit const Type kTypeI64 = {TypeId::kI64, "I64", 1, 8, nullptr, nullptr};

}  // namespace ridge::quant
