// ridge logits: the raw scores of every position of a text, their hash, and the winning token of each: what the numerics contract is
// checked with.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>

#include "backend/backend.h"
#include "base/atomic_file.h"
#include "base/quantity.h"
#include "commands.h"
#include "model_options.h"
#include "service/runtime.h"
#include "text/tokenizer.h"
#include "text_input.h"

namespace ridge::app {
namespace {

struct Options {
  ModelOptions model;
  TextInput input;
  std::string ids, out;
  bool has_ids = false;
};

Result<std::vector<TokenId>> ReadIds(const Options& o, const service::Runtime& runtime) {
  if (o.has_ids) return ParseIds(o.ids, static_cast<size_t>(runtime.model().graph().vocab()));
  RIDGE_ASSIGN_OR_RETURN(const std::string text, o.input.Read());
  RIDGE_ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::FromMetadata(runtime.model().file().metadata()));
  return tokenizer->Encode(text, {});
}

Status Logits(const Options& o, Output& out) {
  if (o.has_ids == o.input.given()) return Fail(Code::kUsage, "give exactly one of -p, -f and --ids");
  RIDGE_ASSIGN_OR_RETURN(const auto runtime,
                         o.model.Load({.logit_rows = std::numeric_limits<int64_t>::max(), .context_tokens = 0}));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ReadIds(o, *runtime));
  if (static_cast<int64_t>(ids.size()) > runtime->context_tokens()) {
    return Fail(Code::kOutOfRange, "the text is longer than the context")
        .Found(Count(ids.size(), "token"))
        .Expected(fmt::format("at most {}", runtime->context_tokens()))
        .Remedy("give a larger -c or a shorter text");
  }
  if (ids.empty()) return Fail(Code::kInvalidArgument, "the text has no tokens");
  backend::Program& program = runtime->program();
  const size_t n_vocab = static_cast<size_t>(runtime->model().graph().vocab()),
               chunk = static_cast<size_t>(runtime->chunk_tokens());
  backend::StateOptions state_options = runtime->state_options();
  state_options.n_pages =
      (static_cast<int64_t>(ids.size()) + state_options.page_tokens - 1) / state_options.page_tokens;
  RIDGE_ASSIGN_OR_RETURN(const auto state, program.NewState(state_options));
  const bool recurrent = state->slot_bytes() > 0;
  std::vector<int32_t> pages(static_cast<size_t>(state_options.n_pages)), positions(ids.size());
  std::iota(pages.begin(), pages.end(), 0);
  std::iota(positions.begin(), positions.end(), 0);

  for (const std::string& shard : runtime->model().file().shard_paths()) {
    if (o.out.empty() || !IsSameFile(shard, o.out)) continue;
    return Fail(Code::kInvalidArgument, "output is the model itself")
        .Where(o.out)
        .Found(shard)
        .Remedy("choose another path");
  }
  if (!o.out.empty() && IsSameFile(o.input.file(), o.out))
    return Fail(Code::kInvalidArgument, "output is the text itself").Where(o.out).Remedy("choose another path");
  std::optional<AtomicFile> dump;
  if (!o.out.empty()) {
    RIDGE_ASSIGN_OR_RETURN(dump, AtomicFile::Create(o.out));
  }
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  std::vector<TokenId> top;
  size_t nan_rows = 0;
  std::vector<float> logits(std::min(chunk, ids.size()) * n_vocab);
  for (size_t at = 0; at < ids.size(); at += chunk) {
    const size_t n = std::min(ids.size() - at, chunk);
    const int32_t seq_start[] = {0, static_cast<int32_t>(n)}, slots[] = {0};
    std::vector<int32_t> rows(n);
    std::iota(rows.begin(), rows.end(), 0);
    RIDGE_RETURN_IF_ERROR(program.Run({.tokens = std::span(ids).subspan(at, n),
                                       .positions = std::span(positions).subspan(at, n),
                                       .seq_start = seq_start,
                                       .page_table = pages,
                                       .logit_rows = rows,
                                       .state_slots = std::span(slots).first(recurrent ? 1 : 0)},
                                      *state, logits));
    const auto bytes = std::as_bytes(std::span(logits).first(n * n_vocab));
    XXH3_64bits_update(hash.get(), bytes.data(), bytes.size());
    if (dump) RIDGE_RETURN_IF_ERROR(dump->Write(bytes));
    for (size_t r = 0; r < n; r++) {
      const float* row = logits.data() + r * n_vocab;
      top.push_back(static_cast<TokenId>(std::max_element(row, row + n_vocab) - row));
      nan_rows += std::any_of(row, row + n_vocab, [](float x) { return std::isnan(x); });
    }
  }
  if (dump) RIDGE_RETURN_IF_ERROR(dump->Commit());
  if (nan_rows > 0) {
    Note(
        fmt::format("scores of {} hold what is no number: the model file is damaged, or this build computes it wrongly",
                    Count(nan_rows, "position")));
  }
  const std::string digest = fmt::format("{:016x}", XXH3_64bits_digest(hash.get()));
  if (out.json)
    return out.Document(
        {{"n_tokens", ids.size()}, {"n_vocab", n_vocab}, {"hash", digest}, {"nan_rows", nan_rows}, {"top", top}});
  return out.Write(fmt::format("tokens {}  vocab {}  hash {}\n", ids.size(), n_vocab, digest));
}

}  // namespace

void AddLogits(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "logits", "scores of every position of a text, and their hash",
                                "ridge logits -m model.gguf -p \"Hello world\" -o out.f32");
  o->model.Add(app);
  o->input.AddTo(app);
  CLI::Option* ids = app->add_option("--ids", o->ids, "token ids with commas between");
  app->add_option("-o,--output", o->out, "write the scores there: float32 [tokens, vocab]");
  invocation.Bind(app, [=](Output& out) {
    o->has_ids = ids->count() > 0;
    return Logits(*o, out);
  });
}

}  // namespace ridge::app
