#include "lab/experiments/homework.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/experiments/catalogue.h"
#include "lab/statistics.h"

namespace ridge::lab {
namespace {

const Measured* TestOf(const RunOutput& run, std::string_view test) {
  const auto it = std::ranges::find(run.tests, test, &Measured::test);
  return it == run.tests.end() ? nullptr : &*it;
}

std::string Effects(const Homework& h) {
  std::string text;
  for (const Finding& f : h.findings) {
    if (f.arm == 1 || !f.median) continue;
    text += fmt::format("- {}, {} = {}: {:.2f} {}", f.test, h.experiment->flag, f.value, *f.median, f.unit);
    if (f.arm > 1 && f.ratio) text += fmt::format(", {:.3f} of that with {}", *f.ratio, h.experiment->values[0]);
    if (f.arm > 1) text += ": " + f.verdict;
    text += "\n";
  }
  return text;
}

// 4: where a second thread helps, arithmetic is short; where it does not and the reads are near the ceiling, memory is.
std::string Bottleneck(const Homework& h) {
  std::string text;
  for (const Finding& f : h.findings) {
    if (f.arm < 2 || f.value != h.experiment->values.back() || !f.ratio || !h.arms.contains(f.arm)) continue;
    const Measured* m = TestOf(h.arms.at(f.arm), f.test);
    text += fmt::format("- {}: {} = {} gives {:.2f} times the speed of {} = {}", f.test, h.experiment->flag, f.value,
                        *f.ratio, h.experiment->flag, h.experiment->values[0]);
    if (m != nullptr && m->read_gbps && h.ceiling_gbps.contains(f.arm))
      text += fmt::format("; it reads {:.1f} GB/s, of {:.1f} GB/s that this machine was found to", *m->read_gbps,
                          h.ceiling_gbps.at(f.arm));
    if (m != nullptr && !m->bound.empty())
      text += fmt::format("; the ceiling that it is nearest to: {}", m->bound);
    else
      text += "; the ceilings of this machine are not known (ridge roofline on a quiet machine measures them)";
    text += ".\n";
  }
  return text.empty() ? "Undetermined: no quiet block was measured.\n" : text;
}

// 7: BW / bytes of the weights, what a token really reads, and what is measured.
std::string Ceiling(const Homework& h) {
  std::string text =
      "| depth | BW | weights | BW / weights | read per token | BW / read | measured | of the ceiling "
      "|\n|---|---|---|---|---|---|---|---|\n";
  bool any = false, above = false;
  std::string bound;
  for (const auto& [arm, run] : h.arms) {
    if (arm == 1 || run.tests.empty()) continue;
    const Measured& m = run.tests[0];
    const auto finding = std::ranges::find_if(h.findings, [&, id = arm](const Finding& f) { return f.arm == id; });
    if (finding == h.findings.end() || !finding->median || !h.ceiling_gbps.contains(arm) || !m.read_gbps ||
        !run.measures.model_bytes)
      continue;
    any = true;
    const double bytes = *m.read_gbps * 1e9 / m.value, weights = *run.measures.model_bytes;
    const double ceiling = h.ceiling_gbps.at(arm) * 1e9;
    text +=
        fmt::format("| {} | {:.1f} GB/s | {:.1f} MB | {:.1f} t/s | {:.1f} MB | {:.1f} t/s | {:.1f} t/s | {:.0f} % |\n",
                    ValueOf(*h.experiment, arm), ceiling / 1e9, weights / 1e6, ceiling / weights, bytes / 1e6,
                    ceiling / bytes, *finding->median, 100 * *finding->median * bytes / ceiling);
    if (!m.bound.empty()) bound = m.bound;
    above = above || *finding->median * bytes > 1.02 * ceiling;
  }
  if (!any)
    return "Undetermined: the ceilings of this machine could not be measured while it was busy (ridge roofline on a "
           "quiet machine measures them).\n";
  text +=
      "\nWhere the gap comes from: a token does not read each byte of the file (the embedding's rows that it does not "
      "need), and reads the K and "
      "V of all tokens before it, more with each depth; what is left between BW / read and the measured speed is "
      "arithmetic, unpacking and the "
      "steps between the kernels.";
  if (!bound.empty()) text += fmt::format(" The ceiling that it is nearest to here: {}.", bound);
  if (above)
    text +=
        " Where more than 100 % are reached, the ceiling is too low: other programs ran while it was measured. ridge "
        "roofline on a quiet machine measures it for good.";
  return text + "\n";
}

// Medians and extremes of what a log holds of power, heat, use and speed.
std::string FromLog(const Homework& h) {
  if (!h.recorded) return "";
  const Recorded& log = *h.recorded;
  std::string text = fmt::format(
      "\n### As recorded in {} ({}, {} samples)\n\n| reading | least | median | most |\n|---|---|---|---|\n",
      h.recorded_name, Name(log.kind), log.rows.size());
  std::vector<std::string> names;
  for (const Row& row : log.rows) {
    for (const Field& f : row.fields) {
      if (f.value && std::ranges::find(names, f.name) == names.end()) names.push_back(f.name);
    }
  }
  const auto values_of = [&](const std::string& name) {
    std::vector<double> values;
    for (const Row& row : log.rows) {
      if (const Field* f = row.Find(name); f != nullptr && f->value) values.push_back(*f->value);
    }
    return values;
  };
  for (const std::string& name : names) {
    static constexpr const char* kParts[] = {"temp",         "_c",         "power", "_mw",   "_w",       "percent",
                                             "gr3d",         "emc",        "sm",    "mem",   "ram_used", "avg_ts",
                                             "n_gpu_layers", "per_second", "pwr",   "gtemp", "pclk",     "mclk"};
    if (std::ranges::none_of(kParts, [&](const char* part) { return name.find(part) != std::string::npos; })) continue;
    std::vector<double> values = values_of(name);
    const auto [least, most] = std::ranges::minmax(values);
    text += fmt::format("| {} | {:.1f} | {:.1f} | {:.1f} |\n", name, least, Median(values), most);
  }
  if (log.kind == LogKind::kDmon) {
    const std::vector<double> sm = values_of("sm_percent"), mem = values_of("mem_percent");
    if (!sm.empty() && !mem.empty())
      text += fmt::format(
          "\nThe GPU had a kernel running {:.0f} % of the time and touched its memory {:.0f} % of it (medians; the "
          "second is a "
          "share of time, not of bandwidth).\n",
          Median(sm), Median(mem));
  }
  return text;
}

}  // namespace

int HomeworkNumber(const Experiment& e) {
  return e.name.size() == 10 && e.name.starts_with("homework-") ? e.name[9] - '0' : 0;
}

std::string AnswerHomework(const Homework& h) {
  const Experiment& e = *h.experiment;
  const Ready* ready = FindReady(e.name);
  std::string text = fmt::format("## Homework {} / 作业 {}\n\n", h.number, h.number);
  if (ready != nullptr) text += ready->question_zh + "  \n" + ready->question + "\n\n";
  for (const auto& [value, why] : e.not_run)
    text += fmt::format("Not run on this device: {} = {}: {}. / 本机未运行：{}。\n\n", e.flag, value, why, why);
  if (Arms(e) > 0) {
    const std::string model = SettingOf(e, 0, {"m", "model"}).value_or("this model");
    text += fmt::format("On {}, with {}, at the settings of this experiment we saw:\n\n", h.hardware,
                        e.flag == "m"   ? "the models below"
                        : model.empty() ? "this model"
                                        : model);
    if (h.number == 4)
      text += Bottleneck(h) + "\n";
    else if (h.number == 7)
      text += Ceiling(h) + "\n";
    text += Effects(h);
  } else if (!h.recorded) {
    text +=
        "Nothing is filled in for it. A log that was recorded on such a device can be shown: --from FILE (tegrastats, "
        "nvidia-smi dmon, "
        "llama-bench, llama-server).\n";
  }
  return text + FromLog(h);
}

}  // namespace ridge::lab
