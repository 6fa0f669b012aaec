#include "text/vocabulary.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "base/quantity.h"
#include "text/utf8.h"

namespace ridge::text {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

constexpr char kTokens[] = "tokenizer.ggml.tokens";
constexpr char kScores[] = "tokenizer.ggml.scores";
constexpr char kTypes[] = "tokenizer.ggml.token_type";

// FNV-1a over both parts: a merge's result is looked up without joining its halves.
uint32_t Hash(std::string_view left, std::string_view right) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const char c : left) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  for (const char c : right) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return static_cast<uint32_t>(h ^ (h >> 29));
}

// tokenizer.ggml.token_type, values of the gguf Python package (TokenType).
Result<uint8_t> AttributeOf(int64_t type, size_t id) {
  switch (type) {
    case 0: return uint8_t{0};  // undefined: prints nothing, never parsed
    case 1: return kNormal;
    case 2: return kUnknown;
    case 3: return kControl;
    case 4: return kUserDefined;
    case 5: return kUnused;
    case 6: return kByte;
  }
  return Fail(Code::kInvalidData, "unknown token type")
      .Where(std::string(kTypes) + "[" + std::to_string(id) + "]")
      .Found(std::to_string(type))
      .Expected("0 to 6");
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// "<0x0A>" is the byte 10.
std::optional<uint8_t> ParseByteToken(std::string_view text) {
  if (text.size() == 1) return static_cast<uint8_t>(text[0]);
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const int high = HexDigit(text[3]);
  const int low = HexDigit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

// Appends the bytes that a byte-level text spells; a text that is not spelled so stands for itself.
void AppendByteLevel(std::string_view text, std::string& out) {
  const size_t begin = out.size();
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeUtf8(text, i);
    const std::optional<uint8_t> byte = c.valid ? PrintableToByte(c.value) : std::nullopt;
    if (!byte) {
      out.resize(begin);
      out += text;
      return;
    }
    out.push_back(static_cast<char>(*byte));
    i += c.length_bytes;
  }
}

void AppendMetaspace(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i).starts_with(kMetaspace)) {
      out.push_back(' ');
      i += kMetaspace.size();
    } else {
      out.push_back(text[i++]);
    }
  }
}

// Names that end a turn, a message, a text; from llama.cpp's src/llama-vocab.cpp (the files carry no such type). Order:
// the first found is `eot`.
constexpr std::string_view kEotNames[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",     "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>"};
constexpr std::string_view kEogNames[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "</s>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};

// Fill-in-the-middle markers: control tokens whatever the file says; padding, repository and file separators also end
// generation.
struct FimKind {
  const char* key;
  bool ends_generation;
  std::initializer_list<std::string_view> names;
};
const FimKind kFimKinds[] = {
    {"tokenizer.ggml.fim_pre_token_id",
     false,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
      "<|prefix|>"}},
    {"tokenizer.ggml.fim_suf_token_id",
     false,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
      "<|suffix|>"}},
    {"tokenizer.ggml.fim_mid_token_id",
     false,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
      "<|middle|>"}},
    {"tokenizer.ggml.fim_pad_token_id", true, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {"tokenizer.ggml.fim_rep_token_id", true, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {"tokenizer.ggml.fim_sep_token_id", true, {"<|file_sep|>"}},
};

// A name that no ordinary text token has. Of other names ("</s>" is an ordinary token of Qwen's) the file's type decides.
bool IsUnmistakable(std::string_view name) {
  return name.find('|') != name.npos || name.find("｜") != name.npos || name.find("end_of_") != name.npos;
}

bool ContainsAny(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return text.find(part) != text.npos; });
}

}  // namespace

Result<std::unique_ptr<Vocabulary>> Vocabulary::FromMetadata(const gguf::Metadata& metadata, const Defaults& defaults) {
  auto vocabulary = std::make_unique<Vocabulary>();
  RIDGE_RETURN_IF_ERROR(vocabulary->ReadTokens(metadata));
  vocabulary->BuildHash();
  RIDGE_RETURN_IF_ERROR(vocabulary->ReadSpecialIds(metadata, defaults));
  vocabulary->BuildPieces(defaults.spelling);
  RIDGE_ASSIGN_OR_RETURN(const bool add_space_prefix,
                         metadata.GetOr<bool>("tokenizer.ggml.add_space_prefix", defaults.may_add_space_prefix));
  vocabulary->add_space_prefix = add_space_prefix && defaults.may_add_space_prefix;
  RIDGE_ASSIGN_OR_RETURN(vocabulary->remove_extra_whitespaces,
                         metadata.GetOr<bool>("tokenizer.ggml.remove_extra_whitespaces", false));
  vocabulary->user_defined_ = vocabulary->BuildSpecialIndex(kUserDefined);
  vocabulary->special_ = vocabulary->BuildSpecialIndex(kUserDefined | kControl | kUnknown);
  RIDGE_RETURN_IF_ERROR(vocabulary->MarkStripping(metadata));
  return vocabulary;
}

