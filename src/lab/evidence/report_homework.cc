// The course's seven questions, answered from what an experiment measured and from a log that was recorded elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lab/evidence/report.h"
#include "lab/experiments/catalogue.h"
#include "lab/statistics.h"

namespace ridge::lab {
namespace {

TableCell Without(std::string text) { return {.text = std::move(text), .missing = true}; }

const Measured* TestOf(const EvidenceRun& run, std::string_view test) {
  const auto& tests = run.record.output.tests;
  const auto it = std::ranges::find(tests, test, &Measured::test);
  return it == tests.end() ? nullptr : &*it;
}

// The highest bandwidth that a run of the arm found this machine to read with: a ceiling is what was reached once.
std::optional<double> CeilingGbps(const BundleEvidence& e, size_t arm) {
  std::optional<double> most;
  for (const EvidenceRun* r : RunsOf(e, arm)) {
    for (const Measured& m : r->record.output.tests) {
      if (m.read_ceiling_gbps) most = std::max(most.value_or(0), *m.read_ceiling_gbps);
    }
  }
  return most;
}

std::string BoundOf(const EvidenceRun& run, std::string_view test) {
  const Measured* m = TestOf(run, test);
  return m == nullptr ? "" : m->bound;
}

// 4: where more threads help, arithmetic is short; where they do not and the reads are near the ceiling, memory is.
std::vector<std::string> Bottleneck(const BundleEvidence& e, const Wording& w) {
  std::vector<std::string> out;
  const std::string& flag = e.experiment.flag;
  for (const Finding& f : e.findings) {
    const auto runs = RunsOf(e, f.arm);
    if (f.arm < 2 || f.value != e.experiment.values.back() || !f.ratio || runs.empty()) continue;
    std::string text = w(fmt::format("{}: {} = {} gives {:.2f} times the speed of {} = {}", f.test, flag, f.value,
                                     *f.ratio, flag, e.experiment.values[0]),
                         fmt::format("{}：{} = {} 的速度是 {} = {} 的 {:.2f} 倍", w.Test(f.test), flag, f.value, flag,
                                     e.experiment.values[0], *f.ratio));
    const Measured* m = TestOf(*runs[0], f.test);
    const auto ceiling = CeilingGbps(e, f.arm);
    if (m != nullptr && m->read_gbps && ceiling)
      text += w(
          fmt::format("; it reads {:.1f} GB/s, of {:.1f} GB/s that this machine was found to", *m->read_gbps, *ceiling),
          fmt::format("；读取 {:.1f} GB/s，本机实测上限 {:.1f} GB/s", *m->read_gbps, *ceiling));
    const std::string bound = BoundOf(*runs[0], f.test);
    text += bound.empty()
                ? w("; the ceilings of this machine are not known (ridge roofline on a quiet machine measures them)",
                    "；本机的上限未知（在安静的机器上运行 ridge roofline 即可测得）")
                : w("; the ceiling that it is nearest to: ", "；最接近的上限：") + w.Bound(bound);
    out.push_back(text + w(".", "。"));
  }
  if (out.empty()) out.push_back(w("Undetermined: no quiet block was measured.", "无法判定：没有测到安静的区块。"));
  return out;
}

// 6: how many tokens of a prompt are computed in the time of one that is generated, and how much is read for that one.
struct Offload {
  std::string label;
  std::optional<double> prompt, decode;  // t/s
  std::optional<double> model_bytes;
};

void AddOffload(std::vector<Block>& blocks, const std::vector<Offload>& all, const Wording& w) {
  DataTable t{
      .columns = {{w("Configuration", "配置")},
                  {w("Prompt", "prompt"), true},
                  {w("Decode", "解码"), true},
                  {w("Prompt / decode", "prompt / 解码"), true},
                  {w("Read at least", "至少读取"), true},
                  {w("Decode is", "解码")}},
      .caption =
          w("A decode step reads every weight for one token; a prompt reads them once for many. How much faster a "
            "token of a prompt is shows how far decoding is from the limit of arithmetic: 3 times and more is "
            "memory-bound, below 1.5 it is not.",
            "解码每一步为一个 token 读取全部权重；prompt 一次读取用于许多 token。prompt 的每个 token 快多少倍，"
            "就说明解码离计算上限有多远：3 倍及以上为 memory-bound，低于 1.5 倍则不是。")};
  const Offload* nearest = nullptr;
  for (const Offload& o : all) {
    const auto times = o.prompt && o.decode ? std::optional(*o.prompt / *o.decode) : std::nullopt;
    const auto gbps = o.decode && o.model_bytes ? std::optional(*o.decode * *o.model_bytes * 1e-9) : std::nullopt;
    const std::string none = w("not measured", "未测量");
    t.rows.push_back({{o.label},
                      o.prompt ? TableCell{Short(*o.prompt) + " t/s"} : Without(none),
                      o.decode ? TableCell{Short(*o.decode) + " t/s"} : Without(none),
                      times ? TableCell{Short(*times)} : Without("-"),
                      gbps ? TableCell{Short(*gbps) + " GB/s"} : Without("-"),
                      !times         ? Without(w("undetermined", "无法判定"))
                      : *times >= 3  ? TableCell{"memory-bound"}
                      : *times < 1.5 ? TableCell{w("not memory-bound", "非 memory-bound")}
                                     : Without(w("undetermined", "无法判定"))});
    if (times && (nearest == nullptr || *times > *nearest->prompt / *nearest->decode)) nearest = &o;
  }
  if (t.rows.empty()) return;
  blocks.emplace_back(std::move(t));
  const bool two = std::ranges::count_if(all, [](const Offload& o) { return o.prompt && o.decode; }) >= 2;
  if (nearest != nullptr && two)
    blocks.emplace_back(Paragraph{w(fmt::format("Nearer to memory-bound: {}.", nearest->label),
                                    fmt::format("更接近 memory-bound 的配置：{}。", nearest->label))});
}

std::vector<Offload> OffloadOf(const BundleEvidence& e) {
  std::vector<Offload> out;
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    const auto runs = RunsOf(e, arm);
    if (arm == 1 || runs.empty()) continue;
    Offload o{.label = ArmLabel(e, arm)};
    for (const Finding& f : e.findings) {
      if (f.arm != arm || !f.median) continue;
      if (f.test.starts_with("pp") && f.test.find("tg") == std::string::npos) o.prompt = f.median;
      if (f.test.starts_with("tg")) o.decode = f.median;
    }
    o.model_bytes = MedianOf(runs, &Measures::model_bytes);
    out.push_back(std::move(o));
  }
  return out;
}

// Rows of llama-bench, by the layers on the GPU.
std::vector<Offload> OffloadOf(const Recorded& log) {
  std::map<double, Offload> by_layers;
  for (const Row& row : log.rows) {
    const auto value = [&](const char* name) {
      const Field* f = row.Find(name);
      return f == nullptr ? std::nullopt : f->value;
    };
    const auto layers = value("n_gpu_layers") ? value("n_gpu_layers") : value("ngl"), speed = value("avg_ts");
    if (!layers || !speed) continue;
    Offload& o = by_layers[*layers];
    o.label = fmt::format("ngl = {}", *layers);
    const bool prompt = value("n_prompt").value_or(0) > 0, gen = value("n_gen").value_or(0) > 0;
    if (prompt && !gen) o.prompt = speed;
    if (gen && !prompt) o.decode = speed;
    if (const auto bytes = value("model_size"); bytes && *bytes > 1e4) o.model_bytes = bytes;
  }
  std::vector<Offload> out;
  for (auto& [layers, o] : by_layers) out.push_back(std::move(o));
  return out;
}

// 7: BW / bytes of the weights, what a token really reads, and what is measured.
void AddCeiling(std::vector<Block>& blocks, const BundleEvidence& e, const Wording& w) {
  DataTable t{.columns = {{e.experiment.flag},
                          {"BW", true},
                          {w("Weights", "权重"), true},
                          {w("BW / weights", "BW / 权重"), true},
                          {w("Read per token", "每 token 读取"), true},
                          {w("BW / read", "BW / 读取"), true},
                          {w("Measured", "实测"), true},
                          {w("Of the ceiling", "达到上限"), true}}};
  bool above = false;
  std::string bound;
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    const auto runs = RunsOf(e, arm);
    if (arm == 1 || runs.empty() || runs[0]->record.output.tests.empty()) continue;
    const Measured& m = runs[0]->record.output.tests[0];
    const auto finding = std::ranges::find_if(e.findings, [&](const Finding& f) { return f.arm == arm; });
    const auto gbps = CeilingGbps(e, arm), weights = MedianOf(runs, &Measures::model_bytes);
    if (finding == e.findings.end() || !finding->median || !gbps || !m.read_gbps || !weights) continue;
    const double bytes = *m.read_gbps * 1e9 / m.value, ceiling = *gbps * 1e9,
                 reached = *finding->median * bytes / ceiling;
    t.rows.push_back({{ShortValue(ValueOf(e.experiment, arm))},
                      {fmt::format("{:.1f} GB/s", ceiling / 1e9)},
                      {fmt::format("{:.1f} MB", *weights / 1e6)},
                      {fmt::format("{:.1f} t/s", ceiling / *weights)},
                      {fmt::format("{:.1f} MB", bytes / 1e6)},
                      {fmt::format("{:.1f} t/s", ceiling / bytes)},
                      {fmt::format("{:.1f} t/s", *finding->median)},
                      {fmt::format("{:.0f} %", 100 * reached)}});
    if (!m.bound.empty()) bound = m.bound;
    above = above || reached > 1.02;
  }
  if (t.rows.empty()) {
    blocks.emplace_back(Paragraph{w(
        "Undetermined: the ceilings of this machine could not be measured while it was busy (ridge roofline on a quiet "
        "machine measures them).",
        "无法判定：机器繁忙时测不到本机的上限（在安静的机器上运行 ridge roofline 即可测得）。")});
    return;
  }
  blocks.emplace_back(std::move(t));
  std::string text =
      w("Where the gap comes from: a token does not read each byte of the file (the embedding's rows that it does not "
        "need), "
        "and reads the K and V of all tokens before it, more with each depth; what is left between BW / read and the "
        "measured "
        "speed is arithmetic, unpacking and the steps between the kernels.",
        "差距来源：一个 token 并不读取文件的每个字节（用不到的 embedding 行不读），却要读取之前所有 token 的 K 和 V，"
        "历史越长读得越多；BW / 读取 与实测之间剩下的是计算、解包以及 kernel 之间的步骤。");
  if (!bound.empty())
    text += w(" The ceiling that it is nearest to here: ", "这里最接近的上限：") + w.Bound(bound) + w(".", "。");
  if (above)
    text +=
        w(" Where more than 100 % are reached, the ceiling is too low: other programs ran while it was measured. ridge "
          "roofline on a quiet machine measures it for good.",
          "超过 100 % 之处说明上限测得偏低：测量时有其他程序在运行。请在安静的机器上运行 ridge roofline。");
  blocks.emplace_back(Paragraph{std::move(text)});
}

