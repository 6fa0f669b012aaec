#include "service/embedder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/quantity.h"

namespace ridge::service {
namespace {

constexpr int64_t kMostTexts = 64;  // of one step

// Values of llama.cpp's pooling_type keys.
constexpr uint64_t kTypeNone = 0, kTypeMean = 1, kTypeCls = 2, kTypeLast = 3;

Result<Pooling> PoolingOf(const model::Model& model) {
  const std::string key = model.config().architecture + ".pooling_type";
  if (model.file().metadata().Find(key) == nullptr) return model.encoder() ? Pooling::kMean : Pooling::kLast;
  RIDGE_ASSIGN_OR_RETURN(const uint64_t type, model.file().metadata().Get<uint64_t>(key));
  switch (type) {
    case kTypeMean: return Pooling::kMean;
    case kTypeCls: return Pooling::kCls;
    case kTypeLast: return Pooling::kLast;
    default:
      return Fail(Code::kUnsupported, type == kTypeNone ? "the file asks for no pooling" : "unknown pooling")
          .Where(key)
          .Found(std::to_string(type))
          .Expected("1 mean, 2 cls or 3 last")
          .Remedy("choose one with --pooling");
  }
}

void Add(std::span<const float> row, std::vector<float>& sum) {
  for (size_t i = 0; i < sum.size(); i++) sum[i] += row[i];
}

void Normalize(std::vector<float>& values) {
  double squares = 0;
  for (const float v : values) squares += static_cast<double>(v) * static_cast<double>(v);
  if (!(squares > 0)) return;
  const float factor = static_cast<float>(1.0 / std::sqrt(squares));
  for (float& v : values) v *= factor;
}

}  // namespace

std::string_view Name(Pooling pooling) {
  switch (pooling) {
    case Pooling::kMean: return "mean";
    case Pooling::kCls: return "cls";
    case Pooling::kLast: return "last";
  }
  return "mean";
}

Result<Pooling> ParsePooling(std::string_view name) {
  for (const Pooling p : {Pooling::kMean, Pooling::kCls, Pooling::kLast}) {
    if (name == Name(p)) return p;
  }
  return Fail(Code::kUsage, "unknown pooling")
      .Where("--pooling")
      .Found(std::string(name))
      .Expected("mean, cls or last");
}

Result<std::unique_ptr<Embedder>> Embedder::Create(std::unique_ptr<Runtime> runtime, const EmbedderOptions& options) {
  const model::Model& model = runtime->model();
  if (model.output() != model::ModelOutput::kEmbeddings)
    return Fail(Code::kInvalidArgument, "the model was loaded for text, not for embeddings");
  std::unique_ptr<Embedder> embedder(new Embedder);
  if (options.pooling) {
    embedder->pooling_ = *options.pooling;
  } else {
    RIDGE_ASSIGN_OR_RETURN(embedder->pooling_, PoolingOf(model));
  }
  embedder->normalize_ = options.normalize;
  RIDGE_ASSIGN_OR_RETURN(embedder->tokenizer_, text::Tokenizer::FromMetadata(model.file().metadata()));
  backend::StateOptions state = runtime->state_options();
  const int64_t page = state.page_tokens;
  state.n_pages = std::max((runtime->context_tokens() + page - 1) / page, runtime->chunk_tokens() / page + kMostTexts);
  state.n_slots = kMostTexts;
  RIDGE_ASSIGN_OR_RETURN(embedder->state_, runtime->program().NewState(state));
  embedder->rows_.resize(static_cast<size_t>(runtime->chunk_tokens() * model.config().width));
  embedder->runtime_ = std::move(runtime);
  return embedder;
}

Status Embedder::Check(const std::vector<TokenId>& ids, size_t index) const {
  const std::string where = fmt::format("input[{}]", index);
  if (ids.empty()) return Fail(Code::kInvalidArgument, "the text has no tokens").Where(where);
  const int64_t vocab = runtime_->model().config().vocab, limit = runtime_->context_tokens();
  for (const TokenId id : ids) {
    if (id >= 0 && id < vocab) continue;
    return Fail(Code::kInvalidArgument, "the token is outside the vocabulary")
        .Where(where)
        .Found(std::to_string(id))
        .Expected(fmt::format("0 to {}", vocab - 1));
  }
  if (static_cast<int64_t>(ids.size()) <= limit) return {};
  return Fail(Code::kOutOfRange, "the text is longer than the context")
      .Where(where)
      .Found(Count(ids.size(), "token"))
      .Expected(fmt::format("{} at most", Count(limit, "token")))
      .Remedy("shorten the text");
}

Result<std::vector<Embedding>> Embedder::Embed(const std::vector<std::string>& texts, const Gone& gone) {
  std::vector<std::vector<TokenId>> ids;
  for (size_t i = 0; i < texts.size(); i++) {
    if (gone && gone()) return Fail(Code::kCancelled, "the client went away");
    auto encoded = tokenizer_->Encode(texts[i], {.most_tokens = static_cast<size_t>(runtime_->context_tokens())});
    if (!encoded) {
      Error error = std::move(encoded).error();
      if (error.code == Code::kOutOfRange) {
        error.what = "the text is longer than the context";
        error.remedy = "shorten the text";
      }
      error.where = fmt::format("input[{}]{}{}", i, error.where.empty() ? "" : ": ", error.where);
      return std::unexpected(std::move(error));
    }
    ids.push_back(std::move(*encoded));
  }
  return EmbedIds(ids, gone);
}

Result<std::vector<Embedding>> Embedder::EmbedIds(const std::vector<std::vector<TokenId>>& texts, const Gone& gone) {
  for (size_t i = 0; i < texts.size(); i++) RIDGE_RETURN_IF_ERROR(Check(texts[i], i));
  const size_t chunk = static_cast<size_t>(runtime_->chunk_tokens());
  std::vector<Embedding> out(texts.size());
  for (size_t first = 0, count = 0; first < texts.size(); first += count) {
    if (gone && gone()) return Fail(Code::kCancelled, "the client went away");
    size_t tokens = texts[first].size();
    for (count = 1; first + count < texts.size() && count < kMostTexts; count++) {
      tokens += texts[first + count].size();
      if (tokens > chunk) break;
    }
    RIDGE_RETURN_IF_ERROR(Run(texts, first, count, out));
  }
  return out;
}

// Texts [first, first + count) in one step, or one text that is longer than a step in several.
Status Embedder::Run(const std::vector<std::vector<TokenId>>& texts, size_t first, size_t count,
                     std::vector<Embedding>& out) {
  const std::lock_guard lock(mutex_);
  const size_t width = static_cast<size_t>(this->width()), chunk = static_cast<size_t>(runtime_->chunk_tokens());
  const int64_t page = state_->options().page_tokens;
  size_t longest = 0;
  for (size_t s = 0; s < count; s++) longest = std::max(longest, texts[first + s].size());
  const size_t table = (longest + static_cast<size_t>(page) - 1) / static_cast<size_t>(page);
  std::vector<int32_t> pages(count * table), slots;
  int32_t next_page = 0;
  for (size_t s = 0; s < count; s++) {
    const size_t n = (texts[first + s].size() + static_cast<size_t>(page) - 1) / static_cast<size_t>(page);
    for (size_t p = 0; p < n; p++) pages[s * table + p] = next_page++;
    if (state_->slot_bytes() > 0) {
      slots.push_back(static_cast<int32_t>(s));
      state_->ClearSlot(static_cast<int32_t>(s));
    }
    out[first + s].tokens = static_cast<int64_t>(texts[first + s].size());
    out[first + s].values.assign(width, 0.0f);
  }
  for (size_t at = 0; at < longest; at += chunk) {  // more than once only for a single long text
    std::vector<int32_t> tokens, positions, seq_start = {0}, rows;
    std::vector<size_t> owner;  // of each row
    for (size_t s = 0; s < count; s++) {
      const std::vector<TokenId>& ids = texts[first + s];
      const size_t end = std::min(ids.size(), at + chunk);
      for (size_t t = at; t < end; t++) {
        const bool wanted = pooling_ == Pooling::kMean || (pooling_ == Pooling::kCls && t == 0) ||
                            (pooling_ == Pooling::kLast && t + 1 == ids.size());
        if (wanted) rows.push_back(static_cast<int32_t>(tokens.size())), owner.push_back(first + s);
        tokens.push_back(ids[t]);
        positions.push_back(static_cast<int32_t>(t));
      }
      seq_start.push_back(static_cast<int32_t>(tokens.size()));
    }
    RIDGE_RETURN_IF_ERROR(runtime_->program().Run({.tokens = tokens,
                                                   .positions = positions,
                                                   .seq_start = seq_start,
                                                   .page_table = pages,
                                                   .logit_rows = rows,
                                                   .state_slots = slots},
                                                  *state_, rows_));
    for (size_t r = 0; r < rows.size(); r++) Add(std::span(rows_).subspan(r * width, width), out[owner[r]].values);
  }
  for (size_t s = 0; s < count; s++) {
    Embedding& embedding = out[first + s];
    if (pooling_ == Pooling::kMean) {
      for (float& v : embedding.values) v /= static_cast<float>(embedding.tokens);
    }
    if (normalize_) Normalize(embedding.values);
  }
  return {};
}

}  // namespace ridge::service
