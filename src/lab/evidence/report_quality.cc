// What the answers say: the quality note of an arm, and smaller, faster, still good as three columns.
#include <fmt/format.h>

#include <map>

#include "lab/evidence/report.h"
#include "lab/experiments/answer_flags.h"

namespace ridge::lab {
namespace {

constexpr double kMiB = 1048576;

TableCell Without(std::string text) { return {.text = std::move(text), .missing = true}; }

}  // namespace

ArmQuality QualityOf(const BundleEvidence& e, size_t arm, const Wording& w) {
  // An A/A arm that is not asked itself answers as the first value does.
  const auto asked = AskedOf(e, arm), first = AskedOf(e, 0);
  if (asked.empty()) {
    std::string why = "this subject gives no text to judge";
    for (const EvidenceRun& r : e.runs) {
      const auto it = r.record.output.measures.missing.find("quality");
      if (it != r.record.output.measures.missing.end()) why = it->second;
    }
    const std::string text = arm == 1 && !first.empty() ? w("as the first value", "同基准值")
                                                        : w("not judged: ", "未判断：") + w.Reason(why);
    return {.text = text, .brief = text};
  }
  // By prompt: the first answer; what was flagged in any run stays flagged. An answer that its limit of tokens has ended is no bad one.
  std::map<std::string, std::string> texts, flags;
  std::map<std::string, size_t> by_flag;
  size_t truncated = 0;
  for (const EvidenceRun* r : asked) {
    for (const Answer& a : r->record.output.answers) {
      const bool fresh = texts.emplace(a.prompt_id, a.text).second;
      for (const std::string& f : a.flags) {
        if (f == "truncated") {
          truncated += fresh;
          continue;
        }
        std::string& all = flags[a.prompt_id];
        by_flag[f] += all.find(w.Flag(f)) == std::string::npos;
        if (all.find(w.Flag(f)) == std::string::npos) all += (all.empty() ? "" : w(", ", "、")) + w.Flag(f);
      }
    }
  }
  ArmQuality note{.judged = true, .flagged = !flags.empty()};
  std::string which;
  for (const auto& [prompt, flag] : flags)
    which += fmt::format("{}{}{}{}", which.empty() ? "" : w("; ", "；"), prompt, w(": ", "："), flag);
  std::string kinds;
  for (const auto& [flag, n] : by_flag)
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : w(", ", "、"), w.Flag(flag), n);
  note.brief = flags.empty() ? w(fmt::format("{} answers, none flagged", texts.size()),
                                 fmt::format("{} 个回答，均无标记", texts.size()))
                             : w(fmt::format("{} of {} answers flagged ({})", flags.size(), texts.size(), kinds),
                                 fmt::format("{} 个回答中 {} 个有问题（{}）", texts.size(), flags.size(), kinds));
  note.text = flags.empty() ? w(fmt::format("{} answers, none flagged", texts.size()),
                                fmt::format("{} 个回答，均无标记", texts.size()))
                            : w(fmt::format("{} of {} answers flagged ({})", flags.size(), texts.size(), which),
                                fmt::format("{} 个回答中 {} 个有问题（{}）", texts.size(), flags.size(), which));
  const auto add = [&](const std::string& more) { note.text += more, note.brief += more; };
  if (truncated > 0)
    add(w(fmt::format("; {} ended by the limit of tokens", truncated),
          fmt::format("；{} 个因 token 上限而结束", truncated)));
  if (arm == 0 || first.empty()) return note;
  const std::vector<Answer>& reference = first[0]->record.output.answers;
  note.still_good = Judge(asked[0]->record.output.answers, reference, "").still_good;
  size_t same = 0, compared = 0;
  for (const Answer& a : reference) {
    const auto it = texts.find(a.prompt_id);
    if (it != texts.end()) compared++, same += it->second == a.text;
  }
  if (compared == 0) return note;
  const std::string label = ArmLabel(e, 0);
  add(same == compared ? w("; word for word as with " + label, "；与 " + label + " 逐字相同")
                       : w(fmt::format("; {} of {} differ from {}", compared - same, compared, label),
                           fmt::format("；{} 个中有 {} 个与 {} 不同", compared, compared - same, label)));
  return note;
}

DataTable TradeTable(const BundleEvidence& e, const Wording& w) {
  DataTable t{.columns = {{w("Value", "参数值")},
                          {w("Smaller: file", "更小：文件"), true},
                          {w("Faster: decode", "更快：解码")},
                          {w("Still good", "仍然好")},
                          {w("Answers", "回答")}},
              .caption = w("Smaller, faster and still good are three columns: none follows from another.",
                           "更小、更快、仍然好是三列：任何一列都推不出另一列。")};
  const auto bytes_of = [&](size_t arm) { return MedianOf(RunsOf(e, arm), &Measures::model_bytes); };
  const auto reference = bytes_of(0);
  if (!reference || AskedOf(e, 0).empty()) return t;
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    const auto bytes = bytes_of(arm);
    if (arm == 1 || !bytes) continue;
    std::string speed;
    for (const Finding& f : e.findings) {
      if (f.arm != arm || f.unit != "t/s" || !(f.test.starts_with("tg") || f.test == "decode")) continue;
      const std::string value = f.median ? Short(*f.median) + " t/s" : w("no quiet block", "没有安静的区块");
      speed += fmt::format(
          "{}{}{}", speed.empty() ? "" : "; ", value,
          arm == 0 ? "" : w(", ", "，") + w.Verdict(f.verdict) + (f.ratio ? fmt::format(" ({:.3f})", *f.ratio) : ""));
    }
    const ArmQuality q = QualityOf(e, arm, w);
    t.rows.push_back(
        {{ShortValue(ValueOf(e.experiment, arm))},
         {fmt::format("{:.1f} MiB{}", *bytes / kMiB, arm == 0 ? "" : fmt::format(" ({:.3f})", *bytes / *reference))},
         speed.empty() ? Without(w("not measured", "未测量")) : TableCell{speed},
         arm == 0        ? TableCell{w("reference", "基准")}
         : !q.still_good ? Without(w("not judged", "未判断"))
         : *q.still_good ? TableCell{.text = w("yes", "是"), .tone = "good"}
                         : TableCell{.text = w("no", "否"), .tone = "bad"},
         {q.text}});
  }
  if (t.rows.size() < 2) t.rows.clear();
  return t;
}

}  // namespace ridge::lab
