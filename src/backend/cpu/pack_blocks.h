// What the packers of pack.cc and pack_codebooks.cc share: a loop over the blocks of 16 rows, and placing one quant.
//
//   void PackQ4_0(const quant::BlockQ4_0& b, int r, PanelQ4_0& to);   // one block of one row into lane r of a zeroed panel block
//   constexpr PackEntry kEntry = {quant::TypeId::kQ4_0, PanelKind::kQ4_0, PackBlocks<PackQ4_0>};
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "backend/cpu/kernels/panels.h"
#include "quant/quant.h"

namespace ridge::cpu {

// Ties a GGUF type to a panel kind.
struct PackEntry {
  quant::TypeId type;
  PanelKind kind;
  void (*pack)(const std::byte* rows, int64_t n_rows, int64_t k, uint8_t* panel);
};
std::span<const PackEntry> CodebookEntries();

template <class Block, class Panel, class Put>
void PackRows(const std::byte* rows, int64_t n_rows, int64_t n_blocks, Panel* to, int64_t step, Put put) {
  for (int64_t r = 0; r < n_rows; r++) {
    for (int64_t i = 0; i < n_blocks; i++) {
      Block block;
      std::memcpy(&block, rows + (r * n_blocks + i) * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
      put(block, static_cast<int>(r), to + i * step);
    }
  }
}

// A packer that takes a pointer fills a panel block for each 32 elements of the file's block; one that takes a reference fills one.
template <auto kPack>
struct Packer;
template <class Block, class Panel, void (*kPack)(const Block&, int, Panel&)>
struct Packer<kPack> {
  static void Run(const std::byte* rows, int64_t n_rows, int64_t k, uint8_t* panel) {
    PackRows<Block>(rows, n_rows, k / Block::kElements, reinterpret_cast<Panel*>(panel), 1,
                    [](const Block& b, int r, Panel* to) { kPack(b, r, *to); });
  }
};
template <class Block, class Panel, void (*kPack)(const Block&, int, Panel*)>
struct Packer<kPack> {
  static void Run(const std::byte* rows, int64_t n_rows, int64_t k, uint8_t* panel) {
    PackRows<Block>(rows, n_rows, k / Block::kElements, reinterpret_cast<Panel*>(panel), Block::kElements / 32, kPack);
  }
};
template <auto kPack>
constexpr auto PackBlocks = &Packer<kPack>::Run;

inline uint32_t Load32(const void* p) {
  uint32_t x;
  std::memcpy(&x, p, 4);
  return x;
}

inline void Store32(uint8_t* p, uint32_t x) { std::memcpy(p, &x, 4); }

// ---------------------------------------------------------------- quants one by one: element n of a block of 32

inline void PutNibble(uint8_t (*q)[64], int r, int n, int value) {
  q[n % 16 / 4][4 * r + n % 4] |= static_cast<uint8_t>(value << (n < 16 ? 0 : 4));
}

inline void PutPair(uint8_t (*q)[64], int r, int n, int value) {
  q[n / 16][4 * r + n % 4] |= static_cast<uint8_t>(value << (2 * (n / 4 % 4)));
}

inline void PutBit(uint8_t* h, int r, int n, int value) { h[4 * r + n % 4] |= static_cast<uint8_t>(value << (n / 4)); }

template <class Panel>
void PutTriple(Panel& to, int r, int n, int value) {  // n of the 256
  PutPair(to.q[n / 32], r, n % 32, value & 3);
  PutBit(to.h[n / 32], r, n % 32, value >> 2);
}

}  // namespace ridge::cpu
