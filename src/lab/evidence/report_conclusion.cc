// What was seen, in sentences that name device, model and settings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lab/evidence/report.h"

namespace ridge::lab {
namespace {

// "p = 128, n = 32"
std::string Settings(const BundleEvidence& e, const Wording& w) {
  std::string text;
  for (const auto& [key, value] : e.experiment.base) {
    if (key == "m" || key == "model") continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : w(", ", "，"), key, ShortValue(value));
  }
  return text.empty() ? w("the subject's own settings", "对象的默认设置") : text;
}

std::string Where(const BundleEvidence& e, const Wording& w) {
  const std::string device = e.hardware.empty() ? w("a device that is not told", "未说明的设备") : e.hardware;
  std::vector<std::string> models, subjects;
  const auto add = [](std::vector<std::string>& to, const std::string& text) {
    if (!text.empty() && std::ranges::find(to, text) == to.end()) to.push_back(text);
  };
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    if (!RunsOf(e, arm).empty()) add(models, ModelOf(e, arm, w)), add(subjects, RunsOf(e, arm)[0]->record.subject);
  }
  const std::string model = w.List(models), subject = w.List(subjects), settings = Settings(e, w);
  return w(fmt::format("On this device ({}), with this model ({}), run by {} with {}, we saw:", device, model, subject,
                       settings),
           fmt::format("在这台设备（{}）上，用这个模型（{}），由 {} 以 {} 运行，我们看到：", device, model, subject,
                       settings));
}

std::string Effect(const BundleEvidence& e, const Finding& f, const Wording& w) {
  const std::string label = ArmLabel(e, f.arm), reference = ArmLabel(e, 0);
  const std::string floor = fmt::format("{:.1f} %", 100 * std::expm1(f.floor));
  if (!f.ratio || !f.low || f.verdict.starts_with("undetermined"))
    return w(fmt::format("{}: {} against {}: {}", f.test, label, reference, f.verdict),
             fmt::format("{}：{} 与 {} 相比：{}", w.Test(f.test), label, reference, w.Verdict(f.verdict)));
  const std::string interval =
      w(fmt::format("{:.3f} to {:.3f} with {:.0f} % confidence, {} blocks", *f.low, *f.high, 100 * f.confidence,
                    f.blocks),
        fmt::format("{:.3f} 至 {:.3f}，置信度 {:.0f} %，{} 个区块", *f.low, *f.high, 100 * f.confidence, f.blocks));
  if (f.verdict == "no difference")
    return w(
        fmt::format("{}: no difference between {} and {} beyond what identical runs show (ratio {:.3f}, {}; A/A {})",
                    f.test, label, reference, *f.ratio, interval, floor),
        fmt::format("{}：{} 与 {} 之间没有超出相同运行差异的差别（比值 {:.3f}，{}；A/A {}）", w.Test(f.test), label,
                    reference, *f.ratio, interval, floor));
  const std::string of = f.unit == "t/s" ? w("the tokens per second", "每秒 token 数") : w("the figure", "该指标");
  return w(fmt::format("{}: {} gave {:.3f} times {} of {} ({}; identical runs differ by up to {}): {}", f.test, label,
                       *f.ratio, of, reference, interval, floor, f.verdict),
           fmt::format("{}：{} 的{}是 {} 的 {:.3f} 倍（{}；相同运行相差至多 {}）：{}", w.Test(f.test), label, of,
                       reference, *f.ratio, interval, floor, w.Verdict(f.verdict)));
}

// By test: what bound the first value and what binds the others.
std::vector<std::string> Bottlenecks(const BundleEvidence& e, const Wording& w) {
  std::map<size_t, std::vector<ArmCeiling>> arms;
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    if (arm != 1) arms[arm] = CeilingsOf(e, arm);
  }
  std::vector<std::string> out;
  const size_t tests = arms[0].size();
  for (size_t test = 0; test < tests; test++) {
    std::string text, first;
    bool moved = false, known = true, all = true;
    for (const auto& [arm, ceilings] : arms) {
      if (test >= ceilings.size()) {
        // As a server beside a command line: it does not tell.
        if (RunsOf(e, arm).empty()) continue;
        all = false;
        text += fmt::format("{}{}{}{}", text.empty() ? "" : w(", ", "，"), ArmLabel(e, arm), w(": ", "："),
                            w("not told", "未说明"));
        continue;
      }
      const Ceiling& m = ceilings[test].median;
      if (m.bound.empty()) {
        known = false;
        text = w.Reason(m.reason);
        break;
      }
      if (first.empty()) first = m.bound;
      moved |= m.bound != first;
      const std::string share = m.share ? w(fmt::format(" ({:.0f} % of the ceiling)", 100 * *m.share),
                                            fmt::format("（达到上限的 {:.0f} %）", 100 * *m.share))
                                        : "";
      text += fmt::format("{}{}{}{}{}", text.empty() ? "" : w(", ", "，"), ArmLabel(e, arm), w(": ", "："),
                          w.Bound(m.bound), share);
    }
    const std::string name = w.Test(arms[0][test].test);
    if (!known)
      out.push_back(w(fmt::format("{}: what bounds it is not known: {}", name, text),
                      fmt::format("{}：瓶颈未知：{}", name, text)));
    else if (!all)
      out.push_back(w(fmt::format("{}: the bottleneck, as far as it is told: {}", name, text),
                      fmt::format("{}：瓶颈（已说明的部分）：{}", name, text)));
    else
      out.push_back(w(fmt::format("{}: the bottleneck {}: {}", name, moved ? "moved" : "stayed where it was", text),
                      fmt::format("{}：瓶颈{}：{}", name, moved ? "移动了" : "没有移动", text)));
  }
  if (tests == 0 && !e.runs.empty())
    out.push_back(w("Which bottleneck moved is not told by this subject; ridge diagnose finds it by intervention",
                    "该对象不说明瓶颈；ridge diagnose 可通过干预找到它"));
  return out;
}

}  // namespace

Conclusion ConclusionOf(const BundleEvidence& e, const Wording& w) {
  Conclusion c;
  if (!e.runs.empty()) c.where = Where(e, w);
  for (const Finding& f : e.findings) {
    if (f.arm >= 2) c.seen.push_back(Effect(e, f, w) + w(".", "。"));
  }
  for (const std::string& b : Bottlenecks(e, w)) c.seen.push_back(b + w(".", "。"));
  std::string quality;
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    if (arm == 1 || RunsOf(e, arm).empty()) continue;
    const ArmQuality note = QualityOf(e, arm, w);
    quality += (quality.empty() ? w("Quality: ", "质量：") : w("; ", "；")) +
               (note.judged ? ArmLabel(e, arm) + w(": ", "：") : "") + note.brief;
    if (!note.judged) break;
  }
  if (!quality.empty()) c.seen.push_back(quality + w(".", "。"));
  for (const auto& [value, why] : e.experiment.not_run)
    c.seen.push_back(w(
        fmt::format("{} = {} was not run: {}. Nothing is claimed about it.", e.experiment.flag, ShortValue(value), why),
        fmt::format("{} = {} 未运行：{}。对此不作任何结论。", e.experiment.flag, ShortValue(value), w.Reason(why))));
  if (e.runs.size() < e.planned)
    c.seen.push_back(
        w(fmt::format("{} of {} runs were made: the experiment is not complete.", e.runs.size(), e.planned),
          fmt::format("{} 次运行中完成了 {} 次：实验不完整。", e.planned, e.runs.size())));
  return c;
}

}  // namespace ridge::lab
