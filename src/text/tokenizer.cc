#include "text/tokenizer.h"

#include <algorithm>

#include "base/quantity.h"
#include "gguf/gguf.h"
#include "text/bpe.h"
#include "text/pre_tokenizers.h"
#include "text/spm.h"
#include "text/utf8.h"
#include "text/vocabulary.h"
#include "text/wordpiece.h"

namespace ridge::text {
namespace {

constexpr char kModel[] = "tokenizer.ggml.model";
constexpr char kPre[] = "tokenizer.ggml.pre";
constexpr size_t kMaxTextBytes = size_t{1} << 30;

// White space as the C locale has it: what a stripping token takes from the text beside it.
bool IsStripped(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

Result<std::unique_ptr<Tokenizer>> BpeFromMetadata(const gguf::Metadata& metadata, const std::string& model) {
  // A file without a pre-tokenizer is older than the key; "default" is what its time used.
  RIDGE_ASSIGN_OR_RETURN(std::string name, metadata.GetOr<std::string>(kPre, "default"));
  if (name.empty()) name = "default";
  if (model == "gemma4") name = "gemma4";
  if (model == "whitespace") name = "whitespace";
  const PreTokenizer* pre = FindPreTokenizer(name);
  if (pre == nullptr) {
    return Fail(Code::kUnsupported, "unknown pre-tokenizer")
        .Where(kPre)
        .Found("\"" + name + "\"")
        .Expected("one of " + Count(PreTokenizers().size(), "name") + " that this build knows")
        .Remedy("a newer build may know it; any other pre-tokenizer would cut the text wrongly");
  }
  bool lowercase = false;
  if (model == "whitespace") {
    RIDGE_ASSIGN_OR_RETURN(lowercase, metadata.GetOr<bool>("tokenizer.ggml.normalizer.lowercase", false));
  }
  Vocabulary::Defaults defaults;
  defaults.spelling = pre->byte_level ? Spelling::kByteLevel : Spelling::kMetaspace;
  defaults.add_bos = pre->add_bos;
  defaults.force_add_bos = pre->force_add_bos;
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<const Vocabulary> vocabulary, Vocabulary::FromMetadata(metadata, defaults));
  return MakeBpe(metadata, *pre, lowercase, std::move(vocabulary));
}

Result<std::unique_ptr<Tokenizer>> SpmFromMetadata(const gguf::Metadata& metadata) {
  Vocabulary::Defaults defaults;
  defaults.spelling = Spelling::kMetaspace;
  defaults.unk = 0;
  defaults.bos = 1;
  defaults.eos = 2;
  defaults.add_bos = true;
  defaults.may_add_space_prefix = true;
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<const Vocabulary> vocabulary, Vocabulary::FromMetadata(metadata, defaults));
  return MakeSpm(std::move(vocabulary));
}

Result<std::unique_ptr<Tokenizer>> WordPieceFromMetadata(const gguf::Metadata& metadata) {
  Vocabulary::Defaults defaults;
  defaults.spelling = Spelling::kMetaspace;
  defaults.pad = 0;  // the ids of bert-base-uncased, whose files came before the keys
  defaults.unk = 100;
  defaults.bos = 101;
  defaults.sep = 102;
  defaults.mask = 103;
  defaults.sep_is_suffix = true;
  BertNormalizer normalizer;
  RIDGE_ASSIGN_OR_RETURN(normalizer.lowercase, metadata.GetOr<bool>("tokenizer.ggml.normalizer.lowercase", true));
  RIDGE_ASSIGN_OR_RETURN(normalizer.strip_accents,
                         metadata.GetOr<bool>("tokenizer.ggml.normalizer.strip_accents", normalizer.lowercase));
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<const Vocabulary> vocabulary, Vocabulary::FromMetadata(metadata, defaults));
  return MakeWordPiece(normalizer, std::move(vocabulary));
}

