// ridge logits: the raw scores of every position of a text, their hash, and the winning token of each: what the numerics contract is
// checked with.
#include <fmt/format.h>
#include <xxhash.h>

#include <memory>
#include <numeric>
#include <optional>

#include "backend/backend.h"
#include "base/atomic_file.h"
#include "base/topology.h"
#include "commands.h"
#include "hub/hub.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "text_input.h"

namespace ridge::app {
namespace {

struct Options {
  std::string model, ids, out, isa, k_type = "f16", v_type = "f16";
  TextInput input;
  bool has_ids = false;
  int64_t chunk = 512, page = 32;
  std::optional<int> threads;
};

Status Logits(const Options& o, Output& out) {
  if (o.has_ids == o.input.given()) return Fail(Code::kUsage, "give exactly one of -p, -f and --ids");
  RIDGE_ASSIGN_OR_RETURN(const std::string path, hub::ResolveModel(o.model));
  RIDGE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::Open(path));
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<model::Model> model, model::Model::Load(std::move(file)));
  const size_t n_vocab = static_cast<size_t>(model->graph().vocab());
  std::vector<TokenId> ids;
  if (o.has_ids) {
    RIDGE_ASSIGN_OR_RETURN(ids, ParseIds(o.ids, n_vocab));
  } else {
    RIDGE_ASSIGN_OR_RETURN(const std::string text, o.input.Read());
    RIDGE_ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::FromMetadata(model->file().metadata()));
    RIDGE_ASSIGN_OR_RETURN(ids, tokenizer->Encode(text, {}));
  }
  backend::CompileOptions compile{
      .n_threads = ResolveThreads(o.threads).threads, .isa = o.isa, .max_tokens = o.chunk, .max_logit_rows = o.chunk};
  RIDGE_ASSIGN_OR_RETURN(const auto program, backend::NewCpuBackend()->Compile(model->graph(), compile));
  backend::StateOptions state_options{.n_pages = (static_cast<int64_t>(ids.size()) + o.page - 1) / o.page,
                                      .page_tokens = o.page};
  RIDGE_ASSIGN_OR_RETURN(state_options.k_type, backend::ParseKvType(o.k_type));
  RIDGE_ASSIGN_OR_RETURN(state_options.v_type, backend::ParseKvType(o.v_type));
  RIDGE_ASSIGN_OR_RETURN(const auto state, program->NewState(state_options));
  std::vector<int32_t> pages(static_cast<size_t>(state_options.n_pages)), positions(ids.size());
  std::iota(pages.begin(), pages.end(), 0);
  std::iota(positions.begin(), positions.end(), 0);

  std::optional<AtomicFile> dump;
  if (!o.out.empty()) {
    RIDGE_ASSIGN_OR_RETURN(dump, AtomicFile::Create(o.out));
  }
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  std::vector<TokenId> top;
  std::vector<float> logits(static_cast<size_t>(std::min<int64_t>(o.chunk, static_cast<int64_t>(ids.size()))) *
                            n_vocab);
  for (size_t at = 0; at < ids.size(); at += static_cast<size_t>(o.chunk)) {
    const size_t n = std::min(ids.size() - at, static_cast<size_t>(o.chunk));
    const int32_t seq_start[] = {0, static_cast<int32_t>(n)};
    std::vector<int32_t> rows(n);
    std::iota(rows.begin(), rows.end(), 0);
    RIDGE_RETURN_IF_ERROR(program->Run({.tokens = std::span(ids).subspan(at, n),
                                        .positions = std::span(positions).subspan(at, n),
                                        .seq_start = seq_start,
                                        .page_table = pages,
                                        .logit_rows = rows},
                                       *state, logits));
    const auto bytes = std::as_bytes(std::span(logits).first(n * n_vocab));
    XXH3_64bits_update(hash.get(), bytes.data(), bytes.size());
    if (dump) RIDGE_RETURN_IF_ERROR(dump->Write(bytes));
    for (size_t r = 0; r < n; r++) {
      const float* row = logits.data() + r * n_vocab;
      top.push_back(static_cast<TokenId>(std::max_element(row, row + n_vocab) - row));
    }
  }
  if (dump) RIDGE_RETURN_IF_ERROR(dump->Commit());
  const std::string digest = fmt::format("{:016x}", XXH3_64bits_digest(hash.get()));
  if (out.json) return out.Document({{"n_tokens", ids.size()}, {"n_vocab", n_vocab}, {"hash", digest}, {"top", top}});
  return out.Write(fmt::format("tokens {}  vocab {}  hash {}\n", ids.size(), n_vocab, digest));
}

}  // namespace

void AddLogits(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "logits", "scores of every position of a text, and their hash",
                                "ridge logits -m model.gguf -p \"Hello world\" -o out.f32");
  app->add_option("-m,--model", o->model, "a GGUF file or a name in the store")->required();
  o->input.AddTo(app);
  CLI::Option* ids = app->add_option("--ids", o->ids, "token ids with commas between");
  app->add_option("-o,--output", o->out, "write the scores there: float32 [tokens, vocab]");
  app->add_option("-t,--threads", o->threads, "threads");
  app->add_option("--isa", o->isa, "instruction set");
  app->add_option("--ub,--ubatch-size", o->chunk, "prompt chunk in tokens");
  app->add_option("--kv-page", o->page, "tokens per KV page");
  app->add_option("--ctk", o->k_type, "type of cached keys");
  app->add_option("--ctv", o->v_type, "type of cached values");
  invocation.Bind(app, [=](Output& out) {
    o->has_ids = ids->count() > 0;
    return Logits(*o, out);
  });
}

}  // namespace ridge::app
