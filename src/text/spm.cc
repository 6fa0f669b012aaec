#include "text/spm.h"

#include <algorithm>
#include <queue>

#include "text/utf8.h"

namespace ridge::text {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581
constexpr size_t kMostUtf8Bytes = 4;

class Spm final : public Tokenizer {
 public:
  explicit Spm(std::unique_ptr<const Vocabulary> vocabulary) : Tokenizer(std::move(vocabulary)) {}

 private:
  size_t MostTokenBytes() const override { return vocabulary().remove_extra_whitespaces ? 0 : MostPartBytes(); }

  // Of escaped text. Without an unknown token characters may give none at all.
  size_t MostPartBytes() const {
    return vocabulary().unk ? std::max<size_t>(kMostUtf8Bytes, vocabulary().max_text_bytes()) : 0;
  }

  Status EncodeText(std::string_view utf8, bool after_special, size_t most_ids,
                    std::vector<TokenId>& ids) const override {
    const std::string text = Escape(utf8, vocabulary().add_space_prefix && after_special);
    // All of it is merged at once, so what cannot fit is seen before. As many ids as there are at least stand for it.
    if (const size_t most = MostPartBytes(); most > 0 && most_ids < SIZE_MAX) {
      const size_t least = ids.size() + (text.size() + most - 1) / most;
      if (least > most_ids) {
        ids.resize(least, 0);
        return {};
      }
    }
    struct Part {
      uint32_t begin, end;  // byte offsets; begin == end: merged into its left neighbour
      uint32_t next, previous;
    };
    struct Candidate {
      float score;
      uint32_t left;
      uint32_t begin, end;  // of the pair when it was found
      bool operator<(const Candidate& other) const {
        return score != other.score ? score < other.score : left > other.left;
      }
    };
    std::vector<Part> parts;
    for (size_t i = 0; i < text.size();) {
      const size_t length = Utf8Length(static_cast<unsigned char>(text[i]));
      const auto index = static_cast<uint32_t>(parts.size());
      parts.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(i + length), index + 1, index - 1});
      i += length;
    }
    const auto count = static_cast<uint32_t>(parts.size());
    std::priority_queue<Candidate> heap;
    const auto add = [&](uint32_t left, uint32_t right) {
      const uint32_t begin = parts[left].begin;
      const uint32_t end = parts[right].end;
      if (const auto id = FindToken(std::string_view(text).substr(begin, end - begin))) {
        heap.push({vocabulary().score(*id), left, begin, end});
      }
    };
    for (uint32_t i = 1; i < count; ++i) add(i - 1, i);
    while (!heap.empty()) {
      const Candidate top = heap.top();
      heap.pop();
      Part& left = parts[top.left];
      if (left.begin == left.end || left.next >= count) continue;
      Part& right = parts[left.next];
      if (left.begin != top.begin || right.end != top.end) continue;  // a neighbour has grown since
      left.end = right.end;
      right.begin = right.end;
      left.next = right.next;
      if (left.next < count) parts[left.next].previous = top.left;
      if (top.left > 0) add(left.previous, top.left);
      if (left.next < count) add(top.left, left.next);
    }
    for (uint32_t i = 0; i < count; i = parts[i].next) {
      Emit(std::string_view(text).substr(parts[i].begin, parts[i].end - parts[i].begin), ids);
    }
    return {};
  }

  // Spaces become U+2581. `prefix`: one more in front.
  std::string Escape(std::string_view utf8, bool prefix) const {
    std::string out;
    out.reserve(utf8.size() + utf8.size() / 2 + kMetaspace.size());
    if (prefix) out += kMetaspace;
    const bool collapse = vocabulary().remove_extra_whitespaces;
    if (collapse) {
      while (utf8.starts_with(' ')) utf8.remove_prefix(1);
      while (utf8.ends_with(' ')) utf8.remove_suffix(1);
    }
    for (size_t i = 0; i < utf8.size(); ++i) {
      if (utf8[i] != ' ') {
        out.push_back(utf8[i]);
      } else if (!collapse || utf8[i - 1] != ' ') {  // a collapsed text does not begin with a space
        out += kMetaspace;
      }
    }
    return out;
  }

  // As SentencePiece's table of pieces: control, unknown and byte tokens are not in it, so no text can spell one.
  std::optional<TokenId> FindToken(std::string_view text) const {
    const auto id = vocabulary().Find(text);
    if (!id || (vocabulary().attributes(*id) & (kControl | kUnknown | kByte)) != 0) return std::nullopt;
    return id;
  }

  void Emit(std::string_view text, std::vector<TokenId>& ids) const {
    if (const auto id = FindToken(text)) {
      ids.push_back(*id);
      return;
    }
    const size_t before = ids.size();
    for (const char c : text) {
      const auto id = vocabulary().FindByte(static_cast<uint8_t>(c));
      if (!id) {  // no byte fallback in this vocabulary
        ids.resize(before);
        if (vocabulary().unk) ids.push_back(*vocabulary().unk);
        return;
      }
      ids.push_back(*id);
    }
  }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeSpm(std::unique_ptr<const Vocabulary> vocabulary) {
  return std::make_unique<Spm>(std::move(vocabulary));
}

}  // namespace ridge::text
