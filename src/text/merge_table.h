// Ranked merges over symbol ids: which pair of neighbours joins, how early, and into what.
//
//   RIDGE_ASSIGN_OR_RETURN(MergeTable merges, MergeTable::Build(lines, vocabulary));
//   if (const Merge* merge = merges.Find(left, right)) ...
//
// Guarantees: immutable after Build. A symbol below vocabulary.size() is that token; the others are strings that only
// occur inside merges.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/vocabulary.h"

namespace ridge::text {

using Symbol = int32_t;
inline constexpr Symbol kNoSymbol = -1;

struct Merge {
  uint32_t rank = 0;  // lower joins first
  Symbol result = kNoSymbol;
};

class MergeTable {
 public:
  // Lines "left right", first rank first. Errors: kInvalidData naming the line.
  static Result<MergeTable> Build(const std::vector<std::string>& lines, const Vocabulary& vocabulary);

  // The symbol of a text, kNoSymbol where no token and no merge has it.
  Symbol FindSymbol(const Vocabulary& vocabulary, std::string_view text) const;

  const Merge* Find(Symbol left, Symbol right) const {
    if ((left | right) < 0) return nullptr;  // a symbol that nothing merges
    const uint64_t key = Key(left, right);
    for (size_t at = HashOf(key);; ++at) {
      const Slot& slot = slots_[at & mask_];
      if (slot.key == key) return &slot.merge;
      if (slot.key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t Key(Symbol left, Symbol right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t HashOf(uint64_t key) const { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_); }
  void Insert(uint64_t key, Merge merge);
  Symbol InternResult(const Vocabulary& vocabulary, std::string_view left, std::string_view right, Symbol last);
  Symbol Intern(const Vocabulary& vocabulary, std::string_view left, std::string_view right);

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  size_t mask_ = 0;
  int shift_ = 0;
  std::deque<std::string> extra_;  // symbol vocabulary.size() + i
  std::unordered_map<std::string_view, Symbol> extra_index_;
};

}  // namespace ridge::text
