#include "text/merge_table.h"

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
  for (size_t rank = 0; rank < lines.size(); ++rank) {
    const std::string_view line = lines[rank];
    const size_t space = line.find(' ', 1);  // the first half may itself begin with a space
    if (space == line.npos || space + 1 == line.size()) {
      return Fail(Code::kInvalidData, "a merge needs two parts")
          .Where("tokenizer.ggml.merges[" + std::to_string(rank) + "]")
          .Found("\"" + lines[rank] + "\"")
          .Expected("two texts with a space between");
    }
    const std::string_view left = line.substr(0, space);
    const std::string_view right = line.substr(space + 1);
    const uint64_t key = Key(table.Intern(vocabulary, left, {}), table.Intern(vocabulary, right, {}));
    size_t at = table.HashOf(key);
    while (table.slots_[at & table.mask_].key != kEmpty && table.slots_[at & table.mask_].key != key) ++at;
    Slot& slot = table.slots_[at & table.mask_];
    if (slot.key == key) continue;  // a merge given twice keeps its first rank
    slot = {key, {static_cast<uint32_t>(rank), table.Intern(vocabulary, left, right)}};
  }
  return table;
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
