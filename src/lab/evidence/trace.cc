#include "lab/evidence/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

// Readings that are shown as counters: all others are in the database.
bool IsCounter(std::string_view name) {
  for (const char* exact : {"cpu_use_percent", "cpu_steal_percent", "mem_available_mb", "process_rss_mb",
                            "process_cpu_percent", "page_faults_per_second", "cgroup_throttled_percent", "cpu0_mhz"}) {
    if (name == exact) return true;
  }
  if (name.starts_with("gpu") && (name.ends_with("_sm_percent") || name.ends_with("_fb_mb") ||
                                  name.ends_with("_pwr_w") || name.ends_with("_gtemp_c")))
    return true;
  return name == "memory_read_gbps" || name == "memory_write_gbps" || name.starts_with("temp_") ||
         name.starts_with("power_") || name.starts_with("pressure_");
}

class Writer {
 public:
  explicit Writer(double zero_unix_s) : zero_s_(zero_unix_s) {}

  // Of a time on the run's monotonic clock. To 10 ns, as ops may take less than a microsecond; one grid for all, so that what lies inside stays inside.
  double Us(const EvidenceRun& r, double s) const {
    return std::round(((r.record.unix_s - zero_s_) + (s - r.record.begin_s)) * 1e8) / 1e2;
  }

  void Name(int tid, const std::string& name) {
    Add({{"ph", "M"}, {"pid", 1}, {"tid", tid}, {"name", "thread_name"}, {"args", {{"name", name}}}});
    Add({{"ph", "M"}, {"pid", 1}, {"tid", tid}, {"name", "thread_sort_index"}, {"args", {{"sort_index", tid}}}});
  }
  void Span(int tid, const std::string& name, const char* category, double begin_us, double end_us, Json args) {
    Json event = {{"ph", "X"},
                  {"pid", 1},
                  {"tid", tid},
                  {"name", name},
                  {"cat", category},
                  {"ts", begin_us},
                  {"dur", std::round(std::max(0.0, end_us - begin_us) * 100) / 100}};
    if (!args.is_null()) event["args"] = std::move(args);  // ops, of which there are many, have none
    Add(event);
  }
  void Async(const char* phase, const std::string& id, const std::string& name, double us, Json args) {
    Add({{"ph", phase},
         {"pid", 1},
         {"tid", 1},
         {"id", id},
         {"name", name},
         {"cat", "request"},
         {"ts", us},
         {"args", std::move(args)}});
  }
  void Counter(const std::string& name, double us, double value) {
    Add({{"ph", "C"}, {"pid", 1}, {"name", name}, {"ts", us}, {"args", {{"value", value}}}});
  }
  void Process(const std::string& name) {
    Add({{"ph", "M"}, {"pid", 1}, {"name", "process_name"}, {"args", {{"name", name}}}});
  }
  std::string Take(const std::string& hardware) {
    return "{\"displayTimeUnit\":\"ms\",\"otherData\":" +
           Json{{"hardware", hardware}, {"zero_unix_s", zero_s_}}.dump(-1, ' ', false, Json::error_handler_t::replace) +
           ",\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  void Add(const Json& event) {
    events_ += (events_.empty() ? "" : ",\n") + event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  double zero_s_;
  std::string events_;
};

// The first of tracks 0, 1, … whose last span has ended.
size_t TrackFor(std::vector<double>& ends, double begin, double end) {
  size_t track = 0;
  while (track < ends.size() && ends[track] > begin) track++;
  if (track == ends.size()) ends.push_back(0);
  ends[track] = end;
  return track;
}

constexpr int kBlocks = 100, kRuns = 200, kSteps = 300;  // first thread number of each kind

// Inside the phase that holds them; steps that no phase holds as a whole are on a track beside the run's: where only durations of phases are known, their places are not.
void AddSteps(Writer& w, const EvidenceRun& r, int tid, double begin, double end) {
  for (const StepSpan& step : r.steps) {
    const auto inside = [&](double s) { return std::clamp(w.Us(r, s), begin, end); };
    const double from = inside(step.begin_s), to = inside(step.end_s);
    const bool held = std::ranges::any_of(
        r.spans, [&](const Span& s) { return w.Us(r, s.begin_s) <= from && to <= w.Us(r, s.end_s); });
    const int track = held ? tid : tid - kRuns + kSteps;
    w.Span(track, fmt::format("{} step", step.phase), "step", from, to,
           {{"tokens", step.tokens}, {"sampled", fmt::format("one step in {}", step.every)}});
    for (const OpSpan& op : step.ops) w.Span(track, op.name, "op", inside(op.begin_s), inside(op.end_s), nullptr);
  }
}

}  // namespace

