#include "service/draft_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.h"
#include "gguf/gguf.h"

namespace ridge::service {
namespace {

constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
// Vocabularies are padded to multiples of up to 512; Qwen2.5's of 0.5B and 7B differ by 128.
constexpr size_t kMostPadding = 512;

std::string Quoted(const std::string& text) {
  std::string shown;
  for (const char c : text.substr(0, 40))
    shown += static_cast<unsigned char>(c) < 0x20 ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c))
                                                  : std::string(1, c);
  return "\"" + shown + (text.size() > 40 ? "..." : "") + "\"";
}

}  // namespace

Status CheckDraftModel(const model::Model& target, const model::Model& draft) {
  const std::string& path = draft.file().path();
  if (draft.output() != model::ModelOutput::kLogits) {
    return Fail(Code::kUnsupported, "the draft model gives embeddings, not text")
        .Where(path)
        .Found(draft.config().architecture)
        .Remedy("use a small language model with the same vocabulary");
  }
  if (draft.StateBytes() > 0) {
    return Fail(Code::kUnsupported, "a recurrent model cannot draft: its state cannot be taken back")
        .Where(path)
        .Found(draft.config().architecture)
        .Remedy("use a draft model of an attention family, or --spec lookup");
  }
  RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string>* wanted, target.file().metadata().Strings(kTokensKey));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string>* found, draft.file().metadata().Strings(kTokensKey));
  const auto other = [&](std::string what, std::string has, std::string needs) -> Status {
    return Fail(Code::kInvalidArgument,
                "the draft model has another vocabulary than " + target.file().path() + ": " + std::move(what))
        .Where(path)
        .Found(std::move(has))
        .Expected(std::move(needs))
        .Remedy("use a smaller model of the same family, or --spec lookup, which needs none");
  };
  const size_t both = std::min(wanted->size(), found->size()), most = std::max(wanted->size(), found->size());
  const auto at = std::mismatch(wanted->begin(), wanted->begin() + static_cast<std::ptrdiff_t>(both), found->begin());
  const auto same = static_cast<size_t>(at.first - wanted->begin());
  if (same < both)
    return other(fmt::format("they differ at token {}", same), Quoted((*found)[same]), Quoted((*wanted)[same]));
  if (most - both > kMostPadding) {
    return other("their sizes differ by more than padding", Count(found->size(), "token"),
                 Count(wanted->size(), "token"));
  }
  return {};
}

}  // namespace ridge::service
