// Texts in, vectors out: one pooled embedding for each text, of an encoder (BERT family) or of a decoder's last hidden state.
//
//   RIDGE_ASSIGN_OR_RETURN(auto runtime, Runtime::Load({.path = path, .embeddings = true}));
//   RIDGE_ASSIGN_OR_RETURN(auto embedder, Embedder::Create(std::move(runtime)));
//   RIDGE_ASSIGN_OR_RETURN(std::vector<Embedding> vectors, embedder->Embed({"a cat", "a kitten"}));
//
// Guarantees: the vector of a text does not depend on the texts beside it, the threads or the ISA. A text is never shortened. Nothing is left in any
// cache. Thread-safe; calls take turns.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "base/token_id.h"
#include "service/runtime.h"
#include "text/tokenizer.h"

namespace ridge::service {

// Which tokens' values become the vector: their mean, those of the first token, or of the last.
enum class Pooling { kMean, kCls, kLast };
std::string_view Name(Pooling pooling);
Result<Pooling> ParsePooling(std::string_view name);

struct EmbedderOptions {
  std::optional<Pooling>
      pooling;  // not given: what the file says (ARCH.pooling_type); else mean of an encoder, last of a decoder
  bool normalize = true;  // to length 1
};

struct Embedding {
  std::vector<float> values;  // [width]
  int64_t tokens = 0;
};

class Embedder {
 public:
  // Errors: kInvalidArgument (the runtime gives logits), kUnsupported (the file asks for a pooling that this build lacks), those of the tokenizer
  // and of NewState.
  static Result<std::unique_ptr<Embedder>> Create(std::unique_ptr<Runtime> runtime,
                                                  const EmbedderOptions& options = {});

  // All texts are checked before the first is computed. Errors: kInvalidArgument and kOutOfRange name the text, "input[2]"; kCancelled when
  // gone() holds between two steps.
  using Gone = std::function<bool()>;
  Result<std::vector<Embedding>> Embed(const std::vector<std::string>& texts, const Gone& gone = {});
  Result<std::vector<Embedding>> EmbedIds(const std::vector<std::vector<TokenId>>& texts, const Gone& gone = {});

  const Runtime& runtime() const { return *runtime_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  int64_t width() const { return runtime_->model().config().width; }
  Pooling pooling() const { return pooling_; }

 private:
  Embedder() = default;
  Status Check(const std::vector<TokenId>& ids, size_t index) const;
  Status Run(const std::vector<std::vector<TokenId>>& texts, size_t first, size_t count, std::vector<Embedding>& out);

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  Pooling pooling_ = Pooling::kMean;
  bool normalize_ = true;
  std::mutex mutex_;  // of the program and all below
  std::unique_ptr<backend::StateStore> state_;
  std::vector<float> rows_;  // [chunk, width]
};

}  // namespace ridge::service
