// Which model, in which format, fits a device, and how fast it can be there: before anything is downloaded.
//
//   for (const Shape& s : KnownShapes())
//     for (const Mix& m : KnownMixes()) Footprint f = FootprintOf(s, m, {.context = 8192});
//   Speed speed = SpeedOf(DecodeWork(s, m, 8192, 2), PrefillWork(...), roofline, {...});
//
// Guarantees: shapes and mixes are tables whose source is named and whose sums are tested against published counts; every rule says its reason. Nothing
// is measured or read here. Speeds are absent without a roofline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/roofline/roofline.h"
#include "lab/roofline/work.h"

namespace ridge::lab {

// A model of a size class, as its config.json describes it.
struct Shape {
  std::string_view name;
  int64_t width, layers, heads, kv_heads, head_dim, ffn, vocab;
  bool tied;  // the output matrix is the token table
  int64_t context;
  int64_t experts, experts_used, expert_ffn;
  int64_t window, windowed_of;  // of every `windowed_of` layers all but one see `window` tokens; 0: none
  double published_billions;    // parameters, as its card says
  std::string_view source;
};
const std::vector<Shape>& KnownShapes();  // by rising size
double Parameters(const Shape& s);

// A file format as llama.cpp's quantizer mixes tensor types.
struct Mix {
  std::string_view name, body;
  std::string_view more;  // type of a share of attn_v and ffn_down
  double more_share;
  bool more_output;  // of attn_output too
  std::string_view output, embedding;
  double kld;  // mean, of Llama 3 8B on wikitext (llama.cpp's table); below 0: not known
};
const std::vector<Mix>& KnownMixes();  // most bits first
double BitsPerWeight(const Shape& s, const Mix& m);

struct Use {
  int64_t context = 4096, concurrency = 1, chunk = 512;
  double kv_value_bytes = 2;
  std::string kv_type = "f16";  // as the roofline names it
};

struct Footprint {
  double weights_bytes = 0, kv_bytes_per_token = 0, kv_bytes = 0, workspace_bytes = 0, other_bytes = 0;
  double total() const { return weights_bytes + kv_bytes + workspace_bytes + other_bytes; }
};
Footprint FootprintOf(const Shape& s, const Mix& m, const Use& use);

// One decode step at a context, and a prompt of as many tokens, per token.
Work DecodeWork(const Shape& s, const Mix& m, double context, double kv_value_bytes);
Work PrefillWork(const Shape& s, const Mix& m, double tokens, int64_t chunk, double kv_value_bytes);

// What attention does in one decode step, of heads of one kind.
struct AttentionLoad {
  std::string kv_type;
  int64_t head_dim = 0;
  double group = 1;        // query heads that share a KV head
  double head_tokens = 0;  // KV heads times tokens that are seen, over the layers
};
std::vector<AttentionLoad> DecodeAttention(const Shape& s, double context, const std::string& kv_type);
std::vector<AttentionLoad> DecodeAttention(const graph::Graph& graph, double context, const std::string& kv_type);

struct Estimate {
  double expected = 0, low = 0, high = 0;  // tokens a second
};
struct Speed {
  std::optional<Estimate> decode, prefill;
  std::string reason;  // why one is absent
};
// decode: one step, whose attention is told apart; prefill: one token of a prompt.
Speed SpeedOf(const Work& decode, const std::vector<AttentionLoad>& attention, const Work& prefill, double layers,
              const Roofline& roofline, const Circumstances& at);

// What stays free: for the system, of a device's memory.
struct Budget {
  double device_bytes = 0, reserve_bytes = 0;
  double usable() const { return device_bytes - reserve_bytes; }
};
Budget BudgetOf(double device_bytes, bool is_limit);  // is_limit: a cgroup's, in which the system does not live

// The course's table of tasks.
struct TaskRule {
  std::string_view task, least_format, kv_type;
  double most_billions;  // 0: as large as fits
  std::string_view model, reason;
};
const std::vector<TaskRule>& TaskRules();
const TaskRule* FindTask(std::string_view task);

struct RuntimeRule {
  std::string_view scenario, runtimes, reason;
};
const std::vector<RuntimeRule>& RuntimeRules();
// single, edge, concurrent or agents.
std::string_view ScenarioOf(std::string_view task, int64_t concurrency, double usable_bytes);

struct Candidate {
  const Shape* shape = nullptr;
  const Mix* mix = nullptr;
  Footprint footprint;
  Speed speed;
  bool fits = false;
  std::string why_not;  // empty: fits and suits the task
};
// Every shape with every mix; best first: those that suit, by size and then by bits. roofline may be null.
std::vector<Candidate> Candidates(const TaskRule& task, const Use& use, const Budget& budget, const Roofline* roofline,
                                  int threads);

}  // namespace ridge::lab
