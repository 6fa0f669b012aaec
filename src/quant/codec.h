// Makes a type's row codec out of its block codec. For the files of the types only.
//
//   void Decode(const BlockQ8_0& block, float* out);   // out [BlockQ8_0::kElements]
//   Type type = {..., DecodeBlocks<BlockQ8_0, Decode>, EncodeBlocks<BlockQ8_0, Encode>};
//
// Guarantees: blocks may lie at any address; each is copied to an aligned place before the block codec sees it.
#pragma once

#include <cstddef>
#include <cstring>

#include "quant/blocks.h"
#include "quant/quant.h"

namespace ridge::quant {

template <class Block, void (*kDecode)(const Block&, float*)>
void DecodeBlocks(const std::byte* blocks, float* out, size_t n_blocks) {
  for (size_t i = 0; i < n_blocks; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * sizeof(Block), sizeof(Block));
    kDecode(block, out + i * Block::kElements);
  }
}

template <class Block, void (*kEncode)(const float*, Block&)>
void EncodeBlocks(const float* in, std::byte* blocks, size_t n_blocks) {
  for (size_t i = 0; i < n_blocks; ++i) {
    Block block{};
    kEncode(in + i * Block::kElements, block);
    std::memcpy(blocks + i * sizeof(Block), &block, sizeof(Block));
  }
}

}  // namespace ridge::quant