Status Vocabulary::ReadTokens(const gguf::Metadata& metadata) {
  RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string>* tokens, metadata.Strings(kTokens));
  if (tokens->empty()) return Fail(Code::kInvalidData, "the vocabulary is empty").Where(kTokens);
  size_t bytes = 0;
  for (const std::string& token : *tokens) bytes += token.size();
  if (tokens->size() > static_cast<size_t>(std::numeric_limits<TokenId>::max()) ||
      bytes > std::numeric_limits<uint32_t>::max()) {
    return Fail(Code::kInvalidData, "the vocabulary is too large")
        .Where(kTokens)
        .Found(Count(tokens->size(), "token") + " of " + Count(bytes, "byte"))
        .Expected("under 2^31 tokens and 4 GiB");
  }
  text_.reserve(bytes);
  text_end_.reserve(tokens->size());
  for (const std::string& token : *tokens) {
    text_ += token;
    text_end_.push_back(static_cast<uint32_t>(text_.size()));
    max_text_bytes_ = std::max(max_text_bytes_, token.size());
  }

  // Longer arrays than the vocabulary occur in the wild (padding); shorter ones leave tokens undefined.
  const auto too_short = [&](const char* key, size_t found) -> Status {
    return Fail(Code::kInvalidData, "the array is shorter than the vocabulary")
        .Where(key)
        .Found(Count(found, "item"))
        .Expected(std::to_string(tokens->size()));
  };
  if (metadata.Find(kScores) != nullptr) {
    RIDGE_ASSIGN_OR_RETURN(const std::vector<double> scores, metadata.Get<std::vector<double>>(kScores));
    if (scores.size() < tokens->size()) return too_short(kScores, scores.size());
    scores_.assign(scores.begin(), scores.begin() + static_cast<ptrdiff_t>(tokens->size()));
  }
  attributes_.assign(tokens->size(), kNormal);
  if (metadata.Find(kTypes) != nullptr) {
    RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> types, metadata.Get<std::vector<int64_t>>(kTypes));
    if (types.size() < tokens->size()) return too_short(kTypes, types.size());
    for (size_t id = 0; id < tokens->size(); ++id) {
      RIDGE_ASSIGN_OR_RETURN(attributes_[id], AttributeOf(types[id], id));
    }
  }
  return {};
}

void Vocabulary::BuildHash() {
  size_t capacity = 16;
  while (capacity < 2 * size()) capacity *= 2;
  slots_.assign(capacity, Slot{});
  for (size_t id = 0; id < size(); ++id) {
    const std::string_view text = Text(static_cast<TokenId>(id));
    if (text.empty()) continue;
    const uint32_t hash = Hash(text, {});
    size_t at = hash & (capacity - 1);
    while (slots_[at].id >= 0 && !(slots_[at].hash == hash && Text(slots_[at].id) == text))
      at = (at + 1) & (capacity - 1);
    if (slots_[at].id >= 0) {
      unique_texts_ = false;
      continue;
    }
    slots_[at] = {hash, static_cast<TokenId>(id)};
  }
}

std::optional<TokenId> Vocabulary::Find(std::string_view left, std::string_view right) const {
  if (left.size() + right.size() > max_text_bytes_) return std::nullopt;
  const uint32_t hash = Hash(left, right);
  const size_t mask_bits = slots_.size() - 1;
  for (size_t at = hash & mask_bits; slots_[at].id >= 0; at = (at + 1) & mask_bits) {
    if (slots_[at].hash == hash && TextIs(slots_[at].id, left, right)) return slots_[at].id;
  }
  return std::nullopt;
}

std::optional<TokenId> Vocabulary::FindByte(uint8_t byte) const {
  static constexpr char kHex[] = "0123456789ABCDEF";
  const char name[] = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
  const char raw = static_cast<char>(byte);
  for (const std::string_view text : {std::string_view(name, sizeof name), std::string_view(&raw, 1)}) {
    if (const auto id = Find(text); id && (attributes_[*id] & (kControl | kUnknown)) == 0) return id;
  }
  return std::nullopt;
}