std::vector<std::string> Effects(const BundleEvidence& e, const Wording& w) {
  std::vector<std::string> out;
  for (const Finding& f : e.findings) {
    if (f.arm == 1 || !f.median) continue;
    std::string text =
        w(fmt::format("{}, {} = {}: {} {}", f.test, e.experiment.flag, ShortValue(f.value), Short(*f.median), f.unit),
          fmt::format("{}，{} = {}：{} {}", w.Test(f.test), e.experiment.flag, ShortValue(f.value), Short(*f.median),
                      f.unit));
    if (f.arm > 1 && f.ratio)
      text += w(fmt::format(", {:.3f} of that with {}", *f.ratio, ShortValue(e.experiment.values[0])),
                fmt::format("，是 {} 的 {:.3f} 倍", ShortValue(e.experiment.values[0]), *f.ratio));
    if (f.arm > 1) text += w(": ", "：") + w.Verdict(f.verdict);
    out.push_back(std::move(text));
  }
  return out;
}

bool IsShown(const std::string& name) {
  static constexpr const char* kParts[] = {"temp",         "_c",         "power", "_mw",   "_w",       "percent",
                                           "gr3d",         "emc",        "sm",    "mem",   "ram_used", "avg_ts",
                                           "n_gpu_layers", "per_second", "pwr",   "gtemp", "pclk",     "mclk"};
  return std::ranges::any_of(kParts, [&](const char* part) { return name.find(part) != std::string::npos; });
}

