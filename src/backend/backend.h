// What the engine needs of a device: compile a model's graph once, then run steps of it over paged state.
//
//   RIDGE_ASSIGN_OR_RETURN(auto program, backend->Compile(graph, options));
//   RIDGE_ASSIGN_OR_RETURN(auto state, program->NewState({.n_pages = 64, .page_tokens = 32}));
//   RIDGE_RETURN_IF_ERROR(program->Run(step, *state, logits));
//
// Guarantees: the logits of a token depend only on the tokens before it in its sequence (docs/numerics.md): not on the other
// sequences of the step, the threads, the chunking, the page size or the ISA. One caller at a time (the engine's thread).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mmap.h"
#include "base/result.h"
#include "graph/graph.h"
#include "graph/passes.h"

namespace ridge::backend {

enum class KvType { kF16, kBF16, kF32, kQ8_0, kQ4_0 };
std::string_view Name(KvType type);
Result<KvType> ParseKvType(std::string_view name);  // the error lists what this build has
double ValueBytes(KvType type);                     // bytes of one value, scales of blocks included: q8_0 1.0625

// A file that holds weights of the graph: what a panel cache is keyed by. Borrowed.
struct SourceFile {
  std::string path;
  std::span<const std::byte> bytes;
  FileIdentity identity;
};

struct CompileOptions {
  int n_threads = 1;
  std::string isa;             // empty: the best that this CPU has
  int64_t max_tokens = 512;    // rows of one step at most: sizes the workspace
  int64_t max_logit_rows = 1;  // of them, rows that give logits
  graph::PassSet passes = graph::PassSet::All();
  bool strict = false;   // an op without a fast kernel is an error
  bool blas = false;     // products of many tokens by OpenBLAS: an experiment variable, not bit-stable
  bool dry_run = false;  // sizes only: no weight is read, nothing is packed or cached; Run is refused
  // Called when a weight's bytes have been taken over and its file pages may leave memory.
  std::function<void(const graph::Weight&)> release;
  // Folder that keeps repacked weights between runs; empty: nothing is written. sources: the files behind the graph's weights.
  std::string panel_cache_dir = {};
  std::vector<SourceFile> sources = {};
};

// What loading did that people should know.
struct LoadReport {
  std::string panel_cache = "off";      // "off", "read …", "written …", or why neither
  std::vector<std::string> notes = {};  // one line each, for stderr
};

struct StateOptions {
  int64_t n_pages = 0;
  int64_t page_tokens = 32;  // multiple of 16
  KvType k_type = KvType::kF16, v_type = KvType::kF16;
  // Off: all scores of a row are computed before one softmax, instead of split by split. An experiment variable; other bits.
  bool flash_attention = true;
  bool resident =
      false;  // take all memory now instead of when it is first used: what a server needs is known from its start
  int64_t n_slots = 1;  // of recurrent state: sequences and checkpoints; nothing where the model has no recurrent layer
};

// KV pages of all layers, and slots for the state of recurrent layers. The engine owns it; page ids come from cache::PagePool.
class StateStore {
 public:
  virtual ~StateStore() = default;
  virtual const StateOptions& options() const = 0;
  virtual size_t size_bytes() const = 0;              // pages and slots
  virtual size_t scratch_bytes() const { return 0; }  // what attention needs beside them
  // Page `to` becomes what page `from` is. Not while a step runs.
  virtual void CopyPage(int32_t from, int32_t to) = 0;
  // What a page or a slot holds, as bytes that mean the same in another process with the same graph, the same options and an equal
  // bytes_version(). Not while a step runs.
  virtual uint32_t bytes_version() const { return 0; }
  virtual size_t page_bytes() const = 0;
  virtual void ReadPage(int32_t page, std::span<std::byte> bytes) const = 0;  // [page_bytes]
  virtual void WritePage(int32_t page, std::span<const std::byte> bytes) = 0;