std::string TraceJson(const BundleEvidence& e) {
  double zero = 0;
  for (size_t i = 0; i < e.runs.size(); i++)
    zero = i == 0 ? e.runs[i].record.unix_s : std::min(zero, e.runs[i].record.unix_s);
  Writer w(zero);
  w.Process("ridge lab: " + e.experiment.name);
  std::vector<const EvidenceRun*> runs;
  for (const EvidenceRun& r : e.runs) runs.push_back(&r);
  std::ranges::stable_sort(runs, {}, [](const EvidenceRun* r) { return r->record.unix_s; });
  struct Block {
    double begin = 0, end = 0;
    size_t runs = 0;
    bool disturbed = false;
  };
  std::map<int64_t, Block> blocks;
  std::vector<double> run_ends, block_ends;
  for (const EvidenceRun* r : runs) {
    const double begin = w.Us(*r, r->record.begin_s), end = w.Us(*r, r->record.end_s);
    Block& block = blocks[r->plan.block];
    block.begin = block.runs == 0 ? begin : std::min(block.begin, begin);
    block.end = std::max(block.end, end);
    block.runs++;
    block.disturbed |= !r->record.disturbed.empty();
    const int tid = kRuns + static_cast<int>(TrackFor(run_ends, begin, end));
    Json args = {{"run", r->plan.number},
                 {"block", r->plan.block},
                 {"arm", r->plan.arm},
                 {"log", r->log},
                 {"disturbed", r->record.disturbed}};
    for (const Measured& m : r->record.output.tests) args[m.test + " (" + m.unit + ")"] = m.value;
    w.Span(tid,
           fmt::format("{} = {}{}", e.experiment.flag, ValueOf(e.experiment, r->plan.arm),
                       r->plan.arm == 1 ? " (A/A)" : ""),
           "run", begin, end, std::move(args));
    for (const Span& s : r->spans)
      w.Span(tid, s.name, "phase", std::clamp(w.Us(*r, s.begin_s), begin, end),
             std::clamp(w.Us(*r, s.end_s), begin, end), {{"placed", s.how}});
    AddSteps(w, *r, tid, begin, end);
    for (size_t i = 0; i < r->requests.size(); i++) {
      const RequestSpan& q = r->requests[i];
      const std::string id = fmt::format("{}.{}", r->plan.number, i), name = "request " + q.prompt;
      w.Async("b", id, name, w.Us(*r, q.begin_s), {{"run", r->plan.number}});
      if (q.first_token_s) w.Async("n", id, name, w.Us(*r, *q.first_token_s), {{"first token", true}});
      w.Async("e", id, name, w.Us(*r, q.end_s), Json::object());
    }
    if (!r->series) continue;
    for (const Series::Point& p : r->series->points) {
      for (size_t i = 0; i < r->series->names.size(); i++) {
        if (p.values[i] && IsCounter(r->series->names[i]))
          w.Counter(r->series->names[i], w.Us(*r, p.before_s), *p.values[i]);
      }
    }
  }
  for (const auto& [number, block] : blocks) {
    const int tid = kBlocks + static_cast<int>(TrackFor(block_ends, block.begin, block.end));
    w.Span(tid, fmt::format("block {}", number), "block", block.begin, block.end,
           {{"runs", block.runs}, {"counts", !block.disturbed}});
  }
  for (size_t i = 0; i < block_ends.size(); i++) w.Name(kBlocks + static_cast<int>(i), "blocks");
  for (size_t i = 0; i < run_ends.size(); i++) {
    w.Name(kRuns + static_cast<int>(i), "runs, phases, steps and ops");
    w.Name(kSteps + static_cast<int>(i), "steps that no phase holds");
  }
  return w.Take(e.hardware);
}

}  // namespace ridge::lab