// Medians and extremes of what a log holds of power, heat, use and speed, and how its end differs from its beginning.
void AddRecorded(std::vector<Block>& blocks, const BundleEvidence& e, const Wording& w) {
  if (!e.recorded) {
    if (!e.no_recorded.empty())
      blocks.emplace_back(Paragraph{w("The log that was recorded: ", "记录的日志：") + e.no_recorded});
    return;
  }
  const Recorded& log = *e.recorded;
  blocks.emplace_back(
      Heading{3, w(fmt::format("As recorded in {} ({}, {} samples)", e.recorded_name, Name(log.kind), log.rows.size()),
                   fmt::format("{} 中的记录（{}，{} 个样本）", e.recorded_name, Name(log.kind), log.rows.size()))});
  constexpr size_t kEnough = 8;  // rows, for a beginning and an end
  const bool ends = log.rows.size() >= kEnough;
  DataTable t{.columns = {{w("Reading", "读数")},
                          {w("Least", "最小"), true},
                          {w("Median", "中位数"), true},
                          {w("Most", "最大"), true}}};
  if (ends)
    t.columns.insert(t.columns.end(),
                     {{w("First quarter", "前四分之一"), true}, {w("Last quarter", "后四分之一"), true}});
  std::vector<std::string> names;
  for (const Row& row : log.rows) {
    for (const Field& f : row.fields) {
      if (f.value && std::ranges::find(names, f.name) == names.end()) names.push_back(f.name);
    }
  }
  const auto values_of = [&](const std::string& name, size_t first, size_t last) {
    std::vector<double> values;
    for (size_t i = first; i < last; i++) {
      if (const Field* f = log.rows[i].Find(name); f != nullptr && f->value) values.push_back(*f->value);
    }
    return values;
  };
  const size_t n = log.rows.size();
  std::vector<std::string> rising;
  for (const std::string& name : names) {
    if (!IsShown(name)) continue;
    const std::vector<double> values = values_of(name, 0, n);
    const auto [least, most] = std::ranges::minmax(values);
    std::vector<TableCell> row = {{name}, {Short(least)}, {Short(Median(values))}, {Short(most)}};
    if (ends) {
      const std::vector<double> begin = values_of(name, 0, n / 4), end = values_of(name, n - n / 4, n);
      row.push_back(begin.empty() ? Without("-") : TableCell{Short(Median(begin))});
      row.push_back(end.empty() ? Without("-") : TableCell{Short(Median(end))});
      if (!begin.empty() && !end.empty() && name.starts_with("temp_") && Median(end) > Median(begin) + 2)
        rising.push_back(fmt::format("{} {} → {} °C", name, Short(Median(begin)), Short(Median(end))));
    }
    t.rows.push_back(std::move(row));
  }
  blocks.emplace_back(std::move(t));
  if (!rising.empty())
    blocks.emplace_back(Paragraph{w("It was still getting warmer at the end: ", "到结束时温度仍在上升：") +
                                  w.List(rising) + w(".", "。")});
  if (log.kind == LogKind::kDmon) {
    const std::vector<double> sm = values_of("sm_percent", 0, n), mem = values_of("mem_percent", 0, n);
    if (!sm.empty() && !mem.empty())
      blocks.emplace_back(Paragraph{
          w(fmt::format(
                "The GPU had a kernel running {:.0f} % of the time and touched its memory {:.0f} % of it (medians; the "
                "second is a share of time, not of bandwidth).",
                Median(sm), Median(mem)),
            fmt::format(
                "GPU 有 {:.0f} % 的时间在运行 kernel，{:.0f} % 的时间在访问显存（中位数；后者是时间占比，不是带宽）。",
                Median(sm), Median(mem)))});
  }
  if (log.kind == LogKind::kLlamaBench) AddOffload(blocks, OffloadOf(log), w);
}

}  // namespace