Status Vocabulary::ReadSpecialIds(const gguf::Metadata& metadata, const Defaults& defaults) {
  // A marker that only other programs use may be out of range (such files exist); one that Ridge acts on may not.
  const auto read = [&](const char* key, std::optional<TokenId> fallback, bool strict,
                        std::optional<TokenId>& out) -> Status {
    out = fallback && Has(*fallback) ? fallback : std::nullopt;
    if (metadata.Find(key) == nullptr) return {};
    RIDGE_ASSIGN_OR_RETURN(const int64_t id, metadata.Get<int64_t>(key));
    if (id == -1 || id == std::numeric_limits<uint32_t>::max()) {
      out = std::nullopt;  // "none", as some writers spell it
    } else if (id >= 0 && static_cast<size_t>(id) < size()) {
      out = static_cast<TokenId>(id);
    } else if (strict) {
      return Fail(Code::kInvalidData, "the token is outside the vocabulary")
          .Where(key)
          .Found(std::to_string(id))
          .Expected("under " + std::to_string(size()));
    }
    return {};
  };
  RIDGE_RETURN_IF_ERROR(read("tokenizer.ggml.bos_token_id", defaults.bos, true, bos));
  if (defaults.sep_is_suffix) RIDGE_RETURN_IF_ERROR(read("tokenizer.ggml.cls_token_id", bos, true, bos));
  RIDGE_RETURN_IF_ERROR(read("tokenizer.ggml.eos_token_id", defaults.eos, true, eos));
  RIDGE_RETURN_IF_ERROR(read("tokenizer.ggml.eot_token_id", std::nullopt, true, eot));
  RIDGE_RETURN_IF_ERROR(read("tokenizer.ggml.eom_token_id", std::nullopt, true, eom));
  RIDGE_RETURN_IF_ERROR(read("tokenizer.ggml.unknown_token_id", defaults.unk, true, unk));
  RIDGE_RETURN_IF_ERROR(read("tokenizer.ggml.seperator_token_id", defaults.sep, defaults.sep_is_suffix, sep));
  RIDGE_RETURN_IF_ERROR(read("tokenizer.ggml.padding_token_id", defaults.pad, false, pad));
  RIDGE_RETURN_IF_ERROR(read("tokenizer.ggml.mask_token_id", defaults.mask, false, mask));

  for (const FimKind& kind : kFimKinds) {
    std::optional<TokenId> id;
    RIDGE_RETURN_IF_ERROR(read(kind.key, std::nullopt, false, id));
    for (auto name = kind.names.begin(); !id && name != kind.names.end(); ++name) {
      id = FindMarker(*name);
    }
    if (id && kind.ends_generation) eog_.insert(*id);
  }
  MarkEndTokens();

  RIDGE_ASSIGN_OR_RETURN(bool add_bos, metadata.GetOr<bool>("tokenizer.ggml.add_bos_token", defaults.add_bos));
  RIDGE_ASSIGN_OR_RETURN(bool add_eos, metadata.GetOr<bool>("tokenizer.ggml.add_eos_token", defaults.add_eos));
  add_bos = add_bos || defaults.force_add_bos || defaults.sep_is_suffix;
  add_eos = add_eos || defaults.sep_is_suffix;
  if (add_bos) prefix = bos;
  if (add_eos) suffix = defaults.sep_is_suffix ? sep : eos;
  return {};
}

std::optional<TokenId> Vocabulary::FindMarker(std::string_view name) {
  const auto id = Find(name);
  if (!id || (attributes_[*id] == kNormal && !IsUnmistakable(name))) return std::nullopt;
  // No longer user-defined either: such a token would be matched in plain text, and a user could end a turn with it.
  attributes_[*id] = static_cast<uint8_t>((attributes_[*id] & ~kUserDefined) | kControl);
  return id;
}

void Vocabulary::MarkEndTokens() {
  for (auto name = std::begin(kEotNames); !eot && name != std::end(kEotNames); ++name) eot = FindMarker(*name);
  if (!eom) eom = FindMarker("<|eom_id|>");
  for (const std::string_view name : kEogNames) {
    if (const auto id = FindMarker(name)) eog_.insert(*id);
  }
  for (const auto& id : {eos, eot, eom}) {
    if (id) eog_.insert(*id);
  }
  const auto has = [&](std::string_view name) {
    const auto id = Find(name);
    return id && eog_.contains(*id);
  };
  // Where a format has its own ends, <|end|> closes a message in the middle of the answer (gpt-oss, Solar Open).
  if ((has("<|return|>") && has("<|call|>")) || ((has("<|call|>") || has("<|calls|>")) && has("<|flush|>"))) {
    if (const auto end = Find("<|end|>")) eog_.erase(*end);
  }
  // Gemma 4 and PLaMo have an ordinary token </s>.
  if (has("<|tool_response>") || has("<|plamo:eos|>")) {
    if (const auto s = Find("</s>"); s && eog_.erase(*s) > 0) attributes_[*s] = kNormal;
  }
}

