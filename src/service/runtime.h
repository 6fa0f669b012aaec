// A model ready to compute: its file, its graph and the compiled program, with every setting resolved and a reason for each that was chosen.
//
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Runtime> runtime, Runtime::Load({.path = path, .threads = 2}));
//   RIDGE_ASSIGN_OR_RETURN(auto state, runtime->program().NewState(runtime->state_options()));
//
// Guarantees: what the caller gave is kept or refused with figures; only what was not given is chosen. The same options give the same settings in
// every command. Immutable after Load but for the program, which belongs to one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/placement.h"
#include "base/result.h"
#include "base/topology.h"
#include "model/model.h"
#include "service/memory_plan.h"

namespace ridge::service {

class Runtime;

struct RuntimeOptions {
  std::string path;            // a GGUF file, or the first of a split model
  std::optional<int> threads;  // not given: see ResolveThreads and ProbeThreads
  std::string isa;             // empty: the best that this CPU has
  std::optional<int64_t>
      context_tokens;  // prompt and output of one request; 0: what the model was trained for; not given: that, at most 4096
  std::optional<int64_t> most_tokens = {};  // no request will be longer: a context that nobody gave need not be either
  std::optional<int64_t> batch_tokens;      // most prompt tokens that are asked for at once; not given: 2048
  std::optional<int64_t> chunk_tokens;  // prompt tokens of one step; not given: 512, or batch_tokens if that is less
  bool embeddings = false;              // the graph ends at the final norm; always so for an encoder
  int64_t logit_rows = 1;               // rows of a step that may give logits
  int64_t drafts = 0;                   // of them, drafted tokens; a recurrent model keeps a state for each
  int64_t sequences = 1;                // requests that the KV pool has room for, each as long as the context
  std::optional<uint64_t>
      kv_bytes;  // size of the KV pool; not given: room for `sequences`, or less where memory is short. A context that nobody gave is no larger
  int64_t page_tokens = 32;
  backend::KvType k_type = backend::KvType::kF16, v_type = backend::KvType::kF16;
  graph::PassSet passes = graph::PassSet::All();
  bool flash_attention = true;
  bool strict = false;
  bool blas = false;         // --matmul blas: turns off the passes that keep no float activations
  int64_t first_layers = 0;  // see Model::Load: an intervention of `ridge diagnose`
  PlacementOptions placement = {};
  bool dry_run =
      false;  // settings and memory plan only: no weight is read, the program cannot run, what does not fit is no error
  // A model that will draft for this one, loaded with dry_run; borrowed during Load. Refused here unless it can (draft_model.h); its memory is planned for.
  const Runtime* draft = nullptr;
  std::string panel_cache_dir = {};  // folder that keeps repacked weights; empty: nothing is written
};

struct LoadTimes {
  double open_ms = 0;     // map the file, read its header
  double model_ms = 0;    // config, weights found, graph
  double compile_ms = 0;  // repack weights, choose kernels
};

class Runtime {
 public:
  // Errors: those of File::Open, Model::Load and Compile; kInvalidArgument and kOutOfRange for settings, naming the flag.
  static Result<std::unique_ptr<Runtime>> Load(const RuntimeOptions& options);

  const model::Model& model() const { return *model_; }
  backend::Program& program() const { return *program_; }
  const CpuBudget& threads() const { return threads_; }
  const Placement& placement() const { return placement_; }
  int64_t context_tokens() const { return context_tokens_; }
  // The longest that a request can get, prompt and output: the context, or the whole KV pool where that is smaller (notes() say so).
  int64_t request_tokens() const { return std::min(context_tokens_, memory_.kv_tokens); }
  const std::string& context_reason() const { return context_reason_; }
  int64_t batch_tokens() const { return batch_tokens_; }
  int64_t chunk_tokens() const { return chunk_tokens_; }
  int64_t logit_rows() const { return logit_rows_; }
  const graph::PassSet& passes() const { return passes_; }
  bool blas() const { return blas_; }
  bool bit_stable() const { return !blas_; }  // the numerics contract holds
  bool strict() const { return strict_; }
  // Enough pages for one request that fills the context, unless kv_bytes was given.
  const backend::StateOptions& state_options() const { return state_options_; }
  const std::string& pages_reason() const { return memory_.pages_reason; }
  const MemoryPlan& memory() const { return memory_; }
  const LoadTimes& times() const { return times_; }
  const std::vector<std::string>& notes() const { return notes_; }  // one line each, for people

 private:
  Runtime() = default;
  Status ResolveCpus(const RuntimeOptions& options);
  Status ResolveContext(const RuntimeOptions& options);
  Status ResolvePages(const RuntimeOptions& options, backend::Program& planned);
  Status FitContext(const RuntimeOptions& options, int64_t pages);
  Status PlanMemory(const RuntimeOptions& options, const backend::CompileOptions& compile);
  Status ResolveChunk(const RuntimeOptions& options);
  void ResolveEncoder(const RuntimeOptions& options);

  std::unique_ptr<model::Model> model_;
  std::unique_ptr<backend::Backend> backend_;
  std::unique_ptr<backend::Program> program_;  // borrows the model's graph
  CpuBudget threads_;
  Placement placement_;
  int64_t context_tokens_ = 0, batch_tokens_ = 0, chunk_tokens_ = 0, logit_rows_ = 0;
  std::string context_reason_;
  graph::PassSet passes_ = graph::PassSet::All();
  bool strict_ = false, blas_ = false;
  backend::StateOptions state_options_;
  MemoryPlan memory_;
  LoadTimes times_;
  std::vector<std::string> notes_;
};

}  // namespace ridge::service