int HomeworkNumber(const Experiment& e) {
  return e.name.size() == 10 && e.name.starts_with("homework-") ? e.name[9] - '0' : 0;
}

std::vector<Block> HomeworkOf(const BundleEvidence& e, const Wording& w) {
  std::vector<Block> blocks;
  const int number = HomeworkNumber(e.experiment);
  const Ready* ready = FindReady(e.experiment.name);
  if (number == 0 || ready == nullptr) return blocks;
  blocks.emplace_back(Heading{2, w(fmt::format("Homework {}", number), fmt::format("作业 {}", number))});
  blocks.emplace_back(Paragraph{w(ready->question, ready->question_zh)});
  std::vector<std::string> not_run;
  for (const auto& [value, why] : e.experiment.not_run)
    not_run.push_back(w(fmt::format("Not run on this device: {} = {}: {}.", e.experiment.flag, value, why),
                        fmt::format("本机未运行：{} = {}：{}。", e.experiment.flag, value, w.Reason(why))));
  if (!not_run.empty()) blocks.emplace_back(Bullets{std::move(not_run)});
  if (!e.runs.empty()) {
    if (number == 4) blocks.emplace_back(Bullets{Bottleneck(e, w), true});
    if (number == 6) AddOffload(blocks, OffloadOf(e), w);
    if (number == 7) AddCeiling(blocks, e, w);
    if (std::vector<std::string> effects = Effects(e, w); !effects.empty())
      blocks.emplace_back(Bullets{std::move(effects)});
  } else if (!e.recorded) {
    blocks.emplace_back(
        Paragraph{w("Nothing is filled in for it. A log that was recorded on such a device can be shown: --from FILE "
                    "(tegrastats, nvidia-smi dmon, llama-bench, llama-server).",
                    "此处不填任何数字。可用 --from FILE 给出在这种设备上记录的日志（tegrastats、nvidia-smi "
                    "dmon、llama-bench、llama-server）。")});
  }
  AddRecorded(blocks, e, w);
  return blocks;
}

}  // namespace ridge::lab
