#include "text/merge_table.h"

#include <algorithm>
#include <array>
#include <limits>

namespace ridge::text {

Result<MergeTable> MergeTable::Build(const std::vector<std::string>& lines, const Vocabulary& vocabulary) {
  MergeTable table;
  if (lines.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) / 4 - vocabulary.size() / 4) {
    return Fail(Code::kInvalidData, "too many merges")
        .Where("tokenizer.ggml.merges")
        .Found(std::to_string(lines.size()));
  }
  int bits = 4;
  while ((size_t{1} << bits) < 2 * lines.size()) ++bits;
  table.slots_.resize(size_t{1} << bits);
  table.mask_ = table.slots_.size() - 1;
  table.shift_ = 64 - bits;
  // In blocks: the slots of a block are fetched while its texts are looked up, so that a cache miss per merge is not
  // waited for.
  constexpr size_t kBlock = 64;
  std::array<uint64_t, kBlock> keys;
  std::array<Symbol, kBlock> results;
  Symbol last_result = kNoSymbol;
  for (size_t begin = 0; begin < lines.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, lines.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      const std::string_view line = lines[begin + i];
      const size_t space = line.find(' ', 1);  // the first half may itself begin with a space
      if (space == line.npos || space + 1 == line.size()) {
        return Fail(Code::kInvalidData, "a merge needs two parts")
            .Where("tokenizer.ggml.merges[" + std::to_string(begin + i) + "]")
            .Found("\"" + lines[begin + i] + "\"")
            .Expected("two texts with a space between");
      }
      const std::string_view left = line.substr(0, space);
      const std::string_view right = line.substr(space + 1);
      keys[i] = Key(table.Intern(vocabulary, left, {}), table.Intern(vocabulary, right, {}));
      __builtin_prefetch(&table.slots_[table.HashOf(keys[i])], 1);
      results[i] = last_result = table.InternResult(vocabulary, left, right, last_result);
    }
    for (size_t i = 0; i < count; ++i) table.Insert(keys[i], {static_cast<uint32_t>(begin + i), results[i]});
  }
  return table;
}

// Merges mostly stand in the order of the tokens they make: look there first, a hash lookup costs several cache misses.
Symbol MergeTable::InternResult(const Vocabulary& vocabulary, std::string_view left, std::string_view right,
                                Symbol last) {
  if (vocabulary.unique_texts()) {
    for (const Symbol guess : {last, last + 1}) {
      if (vocabulary.Has(guess) && vocabulary.TextIs(guess, left, right)) return guess;
    }
  }
  return Intern(vocabulary, left, right);
}

void MergeTable::Insert(uint64_t key, Merge merge) {
  size_t at = HashOf(key);
  while (slots_[at & mask_].key != kEmpty) {
    if (slots_[at & mask_].key == key) return;  // a merge given twice keeps its first rank
    ++at;
  }
  slots_[at & mask_] = {key, merge};
}

Symbol MergeTable::Intern(const Vocabulary& vocabulary, std::string_view left, std::string_view right) {
  if (const auto id = vocabulary.Find(left, right)) return *id;
  std::string text(left);
  text += right;
  if (const auto found = extra_index_.find(text); found != extra_index_.end()) return found->second;
  const Symbol symbol = static_cast<Symbol>(vocabulary.size() + extra_.size());
  extra_.push_back(std::move(text));
  extra_index_.emplace(extra_.back(), symbol);
  return symbol;
}

Symbol MergeTable::FindSymbol(const Vocabulary& vocabulary, std::string_view text) const {
  if (const auto id = vocabulary.Find(text)) return *id;
  const auto found = extra_index_.find(text);
  return found == extra_index_.end() ? kNoSymbol : found->second;
}

}  // namespace ridge::text