Fail TooMany(size_t least, size_t most) {
  return Fail(Code::kOutOfRange, "the text has too many tokens")
      .Found("at least " + Count(least, "token"))
      .Expected(Count(most, "token") + " at most");
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromMetadata(const gguf::Metadata& metadata) {
  RIDGE_ASSIGN_OR_RETURN(const std::string model, metadata.Get<std::string>(kModel));
  if (model == "gpt2" || model == "gemma4" || model == "whitespace") return BpeFromMetadata(metadata, model);
  if (model == "llama") return SpmFromMetadata(metadata);
  if (model == "bert") return WordPieceFromMetadata(metadata);
  return Fail(Code::kUnsupported, "unknown tokenizer model")
      .Where(kModel)
      .Found("\"" + model + "\"")
      .Expected("gpt2, llama, bert, gemma4 or whitespace");
}

Tokenizer::Tokenizer(std::unique_ptr<const Vocabulary> vocabulary) : vocabulary_(std::move(vocabulary)) {}
Tokenizer::~Tokenizer() = default;

Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view utf8, EncodeOptions options) const {
  if (utf8.size() >= kMaxTextBytes) {
    return Fail(Code::kOutOfRange, "the text is too long").Found(Count(utf8.size(), "byte")).Expected("under 1 GiB");
  }
  std::string repaired;
  if (FirstInvalidUtf8(utf8)) {
    repaired = ReplaceInvalidUtf8(utf8);
    utf8 = repaired;
  }
  const Vocabulary& v = *vocabulary_;
  std::vector<TokenId> ids;
  if (options.add_special && v.prefix) ids.push_back(*v.prefix);
  const size_t most = utf8.size() > kCountedBytes ? options.most_tokens : SIZE_MAX;
  const size_t least = ids.size() + LeastTokens(utf8.size());
  if (least > most) return TooMany(least, most);
  // Special tokens are taken out first, the leftmost and then the longest, and the text between them is encoded piece
  // by piece.
  bool after_special = true;
  size_t begin = 0;
  const auto encode_until = [&](size_t end) -> Status {
    if (begin >= end) return {};
    RIDGE_RETURN_IF_ERROR(EncodeText(utf8.substr(begin, end - begin), after_special, most, ids));
    after_special = false;
    return {};
  };
  for (size_t i = 0; i < utf8.size() && ids.size() <= most;) {
    const bool plain = std::binary_search(options.plain_at.begin(), options.plain_at.end(), i);
    const std::optional<TokenId> special = v.MatchSpecial(utf8, i, options.parse_special && !plain);
    if (!special) {
      ++i;
      continue;
    }
    const uint8_t attributes = v.attributes(*special);
    size_t text_end = i;
    if ((attributes & kStripLeft) != 0) {
      while (text_end > begin && IsStripped(utf8[text_end - 1])) --text_end;
    }
    RIDGE_RETURN_IF_ERROR(encode_until(text_end));
    ids.push_back(*special);
    after_special = true;
    i += v.Text(*special).size();
    if ((attributes & kStripRight) != 0) {
      while (i < utf8.size() && IsStripped(utf8[i])) ++i;
    }
    begin = i;
  }
  if (ids.size() <= most) RIDGE_RETURN_IF_ERROR(encode_until(utf8.size()));
  if (ids.size() > most) return TooMany(std::max(ids.size(), least), most);
  if (options.add_special && v.suffix) ids.push_back(*v.suffix);
  return ids;
}

std::vector<size_t> Tokenizer::FindControl(std::string_view utf8) const {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const std::optional<TokenId> special = vocabulary_->MatchSpecial(utf8, i, true);
    if (special && IsControl(*special)) offsets.push_back(i);
  }
  return offsets;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool special) const {
  const Vocabulary& v = *vocabulary_;
  std::string out;
  bool at_start = v.add_space_prefix;
  for (const TokenId id : ids) {
    if (!v.Has(id)) continue;
    const bool hidden = (v.attributes(id) & (kControl | kUnknown)) != 0;
    if (hidden && !special) continue;
    std::string_view piece = v.Piece(id);
    // The space in front of the text is the encoder's. A control token that is printed has none before it.
    if (at_start && !hidden && piece.starts_with(' ')) piece.remove_prefix(1);
    if (!piece.empty() || !hidden) at_start = false;
    out += piece;
  }
  return out;
}

std::string_view Tokenizer::Piece(TokenId id) const {
  return vocabulary_->Has(id) ? vocabulary_->Piece(id) : std::string_view();
}
size_t Tokenizer::LeastTokens(size_t bytes) const {
  // A special token that takes the white space beside it stands for as many bytes as there are.
  const size_t most = vocabulary_->strips() ? 0 : MostTokenBytes();
  return most == 0 ? 0 : (bytes + most - 1) / most;
}
size_t Tokenizer::vocab_size() const { return vocabulary_->size(); }
std::optional<TokenId> Tokenizer::bos() const { return vocabulary_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return vocabulary_->eos; }
std::optional<TokenId> Tokenizer::eot() const { return vocabulary_->eot; }
std::optional<TokenId> Tokenizer::eom() const { return vocabulary_->eom; }
std::optional<TokenId> Tokenizer::unk() const { return vocabulary_->unk; }
std::optional<TokenId> Tokenizer::sep() const { return vocabulary_->sep; }
std::optional<TokenId> Tokenizer::pad() const { return vocabulary_->pad; }
std::optional<TokenId> Tokenizer::mask() const { return vocabulary_->mask; }
bool Tokenizer::add_bos() const { return vocabulary_->prefix.has_value(); }
bool Tokenizer::add_eos() const { return vocabulary_->suffix.has_value(); }
bool Tokenizer::IsEog(TokenId id) const { return vocabulary_->IsEog(id); }
bool Tokenizer::IsControl(TokenId id) const {
  return vocabulary_->Has(id) && (vocabulary_->attributes(id) & (kControl | kUnknown)) != 0;
}
std::optional<TokenId> Tokenizer::Find(std::string_view text) const { return vocabulary_->Find(text); }

}  // namespace ridge::text
