#include "service/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/quantity.h"
#include "base/thread_probe.h"
#include "gguf/gguf.h"
#include "service/checked_program.h"
#include "service/draft_model.h"

namespace ridge::service {
namespace {

// A context of the trained length can fill the memory: current models state a million tokens.
constexpr int64_t kDefaultContextTokens = 4096;
constexpr int64_t kDefaultBatchTokens = 2048;
constexpr int64_t kDefaultChunkTokens = 512;
constexpr int64_t kMaxChunkTokens = 65536;      // the workspace grows with it
constexpr int64_t kMaxContextTokens = 1 << 30;  // positions are 32 bits wide
// What a process takes beside the plan, an upper bound: 15 and 33 MB were measured with vocabularies of 49,152 and 151,936 tokens.
constexpr uint64_t kProcessBytes = 24 << 20, kVocabularyBytes = 240;
constexpr double kPoolShare = 0.8;  // of free memory, for a KV pool that nobody sized

class Timer {
 public:
  // Milliseconds since the latest call.
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - begin_).count();
    begin_ = now;
    return ms;
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Status CheckRange(const char* flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return Fail(Code::kOutOfRange, "setting is out of range")
      .Where(flag)
      .Found(std::to_string(value))
      .Expected(fmt::format("{} to {}", least, Count(most, "token")));
}

// A share of the memory for the states that a recurrent model's prefix cache goes on from; one user needs only a few.
int64_t Checkpoints(uint64_t state_bytes, int64_t sequences, uint64_t allowed_bytes) {
  constexpr uint64_t kMostBytes = uint64_t{4} << 30, kShare = 8;
  constexpr int64_t kMost = 512, kOfOneUser = 4;
  if (sequences <= 1) return kOfOneUser;
  const uint64_t bytes = allowed_bytes == 0 ? kMostBytes : std::min(kMostBytes, allowed_bytes / kShare);
  return std::clamp<int64_t>(static_cast<int64_t>(bytes / state_bytes), sequences, std::max(sequences, kMost));
}

// Where a step verifies drafts, the state before each of them is kept.
int64_t DraftSlots(uint64_t state_bytes, int64_t drafts, uint64_t allowed_bytes) {
  constexpr int64_t kMost = 8;
  constexpr uint64_t kShare = 16;
  const int64_t most = std::clamp<int64_t>(drafts, 0, kMost);
  if (allowed_bytes == 0) return most;
  return std::min(most, static_cast<int64_t>(allowed_bytes / kShare / state_bytes));
}

// A note where the file's own figure contradicts its token table.
std::optional<std::string> VocabularyNote(const model::Model& model) {
  const model::Config& config = model.config();
  const std::string key = config.architecture + ".vocab_size";
  const gguf::Metadata& metadata = model.file().metadata();
  if (metadata.Find(key) == nullptr) return std::nullopt;
  const Result<uint64_t> said = metadata.Get<uint64_t>(key);
  if (said && *said == static_cast<uint64_t>(config.vocab)) return std::nullopt;
  return fmt::format("{}: {} is {}, but the token table has {}; the table is used", model.file().path(), key,
                     said ? std::to_string(*said) : said.error().found, Count(config.vocab, "row"));
}

}  // namespace

// Placement first: the threads are counted among the CPUs that it leaves.
Status Runtime::ResolveCpus(const RuntimeOptions& options) {
  if (options.threads && (*options.threads < 0 || *options.threads > 4096)) {
    return Fail(Code::kOutOfRange, "setting is out of range")
        .Where("-t")
        .Found(std::to_string(*options.threads))
        .Expected("1 to 4096 threads, or 0 to choose");
  }
  RIDGE_ASSIGN_OR_RETURN(placement_, ResolvePlacement(options.placement));
  if (Status applied = ApplyPlacement(placement_); !applied) {
    if (options.strict) return applied;
    notes_.push_back(applied.error().Message());
    placement_.cpus_reason = placement_.numa_reason = "refused by the system: " + applied.error().Message();
  }
  threads_ = ProbeThreads(ResolveThreads(options.threads));
  if (!threads_.warning.empty()) notes_.push_back(threads_.warning);
  return {};
}

Status Runtime::ResolveContext(const RuntimeOptions& options) {
  const int64_t trained = model_->config().context_tokens;
  if (options.context_tokens.value_or(0) != 0) {
    context_tokens_ = *options.context_tokens;
    context_reason_ = "given";
    RIDGE_RETURN_IF_ERROR(CheckRange("-c", context_tokens_, 1, kMaxContextTokens));
    if (trained > 0 && context_tokens_ > trained) {
      notes_.push_back(
          fmt::format("the context of {} is longer than the {} that the model was trained for: answers may get "
                      "worse beyond those",
                      Count(context_tokens_, "token"), trained));
    }
    return {};
  }
  if (options.context_tokens && trained <= 0) {
    return Fail(Code::kInvalidArgument, "the model does not say what context it was trained for")
        .Where("-c 0")
        .Remedy("give the context in tokens");
  }
  if (options.context_tokens || (trained > 0 && trained <= kDefaultContextTokens)) {
    context_tokens_ = trained;
    context_reason_ = "what the model was trained for";
  } else {
    context_tokens_ = kDefaultContextTokens;
    context_reason_ = trained > 0 ? fmt::format("default; the model was trained for {}", trained)
                                  : "default; the model does not say what it was trained for";
  }
  return CheckRange("context_length", context_tokens_, 1, kMaxContextTokens);
}

Status Runtime::ResolveChunk(const RuntimeOptions& options) {
  batch_tokens_ = options.batch_tokens.value_or(std::max(kDefaultBatchTokens, options.chunk_tokens.value_or(0)));
  RIDGE_RETURN_IF_ERROR(CheckRange("-b", batch_tokens_, 1, kMaxContextTokens));
  chunk_tokens_ = options.chunk_tokens.value_or(std::min(kDefaultChunkTokens, batch_tokens_));
  RIDGE_RETURN_IF_ERROR(CheckRange("-ub", chunk_tokens_, 1, kMaxChunkTokens));
  if (chunk_tokens_ > batch_tokens_) {
    return Fail(Code::kInvalidArgument, "the prompt chunk is larger than the batch")
        .Where("-ub")
        .Found(std::to_string(chunk_tokens_))
        .Expected(fmt::format("at most -b {}", batch_tokens_));
  }
  return {};
}

// An encoder takes a text in one step.
void Runtime::ResolveEncoder(const RuntimeOptions& options) {
  if (!options.chunk_tokens) chunk_tokens_ = std::min(std::max(chunk_tokens_, context_tokens_), kMaxChunkTokens);
  batch_tokens_ = std::max(batch_tokens_, chunk_tokens_);
  if (context_tokens_ <= chunk_tokens_) return;
  context_tokens_ = chunk_tokens_;
  context_reason_ = "an encoder takes a text in one step of at most -ub tokens";
}

// A pool of given size that holds no request of the whole context: a context that was chosen gives way, one that was given is told about.
Status Runtime::FitContext(const RuntimeOptions& options, int64_t pages) {
  const int64_t tokens = pages * options.page_tokens;
  if (tokens >= context_tokens_ || model_->output() == model::ModelOutput::kEmbeddings) return {};
  if (!options.context_tokens) {
    context_reason_ = fmt::format("all that the KV pool of --kv-memory holds; without it {}", context_tokens_);
    context_tokens_ = tokens;
    return {};
  }
  const int64_t needed = (context_tokens_ + options.page_tokens - 1) / options.page_tokens;
  Fail short_pool = Fail(Code::kOutOfRange, "the KV pool holds no request of the whole context")
                        .Where("--kv-memory")
                        .Found(fmt::format("room for {}", Count(tokens, "token")))
                        .Expected(fmt::format("{} or more for {}",
                                              Count(memory_.kv_page_bytes * static_cast<uint64_t>(needed), "byte"),
                                              Count(context_tokens_, "token")))
                        .Remedy(fmt::format("give more, or -c {}", tokens));
  if (options.strict) return std::move(short_pool);
  notes_.push_back(std::move(short_pool).Take().Message() +
                   fmt::format("; as it is no request gets longer than {}", Count(tokens, "token")));
  return {};
}

Status Runtime::ResolvePages(const RuntimeOptions& options, backend::Program& planned) {
  const int64_t page = options.page_tokens, one = (context_tokens_ + page - 1) / page;
  MemoryPlan& plan = memory_;
  plan.page_tokens = page;
  plan.kv_page_bytes = static_cast<uint64_t>(
      model_->KvBytesPerToken(backend::ValueBytes(options.k_type), backend::ValueBytes(options.v_type)) *
      static_cast<double>(page));
  const uint64_t draft_page_bytes = options.draft != nullptr ? options.draft->memory().kv_page_bytes : 0;
  if (options.draft != nullptr) {
    const MemoryPlan& draft = options.draft->memory();
    plan.draft_bytes = draft.peak_bytes - draft.kv_bytes;
  }
  const uint64_t fixed = plan.weights_bytes + plan.workspace_bytes + plan.logits_bytes + plan.other_bytes +
                         plan.draft_bytes + plan.state_slot_bytes * static_cast<uint64_t>(plan.state_slots);
  const auto all_page_bytes = static_cast<double>(plan.kv_page_bytes + draft_page_bytes);
  const uint64_t room = plan.allowed_bytes > fixed ? plan.allowed_bytes - fixed : 0;
  int64_t pages = one * std::max<int64_t>(1, options.sequences);
  plan.pages_reason =
      fmt::format("room for {} of {}", Count(options.sequences, "request"), Count(context_tokens_, "token"));
  if (options.kv_bytes) {
    pages = plan.kv_page_bytes == 0 ? one : static_cast<int64_t>(*options.kv_bytes / plan.kv_page_bytes);
    plan.pages_reason = "given by --kv-memory";
    if (pages < 1) {
      return Fail(Code::kOutOfRange, "the KV pool is smaller than one page")
          .Where("--kv-memory")
          .Found(Count(*options.kv_bytes, "byte"))
          .Expected(fmt::format("{} for {}, or more", Count(plan.kv_page_bytes, "byte"), Count(page, "token")));
    }
    if (plan.kv_page_bytes > 0) RIDGE_RETURN_IF_ERROR(FitContext(options, pages));
  } else if (pages > one && plan.allowed_bytes > 0 &&
             static_cast<double>(pages) * all_page_bytes > kPoolShare * static_cast<double>(room)) {
    // Chosen, not given: it gives way.
    pages = std::max(one, static_cast<int64_t>(kPoolShare * static_cast<double>(room) / all_page_bytes));
    plan.pages_reason =
        fmt::format("{:.0f} % of the memory that the weights leave ({})", 100 * kPoolShare, plan.allowed_reason);
  }
  state_options_ = {.n_pages = pages,
                    .page_tokens = page,
                    .k_type = options.k_type,
                    .v_type = options.v_type,
                    .flash_attention = options.flash_attention};
  RIDGE_ASSIGN_OR_RETURN(const auto state, planned.NewState(state_options_));
  plan.kv_pages = pages;
  plan.kv_tokens = pages * page;
  plan.kv_bytes = plan.kv_page_bytes * static_cast<uint64_t>(pages);
  plan.full_requests = pages / ((context_tokens_ + page - 1) / page);
  plan.scratch_bytes = state->scratch_bytes();
  plan.draft_kv_bytes = draft_page_bytes * static_cast<uint64_t>(pages);
  plan.peak_bytes = fixed + plan.kv_bytes + plan.draft_kv_bytes + plan.scratch_bytes;
  return {};
}

// Refused here with figures, before weights are read: later the system would end the process without a word.
Status Runtime::PlanMemory(const RuntimeOptions& options, const backend::CompileOptions& compile) {
  RIDGE_RETURN_IF_ERROR(CheckRange("--kv-page", options.page_tokens, 1, kMaxContextTokens));
  backend::CompileOptions sizes = compile;
  sizes.dry_run = true;
  RIDGE_ASSIGN_OR_RETURN(program_, backend_->Compile(model_->graph(), sizes));
  const MemoryBudget memory = ReadMemory();
  MemoryPlan& plan = memory_;
  plan.allowed_bytes = memory.allowed_bytes;
  plan.allowed_reason = memory.reason;
  plan.weights_bytes = program_->weight_bytes();
  plan.workspace_bytes = program_->workspace_bytes();
  plan.logits_bytes = static_cast<uint64_t>(logit_rows_ * model_->graph().vocab()) * sizeof(float);
  for (const graph::Op& op : model_->graph().ops()) {
    if (op.kind == graph::OpKind::kEmbed) plan.mapped_bytes += model_->graph().weight(op.weights[0]).data.size();
  }
  plan.state_slot_bytes = static_cast<uint64_t>(model_->StateBytes());
  if (plan.state_slot_bytes > 0) {
    plan.checkpoints = Checkpoints(plan.state_slot_bytes, options.sequences, plan.allowed_bytes);
    plan.draft_slots = DraftSlots(plan.state_slot_bytes, options.drafts, plan.allowed_bytes);
    plan.state_slots = std::max<int64_t>(1, options.sequences) + plan.checkpoints + plan.draft_slots;
  }
  plan.other_bytes = kProcessBytes + kVocabularyBytes * static_cast<uint64_t>(model_->config().vocab);
  RIDGE_RETURN_IF_ERROR(ResolvePages(options, *program_));
  if (plan.fits_memory() || options.dry_run) return {};
  const double draft_bytes = static_cast<double>(plan.draft_bytes + plan.draft_kv_bytes);
  return Fail(Code::kResourceExhausted, options.draft != nullptr
                                            ? "the model, its draft model and their KV caches do not fit into memory"
                                            : "the model and its KV cache do not fit into memory")
      .Where(options.kv_bytes ? "--kv-memory" : fmt::format("-c {}", context_tokens_))
      .Found(
          fmt::format("{:.1f} GB of weights and {:.1f} GB of KV{}, {:.1f} GB in all",
                      static_cast<double>(plan.weights_bytes) / 1e9, static_cast<double>(plan.kv_bytes) / 1e9,
                      options.draft != nullptr ? fmt::format(", {:.1f} GB of the draft model", draft_bytes / 1e9) : "",
                      static_cast<double>(plan.peak_bytes) / 1e9))
      .Expected(
          fmt::format("{:.1f} GB at most ({})", static_cast<double>(plan.allowed_bytes) / 1e9, plan.allowed_reason))
      .Remedy(options.draft != nullptr
                  ? "do without the draft model, or give a smaller context with -c"
                  : "give a smaller context with -c, or use a smaller model; ridge inspect --memory shows the plan");
}

Result<std::unique_ptr<Runtime>> Runtime::Load(const RuntimeOptions& options) {
  std::unique_ptr<Runtime> runtime(new Runtime);
  RIDGE_RETURN_IF_ERROR(runtime->ResolveChunk(options));
  runtime->logit_rows_ = std::min(options.logit_rows, runtime->chunk_tokens_);
  runtime->passes_ = options.passes;
  runtime->blas_ = options.blas;
  if (options.blas) {
    // A product by BLAS reads float activations; these passes keep none.
    runtime->passes_.Set(graph::Pass::kGateUp, false);
    runtime->passes_.Set(graph::Pass::kNormQuantize, false);
    runtime->notes_.push_back("--matmul blas: the run is not bit-stable");
  }
  RIDGE_RETURN_IF_ERROR(runtime->ResolveCpus(options));
  runtime->strict_ = options.strict;
  Timer timer;
  RIDGE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::Open(options.path));
  runtime->times_.open_ms = timer.Lap();
  const std::string path = file.path();
  auto loaded = model::Model::Load(std::move(file),
                                   options.embeddings ? model::ModelOutput::kEmbeddings : model::ModelOutput::kLogits,
                                   options.first_layers);
  if (!loaded) {
    Error error = std::move(loaded).error();
    error.where = path + (error.where.empty() ? "" : ": " + error.where);
    return std::unexpected(std::move(error));
  }
  runtime->model_ = std::move(*loaded);
  if (auto note = VocabularyNote(*runtime->model_)) runtime->notes_.push_back(std::move(*note));
  if (options.draft != nullptr) RIDGE_RETURN_IF_ERROR(CheckDraftModel(*runtime->model_, options.draft->model()));
  RIDGE_RETURN_IF_ERROR(runtime->ResolveContext(options));
  if (options.most_tokens && runtime->context_tokens_ > *options.most_tokens) {
    runtime->context_tokens_ = std::max<int64_t>(1, *options.most_tokens);
    runtime->context_reason_ = "no text is longer";
  }
  if (runtime->model_->encoder()) runtime->ResolveEncoder(options);
  if (runtime->model_->output() == model::ModelOutput::kEmbeddings) runtime->logit_rows_ = runtime->chunk_tokens_;

