// The registry of GGUF tensor types: the only table of names, ids, block sizes and codecs. One file per type adds one
// line to it.
//
//   const quant::Type* type = quant::Find(id);              // nullptr: an id that this build does not know
//   type->decode(blocks, out, n_blocks);                    // out [n_blocks * type->block_elements]
//
// Guarantees: decode equals the `gguf` Python package bit for bit for every type that the package decodes; immutable,
// thread-safe. Ids and layouts: the GGUF specification and ggml's public headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/half.h"  // HalfToFloat, FloatToHalf, Bf16ToFloat, FloatToBf16

namespace ridge::quant {

enum class TypeId : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

struct Type {
  TypeId id;
  std::string_view name;    // as GGUF tools print it: "Q4_K"
  uint32_t block_elements;  // elements that share one block; a row is a whole number of blocks
  uint32_t block_bytes;
  // blocks [n_blocks, block_bytes] (any alignment) -> out [n_blocks * block_elements]. nullptr: a type that holds no
  // weights (I8, F64, ...).
  void (*decode)(const std::byte* blocks, float* out, size_t n_blocks);
  // The inverse, rounding as the reference encoder does. nullptr: no encoder in this build.
  void (*encode)(const float* in, std::byte* blocks, size_t n_blocks);
};

std::span<const Type> Types();            // by increasing id
const Type* Find(uint32_t id);            // nullptr when unknown
const Type* Find(std::string_view name);  // case does not matter
const Type& Get(TypeId id);               // of a known id

}  // namespace ridge::quant