  // A slot holds what all recurrent layers keep of one sequence. 0 where the model has none; then there are no slots to name.
  virtual size_t slot_bytes() const { return 0; }
  // Tokens of its sequence that a slot has seen; a step goes on from there, or from 0, which empties the slot first.
  virtual int64_t slot_tokens(int32_t /*slot*/) const { return 0; }
  virtual void ClearSlot(int32_t /*slot*/) {}
  // A checkpoint, or the way back to one: `to` becomes what `from` is. Slots are those of 0 .. n_slots.
  virtual void CopySlot(int32_t /*from*/, int32_t /*to*/) {}
  virtual void ReadSlot(int32_t /*slot*/, std::span<std::byte> /*bytes*/) const {}  // [slot_bytes]
  virtual void WriteSlot(int32_t /*slot*/, int64_t /*tokens*/, std::span<const std::byte> /*bytes*/) {}
};

// A checkpoint on the way: `slot` becomes the state after `tokens` tokens of a sequence of the step.
struct StateSave {
  int32_t sequence = 0;
  int32_t tokens = 0;  // 1 .. those of the sequence in the step
  int32_t slot = 0;    // of no sequence and no other save of the step
};

// One step, flattened over its sequences. All spans are borrowed for the call.
struct Step {
  std::span<const int32_t> tokens;      // [T]
  std::span<const int32_t> positions;   // [T], of each token in its sequence
  std::span<const int32_t> seq_start;   // [S + 1], rows of sequence s: seq_start[s] .. seq_start[s + 1]
  std::span<const int32_t> page_table;  // [S, P] page ids, P = page_table.size() / S
  std::span<const int32_t> logit_rows;  // [R] increasing rows of the step
  // [S] the slot of each sequence, all different; empty where the model has no recurrent layer. The tokens of a sequence follow each other, and
  // the first is the one after those that the slot has seen, or position 0.
  std::span<const int32_t> state_slots = {};
  std::span<const StateSave> state_saves = {};
};

// How one kind of op is executed, for plans and ledgers.
struct PlanEntry {
  std::string op;      // "matmul Q4_K"
  std::string device;  // "cpu"
  std::string kernel;  // "panel16.q4_k"
  std::string isa;
  std::string reason;  // why this kernel; for a fallback, why no better one
  bool fallback = false;
  int64_t count = 0;  // ops of this kind in the graph
};

// Time of one kind of op or fused group since tracing began, of steps that decode (one token a sequence) or prefill.
struct OpTime {
  std::string op;
  bool decode = false;
  int64_t calls = 0, steps = 0;
  double ms = 0;
};

// Steps whose ops were timed one by one. An op begins where the one before it ends.
struct TracedStep {
  double begin_s = 0;  // CLOCK_MONOTONIC_RAW
  int64_t tokens = 0;
  bool decode = false;    // one token a sequence
  std::vector<float> us;  // [ops]
};
struct OpTrace {
  int64_t every = 0;             // one step in so many of each kind, fewer where a run is long; 0: none
  std::vector<std::string> ops;  // of a step, in its order: the first prepares what all layers share
  std::vector<TracedStep> steps;
};

class Program {
 public:
  virtual ~Program() = default;
  virtual Result<std::unique_ptr<StateStore>> NewState(const StateOptions& options) = 0;
  // logits [R, vocab]. Errors: kInvalidArgument when the step exceeds what was compiled for, names a token, page or slot that does not exist, or
  // does not go on where a slot's sequence stands.
  virtual Status Run(const Step& step, StateStore& state, std::span<float> logits) = 0;
  virtual const std::vector<PlanEntry>& plan() const = 0;
  virtual LoadReport load_report() const { return {}; }
  virtual size_t weight_bytes() const = 0;  // resident weights, as laid out by the backend
  virtual size_t workspace_bytes() const = 0;
  virtual std::string isa() const = 0;
  virtual int n_threads() const = 0;
  // fn(0) .. fn(n - 1) on the program's threads, in any order; not while it runs. fn must not throw.
  virtual void ForEach(size_t n, const std::function<void(size_t)>& fn) {
    for (size_t i = 0; i < n; i++) fn(i);
  }
  // Off at first; turning it on starts anew. What does not trace has no times.
  virtual void TraceOps(bool) {}
  virtual std::vector<OpTime> op_times() const { return {}; }
  // One step in `every`, op by op; 0: none. Starts anew. Beside TraceOps nothing is traced so.
  virtual void TraceSteps(int64_t /*every*/) {}
  virtual void TraceNextSteps() {}  // where steps are traced: the next of each kind is one of them
  virtual OpTrace op_trace() const { return {}; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  // The graph and the bytes behind its weights must outlive the program. Errors: kUnsupported, kResourceExhausted, kInvalidArgument.
  virtual Result<std::unique_ptr<Program>> Compile(const graph::Graph& graph, const CompileOptions& options) = 0;
};

std::unique_ptr<Backend> NewCpuBackend();

// ISA targets of the CPU backend in this binary, worst first, and whether this CPU can run them.
struct IsaInfo {
  std::string name;
  bool supported;
};
std::vector<IsaInfo> CpuIsas();

// Every ISA target that Ridge has, those of other processors too, and the largest tile of its matrix kernels: `columns` vectors of
// `lanes` rows of weights, times `tokens`. Tests hold them against the kernel tables, the Arm ones under emulation.
struct CpuTarget {
  std::string name, processor;    // "neon", "aarch64"
  std::string dot, multiply_add;  // instructions of the inner loops: of 8-bit quants, of floats
  int lanes = 0, columns = 0, tokens = 0;
};
std::vector<CpuTarget> CpuTargets();

// Which matrix kernel serves a tensor type, on every target.
struct CpuTypeKernel {
  std::string type, kernel;  // "Q4_K", "panel16.q4_k"
  std::string activations;   // "int8, a scale per 256"
  bool floats = false;       // multiplies floats: the tile is 4 vectors x 1 token, or 2 x 4, or 1 x 8
  bool fallback = false;     // rows are decoded to float each time they are used
  int most_tokens = 8;       // of its largest tile on any target
};
std::vector<CpuTypeKernel> CpuTypeKernels();

}  // namespace ridge::backend