  const gguf::File& source = runtime->model_->file();
  backend::CompileOptions compile{.n_threads = runtime->threads_.threads,
                                  .isa = options.isa,
                                  .max_tokens = runtime->chunk_tokens_,
                                  .max_logit_rows = runtime->logit_rows_,
                                  .passes = runtime->passes_,
                                  .strict = options.strict,
                                  .blas = options.blas,
                                  .release =
                                      [&source](const graph::Weight& weight) {
                                        if (const gguf::TensorInfo* tensor = source.FindTensor(weight.name))
                                          source.Release(*tensor);
                                      },
                                  .panel_cache_dir = options.panel_cache_dir};
  for (const MappedFile& shard : source.shards()) {
    compile.sources.push_back({shard.path(), shard.bytes(), shard.identity()});
  }
  runtime->backend_ = backend::NewCpuBackend();
  RIDGE_RETURN_IF_ERROR(runtime->PlanMemory(options, compile));
  runtime->times_.model_ms = timer.Lap();
  if (options.dry_run) return runtime;
  RIDGE_ASSIGN_OR_RETURN(auto program, runtime->backend_->Compile(runtime->model_->graph(), compile));
  runtime->program_ = CheckedProgram(std::move(program), source);
  RIDGE_RETURN_IF_ERROR(source.CheckWhole());  // the weights that were laid out anew are those of the file
  for (std::string& note : runtime->program_->load_report().notes) runtime->notes_.push_back(std::move(note));
  runtime->times_.compile_ms = timer.Lap();
  return runtime;
}

}  // namespace ridge::service