// Which tokens take the white space beside them is not in the file; llama.cpp's list, by pre-tokenizer, architecture
// and model name.
Status Vocabulary::MarkStripping(const gguf::Metadata& metadata) {
  RIDGE_ASSIGN_OR_RETURN(std::string name, metadata.GetOr<std::string>("general.name", ""));
  RIDGE_ASSIGN_OR_RETURN(const std::string pre, metadata.GetOr<std::string>("tokenizer.ggml.pre", ""));
  RIDGE_ASSIGN_OR_RETURN(const std::string architecture, metadata.GetOr<std::string>("general.architecture", ""));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto set = [&](std::string_view token, TokenAttribute attribute, bool value) {
    if (const auto id = Find(token))
      attributes_[*id] = value ? attributes_[*id] | attribute : attributes_[*id] & ~attribute;
  };
  if (ContainsAny(pre, {"jina-v2-de", "jina-v2-es", "jina-v2-code"}) ||
      ContainsAny(architecture, {"nomic-bert-moe", "jina-bert-v3"})) {
    set("<mask>", kStripLeft, true);
  } else if (ContainsAny(name, {"phi-3", "phi3"})) {
    for (const TokenId id : special_.ids) attributes_[id] |= kStripRight;
    set("</s>", kStripRight, true);
    for (const std::string_view token : {"<unk>", "<s>", "<|endoftext|>"}) set(token, kStripRight, false);
  } else if (ContainsAny(name, {"modern-bert"})) {
    set("[MASK]", kStripLeft, true);
  }
  strips_ = std::ranges::any_of(attributes_, [](uint8_t a) { return (a & (kStripLeft | kStripRight)) != 0; });
  return {};
}

void Vocabulary::BuildPieces(Spelling spelling) {
  piece_.reserve(text_.size());
  piece_end_.reserve(size());
  for (size_t i = 0; i < size(); ++i) {
    const std::string_view text = Text(static_cast<TokenId>(i));
    const uint8_t attributes = attributes_[i];
    const std::optional<uint8_t> byte = attributes & kByte ? ParseByteToken(text) : std::nullopt;
    if (byte) {
      piece_.push_back(static_cast<char>(*byte));
    } else if (attributes & (kControl | kUnknown | kUserDefined)) {
      piece_ += text;
    } else if (attributes & kNormal) {
      spelling == Spelling::kByteLevel ? AppendByteLevel(text, piece_) : AppendMetaspace(text, piece_);
    }  // else unused: prints nothing
    piece_end_.push_back(static_cast<uint32_t>(piece_.size()));
    // Other tokens than normal ones stand for what they spell, though some print nothing.
    const size_t bytes = attributes == kNormal ? Piece(static_cast<TokenId>(i)).size() : text.size();
    max_piece_bytes_ = std::max(max_piece_bytes_, bytes);
  }
}

Vocabulary::SpecialIndex Vocabulary::BuildSpecialIndex(uint8_t attributes) const {
  SpecialIndex index;
  for (size_t id = 0; id < size(); ++id) {
    if ((attributes_[id] & attributes) != 0 && !Text(static_cast<TokenId>(id)).empty())
      index.ids.push_back(static_cast<TokenId>(id));
  }
  std::sort(index.ids.begin(), index.ids.end(), [&](TokenId a, TokenId b) {
    const int order = Text(a).compare(Text(b));
    return order != 0 ? order < 0 : a < b;
  });
  size_t at = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    index.first[byte] = static_cast<uint32_t>(at);
    while (at < index.ids.size() && static_cast<unsigned char>(Text(index.ids[at])[0]) == byte) ++at;
  }
  index.first[256] = static_cast<uint32_t>(at);
  return index;
}

std::optional<TokenId> Vocabulary::MatchSpecial(std::string_view text, size_t offset, bool control) const {
  const SpecialIndex& index = control ? special_ : user_defined_;
  const auto first = static_cast<unsigned char>(text[offset]);
  auto low = index.ids.begin() + index.first[first];
  auto high = index.ids.begin() + index.first[first + 1];
  std::optional<TokenId> longest;
  // The tokens that share the text's first `length` bytes are a range of the sorted list; it narrows byte by byte.
  for (size_t length = 1; low != high; ++length) {
    if (Text(*low).size() == length) {
      longest = *low;
      while (low != high && Text(*low).size() == length) ++low;  // a text that occurs twice
    }
    if (offset + length >= text.size()) break;
    const auto next = static_cast<unsigned char>(text[offset + length]);
    low = std::lower_bound(
        low, high, next, [&](TokenId id, unsigned char c) { return static_cast<unsigned char>(Text(id)[length]) < c; });
    high = std::upper_bound(
        low, high, next, [&](unsigned char c, TokenId id) { return c < static_cast<unsigned char>(Text(id)[length]); });
  }
  return longest;
}

}  // namespace ridge::text
