#include "lab/evidence/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/experiments/catalogue.h"

namespace ridge::lab {
namespace {

// A ready-made experiment carries its question in both languages.
std::string QuestionOf(const BundleEvidence& e, const Wording& w) {
  for (const Ready& ready : ReadyMade()) {
    if (e.experiment.question == ready.question + " / " + ready.question_zh)
      return w(ready.question, ready.question_zh);
  }
  return e.experiment.question;
}

void Section(Document& d, const BundleEvidence& e, const Wording& w, bool alone) {
  const int level = alone ? 2 : 3;
  if (!alone) {
    d.Add(Heading{2, e.experiment.name});
    if (!e.experiment.question.empty()) d.Add(Paragraph{QuestionOf(e, w)});
  }
  for (Block& block : HomeworkOf(e, w)) {
    if (auto* heading = std::get_if<Heading>(&block)) heading->level += level - 2;
    d.Add(std::move(block));
  }
  d.Add(Heading{level, w("What was seen", "观察到的结论")});
  Conclusion c = ConclusionOf(e, w);
  if (!c.where.empty()) d.Add(Paragraph{std::move(c.where)});
  d.Add(Bullets{std::move(c.seen), true});
  if (e.runs.empty()) return;
  if (alone) {
    d.Add(Heading{level, w("Record", "结果记录")});
    d.Add(RecordTable({e}, w));
  }
  if (DataTable trade = TradeTable(e, w); !trade.rows.empty()) {
    d.Add(Heading{level, w("Smaller, faster, still good", "更小、更快、仍然好")});
    d.Add(std::move(trade));
  }
  d.Add(Heading{level, w("Effect", "效应量")});
  if (const std::string svg = ForestOf(e, w); !svg.empty())
    d.Add(Figure{
        svg,
        w("Ratios with their intervals. The grey band is what identical runs differ by (A/A): inside it nothing is "
          "claimed. Squares: a difference; circles: none.",
          "比值及其区间。灰带是相同运行之间的差异（A/A），其内不作任何结论。方块：有差异；圆圈：无差异。")});
  d.Add(EffectTable(e, w));
  const std::vector<std::string> left_out = LeftOut(e, w);
  d.Add(Heading{level, w("Blocks that do not count", "剔除的区块")});
  if (left_out.empty())
    d.Add(Paragraph{w("None: no run was disturbed.", "没有：所有运行均未受干扰。")});
  else
    d.Add(Bullets{left_out});
  d.Add(Heading{level, w("Where the time went", "时间去向")});
  bool ceilings = false;
  for (const EvidenceRun& r : e.runs) ceilings |= !r.ceilings.empty();
  if (!ceilings) {
    d.Add(
        Paragraph{w("This subject does not tell what it reads and computes, so its runs have no place on the roofline.",
                    "该对象不说明读取量与运算量，因此无法放到 roofline 上。")});
  } else {
    if (!e.roofline)
      d.Add(
          Paragraph{w("No ceilings to compare with: ", "没有可比较的上限：") + w.Reason(e.no_roofline) + w(".", "。")});
    if (const std::string svg = RoofOf(e, w); !svg.empty())
      d.Add(Figure{
          svg,
          w(fmt::format("The runs on the roofline of this machine, measured {}. Circles: generating; squares: prompts. "
                        "Left of the ridge memory is the limit, right of it arithmetic.",
                        e.roofline->measured_at),
            fmt::format("各次运行在本机 roofline 上的位置（测于 "
                        "{}）。圆：生成；方块：prompt。拐点左侧受限于内存，右侧受限于计算。",
                        e.roofline->measured_at))});
    if (const std::string svg = GapOf(e, w); !svg.empty())
      d.Add(Figure{svg, w("The time of one token, and how much of it the nearest ceiling explains.",
                          "单个 token 的时间，以及其中有多少由最近的上限解释。")});
    d.Add(CeilingTable(e, w));
  }
  d.Add(Heading{level, w("Timeline", "时间线")});
  if (const std::string svg = TimelineOf(e, w); !svg.empty())
    d.Add(Figure{svg, w("What the machine did while the runs were made; each band is a run.",
                        "运行期间设备的状态；每条色带是一次运行。")});
  else
    d.Add(Paragraph{w("No time series of the machine lies in this evidence.", "此证据中没有设备的时间序列。")});
  if (const std::vector<std::string> missing = NotMonitored(e, w); !missing.empty()) {
    d.Add(Paragraph{w("Not told by this machine:", "本机不提供：")});
    d.Add(Bullets{missing});
  }
  if (!AskedOf(e, 0).empty()) d.Add(AnswersTable(e, w));
  d.Add(ResolvedTable(e, w));
  d.Add(RunsTable(e, w));
  d.Add(EnvironmentTable(e, w));
}

}  // namespace

Document ReportOf(const std::vector<BundleEvidence>& evidences, ReportLanguage language) {
  const Wording w{language};
  Document d{.language = language};
  const bool alone = evidences.size() == 1;
  if (alone) {
    d.title = evidences[0].experiment.name;
    d.subtitle =
        HomeworkNumber(evidences[0].experiment) > 0 ? "" : QuestionOf(evidences[0], w);  // stands in the answer
  } else {
    d.title = w("Record of experiments", "实验记录");
    d.subtitle = w(fmt::format("{} experiments", evidences.size()), fmt::format("{} 个实验", evidences.size()));
    d.Add(Heading{2, w("Record", "结果记录")});
    d.Add(RecordTable(evidences, w));
  }
  if (alone) Section(d, evidences[0], w, true);
  d.Add(Heading{2, w("Four accounts", "四本账")});
  d.Add(AccountsTable(evidences, w));
  d.Add(Heading{2, w("Is the record complete?", "记录是否完整？")});
  d.Add(AcceptanceTable(Acceptance(evidences), w));
  if (!alone) {
    for (const BundleEvidence& e : evidences) Section(d, e, w, false);
  }
  d.Add(
      Paragraph{w("Every figure above follows from the raw files of the evidence: ridge lab check --rederive makes all "
                  "of it again and compares.",
                  "以上每个数字都由证据中的原始文件推出：ridge lab check --rederive 会重新推导并逐一比较。")});
  return d;
}

}  // namespace ridge::lab
