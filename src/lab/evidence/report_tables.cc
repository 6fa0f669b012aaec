// The tables of a report.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lab/evidence/report.h"
#include "lab/monitor/recorded.h"
#include "lab/statistics.h"

namespace ridge::lab {
namespace {

constexpr double kMiB = 1048576;

std::string MissingReason(const std::vector<const EvidenceRun*>& runs, const char* key, std::string_view otherwise) {
  for (const EvidenceRun* r : runs) {
    const auto& missing = r->record.output.measures.missing;
    if (const auto it = missing.find(key); it != missing.end()) return it->second;
  }
  return std::string(otherwise);
}

TableCell Without(std::string text) { return {.text = std::move(text), .missing = true}; }

// The highest temperature and the mean power over the runs, from the time series; else why there is none. Of a GPU beside: its own.
TableCell TemperaturePower(const std::vector<const EvidenceRun*>& runs, const Wording& w) {
  if (runs.empty()) return Without("-");
  struct Device {
    std::optional<double> hottest;
    double watts = 0;
    bool power = false;
  } host, gpu;
  for (const EvidenceRun* r : runs) {
    if (!r->series) continue;
    // A Jetson's rails: where there is a total, the others are parts of it.
    const bool total = r->series->Find("power_total_w").has_value();
    for (size_t i = 0; i < r->series->names.size(); i++) {
      const std::string& name = r->series->names[i];
      const bool of_gpu = name.starts_with("gpu");
      const bool heat = name.starts_with("temp_") || (of_gpu && name.ends_with("_gtemp_c"));
      const bool power = of_gpu  ? name.ends_with("_pwr_w")
                         : total ? name == "power_total_w"
                                 : name.starts_with("power_package");
      if (!heat && !power) continue;
      Device& d = of_gpu ? gpu : host;
      double sum = 0;
      size_t n = 0;
      for (const Series::Point& p : r->series->points) {
        if (!p.values[i]) continue;
        if (heat) d.hottest = std::max(d.hottest.value_or(*p.values[i]), *p.values[i]);
        sum += *p.values[i], n++;
      }
      if (power && n > 0) d.watts += sum / static_cast<double>(n), d.power = true;
    }
  }
  const auto heat_of = [](const Device& d) { return fmt::format("{:.1f} °C", *d.hottest); };
  const auto power_of = [&](const Device& d) {
    return fmt::format("{:.1f} W", d.watts / static_cast<double>(runs.size()));
  };
  const std::string heat = host.hottest ? heat_of(host) : w.Reason(runs[0]->record.temperature);
  const std::string power = host.power ? power_of(host) : w.Reason(runs[0]->record.power);
  std::string text = heat + " / " + power;
  if (gpu.hottest || gpu.power)
    text += fmt::format("; GPU {} / {}", gpu.hottest ? heat_of(gpu) : "-", gpu.power ? power_of(gpu) : "-");
  return {.text = text, .missing = !host.hottest && !host.power && !gpu.hottest && !gpu.power};
}

TableCell Speeds(const BundleEvidence& e, size_t arm, const std::vector<const EvidenceRun*>& runs, const Wording& w) {
  std::string text;
  for (const Finding& f : e.findings) {
    if (f.arm == arm && f.unit == "t/s" && f.median)
      text += fmt::format("{}{} {}", text.empty() ? "" : " · ", w.Test(f.test), Short(*f.median));
  }
  if (!text.empty()) return {.text = text};
  if (const auto v = MedianOf(runs, &Measures::decode_per_second))
    return {.text = Short(*v) + w(" (blocks that were disturbed count here)", "（含受干扰的区块）")};
  return Without(w.Reason(MissingReason(runs, "decode_per_second", "not measured by this subject")));
}

std::string FloorText(double floor) { return fmt::format("{:.1f} %", 100 * std::expm1(floor)); }

}  // namespace

std::optional<double> MedianOf(const std::vector<const EvidenceRun*>& runs, std::optional<double> Measures::* of) {
  std::vector<double> values;
  for (const EvidenceRun* r : runs) {
    if (const auto v = r->record.output.measures.*of) values.push_back(*v);
  }
  if (values.empty()) return std::nullopt;
  return Median(values);
}

std::string ShortValue(std::string_view value) {
  const size_t slash = value.rfind('/');
  std::string text(slash == std::string_view::npos ? value : value.substr(slash + 1));
  if (text.empty()) text = value;
  if (text.starts_with("sha256-")) text.resize(std::min<size_t>(text.size(), 19));
  return text;
}

std::string ArmLabel(const BundleEvidence& e, size_t arm) {
  return fmt::format("{} = {}{}", e.experiment.flag, ShortValue(ValueOf(e.experiment, arm)), arm == 1 ? " (A/A)" : "");
}

std::vector<const EvidenceRun*> RunsOf(const BundleEvidence& e, size_t arm) {
  std::vector<const EvidenceRun*> runs;
  for (const EvidenceRun& r : e.runs) {
    if (r.plan.arm == arm && !r.plan.asks) runs.push_back(&r);
  }
  return runs;
}

std::vector<const EvidenceRun*> AskedOf(const BundleEvidence& e, size_t arm) {
  std::vector<const EvidenceRun*> runs;
  for (const EvidenceRun& r : e.runs) {
    if (r.plan.arm == arm && !r.record.output.answers.empty()) runs.push_back(&r);
  }
  return runs;
}

std::string ModelOf(const BundleEvidence& e, size_t arm, const Wording& w) {
  const auto asked = SettingOf(e.experiment, arm, {"m", "model"});
  std::string name = asked ? ShortValue(*asked) : "";
  for (const EvidenceRun* r : RunsOf(e, arm)) {
    const Resolved& settings = r->record.output.resolved;
    for (const char* key : {"model_type", "model_filename", "model"}) {
      const auto it = settings.find(key);
      if (it == settings.end() || it->second.empty()) continue;
      const std::string told = ShortValue(it->second);
      return name.empty() ? told : told == name ? name : fmt::format("{} ({})", name, told);
    }
  }
  return name.empty() ? w("not told", "未说明") : name;
}

DataTable RecordTable(const std::vector<BundleEvidence>& evidences, const Wording& w) {
  DataTable t{
      .columns = {{w("Hardware", "硬件")},
                  {w("Model", "模型")},
                  {w("Variable", "变量")},
                  {w("Value", "参数值")},
                  {w("First token", "首 token")},
                  {"tokens/s"},
                  {w("Peak memory", "峰值内存")},
                  {w("Temperature / power", "温度/功耗")},
                  {w("Quality", "质量备注")},
                  {w("Log", "日志")}},
      .caption = w("Each row is one value of one variable; figures are medians over the blocks that count. A cell "
                   "without a figure says why there is none.",
                   "每行是一个变量的一个取值；数字是有效区块的中位数。没有数字的单元格说明原因。")};
  for (const BundleEvidence& e : evidences) {
    const std::string hardware = e.hardware.empty() ? w("not told: ", "未说明：") + e.no_hardware : e.hardware;
    for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
      const auto runs = RunsOf(e, arm);
      if (runs.empty()) continue;
      const auto memory = MedianOf(runs, &Measures::peak_memory_mib);
      auto ttft = MedianOf(runs, &Measures::ttft_ms);
      // A benchmark has no first token: that of the server beside it, which was asked with the same settings.
      const bool beside = !ttft;
      if (beside) ttft = MedianOf(AskedOf(e, arm), &Measures::ttft_ms);
      const ArmQuality quality = QualityOf(e, arm, w);
      std::string log = runs[0]->log;
      if (evidences.size() > 1) log = ShortValue(e.folder) + "/" + log;
      if (runs.size() > 1)
        log += w(fmt::format(" and {} more", runs.size() - 1), fmt::format(" 等 {} 个", runs.size()));
      t.rows.push_back({{hardware},
                        {ModelOf(e, arm, w)},
                        {e.experiment.flag},
                        {ShortValue(ValueOf(e.experiment, arm)) + (arm == 1 ? " (A/A)" : "")},
                        ttft ? TableCell{Short(*ttft) + " ms" + (beside ? w(" (as a server)", "（作为服务）") : "")}
                             : Without(w.Reason(MissingReason(runs, "ttft_ms", "not measured by this subject"))),
                        Speeds(e, arm, runs, w),
                        memory
                            ? TableCell{fmt::format("{:.0f} MiB", *memory)}
                            : Without(w.Reason(MissingReason(runs, "peak_memory_mib", "the subject runs elsewhere"))),
                        TemperaturePower(runs, w),
                        {.text = quality.brief, .missing = !quality.judged, .tone = quality.flagged ? "bad" : ""},
                        {log}});
    }
    for (const auto& [value, why] : e.experiment.not_run) {
      const std::string reason = w("not run: ", "未运行：") + w.Reason(why);
      t.rows.push_back({{hardware},
                        {ModelOf(e, 0, w)},
                        {e.experiment.flag},
                        {ShortValue(value)},
                        Without(reason),
                        Without("-"),
                        Without("-"),
                        Without("-"),
                        Without("-"),
                        {"experiment.toml"}});
    }
  }
  return t;
}

DataTable EffectTable(const BundleEvidence& e, const Wording& w) {
  DataTable t{
      .columns = {{w("Test", "测试")},
                  {w("Value", "参数值")},
                  {w("Median", "中位数"), true},
                  {w("Ratio", "比值"), true},
                  {w("Interval", "区间"), true},
                  {w("Confidence", "置信度"), true},
                  {w("Blocks", "区块"), true},
                  {w("Left out", "剔除"), true},
                  {w("Verdict", "结论")}},
      .caption = w(fmt::format("Ratio to {}, by block: the median of the blocks and its interval. A difference is "
                               "claimed only where the interval excludes 1 and the ratio is beyond what identical "
                               "runs (A/A) show.",
                               ArmLabel(e, 0)),
                   fmt::format("与 {} 按区块配对的比值：区块中位数及其区间。只有当区间不含 "
                               "1、且比值超出相同运行（A/A）之间的差异时，才认定有差异。",
                               ArmLabel(e, 0)))};
  for (const Finding& f : e.findings) {
    const bool differs = f.verdict == "faster" || f.verdict == "slower" || f.verdict == "smaller" ||
                         f.verdict == "larger" || f.verdict == "better" || f.verdict == "worse";
    const std::string verdict = f.arm == 1 && !f.low ? w("A/A: not known", "A/A：未知")
                                : f.arm == 1 ? w("A/A: differences up to " + FloorText(f.floor) + " mean nothing here",
                                                 "A/A：" + FloorText(f.floor) + " 以内的差异在此没有意义")
                                             : w.Verdict(f.verdict);
    t.rows.push_back(
        {{w.Test(f.test)},
         {ShortValue(f.value) + (f.arm == 1 ? " (A/A)" : "")},
         f.median ? TableCell{Short(*f.median) + " " + f.unit} : Without(w("no quiet block", "没有安静的区块")),
         f.arm == 0 ? TableCell{"1"}
         : f.ratio  ? TableCell{fmt::format("{:.3f}", *f.ratio)}
                    : Without("-"),
         f.arm > 0 && f.low ? TableCell{fmt::format("{:.3f}–{:.3f}", *f.low, *f.high)} : Without("-"),
         f.arm > 0 && f.low ? TableCell{fmt::format("{:.0f} %", 100 * f.confidence)} : Without("-"),
         {std::to_string(f.blocks)},
         {std::to_string(f.left_out)},
         {.text = verdict, .tone = differs ? (f.better ? "good" : "bad") : ""}});
  }
  return t;
}

std::vector<ArmCeiling> CeilingsOf(const BundleEvidence& e, size_t arm) {
  std::map<size_t, std::vector<const Ceiling*>> by_test;
  for (const EvidenceRun* r : RunsOf(e, arm)) {
    for (size_t i = 0; i < r->ceilings.size(); i++) by_test[i].push_back(&r->ceilings[i]);
  }
  std::vector<ArmCeiling> out;
  for (const auto& [test, all] : by_test) {
    ArmCeiling c{all[0]->test, *all[0]};
    const auto median = [&](auto of) {
      std::vector<double> values;
      for (const Ceiling* one : all) {
        if (const std::optional<double> v = of(*one)) values.push_back(*v);
      }
      return values.size() == all.size() ? std::optional(Median(values)) : std::nullopt;
    };
    c.median.seconds = *median([](const Ceiling& x) { return std::optional(x.seconds); });
    c.median.memory_s = median([](const Ceiling& x) { return x.memory_s; });
    c.median.unpack_s = median([](const Ceiling& x) { return x.unpack_s; });
    c.median.arithmetic_s = median([](const Ceiling& x) { return x.arithmetic_s; });
    c.median.kernels_s = median([](const Ceiling& x) { return x.kernels_s; });
    c.median.floor_s = median([](const Ceiling& x) { return x.floor_s; });
    c.median.share = median([](const Ceiling& x) { return x.share; });
    // The bound of most runs.
    std::map<std::string, size_t> votes;
    for (const Ceiling* one : all) votes[one->bound]++;
    c.median.bound = std::ranges::max_element(votes, {}, [](const auto& v) { return v.second; })->first;
    for (const Ceiling* one : all) {
      if (c.median.bound.empty() && c.median.reason.empty()) c.median.reason = one->reason;
    }
    out.push_back(std::move(c));
  }
  return out;
}

DataTable CeilingTable(const BundleEvidence& e, const Wording& w) {
  DataTable t{
      .columns = {{w("Test", "测试")},
                  {w("Value", "参数值")},
                  {w("Measured", "实测"), true},
                  {w("Predicted ceiling", "预测上限"), true},
                  {w("Reached", "达到"), true},
                  {w("Bound by", "受限于")},
                  {w("At the ceiling", "上限所需"), true},
                  {w("Kernels below it", "kernel 低于上限"), true},
                  {w("Everything else", "其余开销"), true}},
      .caption =
          w("Tokens per second, and the time of one token: what the nearest ceiling of this machine would "
            "take (bytes over bandwidth, operations over peak), what its own kernels lose against that, and "
            "the rest: barriers, small operations, the system.",
            "每秒 token 数，以及单个 token 的时间去向：本机最近的上限所需时间（字节数/带宽、运算量/峰值）、kernel "
            "相对该上限的损失，以及其余：同步、小算子、系统。")};
  bool above = false;
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    if (arm == 1) continue;
    for (const ArmCeiling& c : CeilingsOf(e, arm)) {
      const Ceiling& m = c.median;
      above = above || m.Largest().value_or(0) > 1.02 * m.seconds;
      std::vector<TableCell> row = {
          {w.Test(c.test)}, {ShortValue(ValueOf(e.experiment, arm))}, {Short(m.tokens / m.seconds) + " t/s"}};
      const auto largest = m.Largest();
      if (!largest || !(*largest > 0)) {
        row.push_back(Without(w.Reason(m.reason.empty() ? "the subject does not tell what bounds it" : m.reason)));
        for (int i = 0; i < 5; i++) row.push_back(Without("-"));
      } else {
        const double ms = 1e3 / m.tokens;
        const double kernels = m.kernels_s ? std::max(0.0, std::min(*m.kernels_s, m.seconds) - *largest) : 0;
        row.push_back({Short(m.tokens / *largest) + " t/s"});
        row.push_back({fmt::format("{:.0f} %", 100 * *largest / m.seconds)});
        row.push_back(m.bound.empty() ? Without(w.Reason(m.reason)) : TableCell{w.Bound(m.bound)});
        row.push_back({Short(*largest * ms) + " ms"});
        row.push_back(m.kernels_s ? TableCell{Short(kernels * ms) + " ms"} : Without(w("in the rest", "计入其余")));
        row.push_back({Short(std::max(0.0, m.seconds - *largest - kernels) * ms) + " ms"});
      }
      t.rows.push_back(std::move(row));
    }
  }
  if (above)
    t.caption +=
        w(" More than 100 % means that the ceiling was measured too low: other programs ran meanwhile, or the data fit "
          "into a cache.",
          " 超过 100 % 说明上限测得偏低：测量时有其他程序在运行，或数据能放进缓存。");
  return t;
}

DataTable AccountsTable(const std::vector<BundleEvidence>& evidences, const Wording& w) {
  DataTable t{.columns = {{w("Account", "账目")}, {w("What it counts", "口径")}, {w("What was seen", "观察到的")}},
              .caption = w("Four accounts that must not be mixed into one \"it got faster\".",
                           "四本账不能混成一句“速度变快了”。")};
  std::string bench, cli, api, memory;
  const auto add = [](std::string& to, const std::string& text) { to += (to.empty() ? "" : "; ") + text; };
  for (const BundleEvidence& e : evidences) {
    const std::string name = evidences.size() > 1 ? e.experiment.name + ": " : "";
    for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
      const auto runs = RunsOf(e, arm);
      if (arm == 1 || runs.empty()) continue;
      const std::string subject = runs[0]->record.subject, label = name + ArmLabel(e, arm);
      const Measures& m0 = runs[0]->record.output.measures;
      std::string tests;
      for (const Finding& f : e.findings) {
        if (f.arm != arm) continue;
        std::vector<double> all;  // of blocks that do not count too, where no other is there
        for (const RunSample& one : e.samples) {
          if (one.arm == arm && one.test == f.test) all.push_back(one.value);
        }
        if (!f.median && all.empty()) continue;
        tests += fmt::format("{}{} {} {}{}", tests.empty() ? "" : ", ", w.Test(f.test),
                             Short(f.median ? *f.median : Median(all)), f.unit,
                             f.median ? "" : w(" (disturbed)", "（受干扰）"));
      }
      if (!tests.empty()) {
        const bool is_bench = subject.find("bench") != std::string::npos;
        const bool is_cli =
            !is_bench && (subject.find("run") != std::string::npos || subject.find("cli") != std::string::npos ||
                          subject.find("openvino") != std::string::npos);
        add(is_bench ? bench : is_cli ? cli : api, fmt::format("{} ({}): {}", label, subject, tests));
      }
      std::string kept;
      if (const auto peak = MedianOf(runs, &Measures::peak_memory_mib))
        kept = w(fmt::format("peak {:.0f} MiB", *peak), fmt::format("峰值 {:.0f} MiB", *peak));
      if (m0.model_bytes)
        kept += fmt::format("{}{}", kept.empty() ? "" : w(", ", "，"),
                            w(fmt::format("model file {:.0f} MiB", *m0.model_bytes / kMiB),
                              fmt::format("模型文件 {:.0f} MiB", *m0.model_bytes / kMiB)));
      const Resolved& settings = runs[0]->record.output.resolved;
      const auto k = settings.find("type_k"), v = settings.find("type_v");
      if (k != settings.end() && v != settings.end())
        kept += fmt::format("{}KV {}/{}", kept.empty() ? "" : w(", ", "，"), k->second, v->second);
      if (!kept.empty()) add(memory, label + ": " + kept);
    }
  }
  const auto row = [&](const std::string& account, const std::string& what, const std::string& seen,
                       const std::string& none) {
    t.rows.push_back({{account}, {what}, seen.empty() ? Without(none) : TableCell{seen}});
  };
  row("bench",
      w("tokens per second of the engine alone: no text, no sampling unless asked",
        "只算引擎的 tokens/s：没有文本，默认不采样"),
      bench, w("no experiment here runs a bench", "这里没有运行 bench 的实验"));
  row("CLI",
      w("a program from its start to its last token: load, prompt, generation",
        "一个程序从启动到最后一个 token：加载、prompt、生成"),
      cli,
      w("no experiment here runs a program on one prompt (subject run or llama-cli)",
        "这里没有用单个 prompt 运行程序的实验（run 或 llama-cli）"));
  row("API",
      w("what a client of a server waits: HTTP, queue, tokens, JSON", "服务客户端的等待时间：HTTP、排队、token、JSON"),
      api,
      w("no experiment here asks a server (subject serve or llama-server)",
        "这里没有请求服务的实验（serve 或 llama-server）"));
  row(w("Memory and KV", "内存与 KV"),
      w("peak of the subject's process, the model's file, the types of the cache", "对象进程的峰值、模型文件、KV 类型"),
      memory, w("no run told its memory", "没有运行给出内存数据"));
  return t;
}

std::vector<std::string> LeftOut(const BundleEvidence& e, const Wording& w) {
  // Reasons of one kind are told together, with the range of their figures.
  struct Kind {
    double low = 1e300, high = -1e300;
    size_t runs = 0;
    bool figure = false;
  };
  std::map<int64_t, std::map<std::string, Kind>> blocks;
  std::map<int64_t, size_t> sizes;
  for (const EvidenceRun& r : e.runs) {
    if (r.plan.asks) continue;
    sizes[r.plan.block]++;
    for (std::string_view rest = r.record.disturbed; !rest.empty();) {
      const size_t end = std::min(rest.find("; "), rest.size());
      std::string reason(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 2, rest.size()));
      const size_t digit = reason.find_first_of("0123456789"), after = reason.find_first_not_of("0123456789.", digit);
      const auto figure =
          digit == std::string::npos ? std::nullopt : ToNumber(std::string_view(reason).substr(digit, after - digit));
      if (figure) reason.replace(digit, after - digit, "#");
      Kind& kind = blocks[r.plan.block][reason];
      kind.runs++;
      if (figure) kind.figure = true, kind.low = std::min(kind.low, *figure), kind.high = std::max(kind.high, *figure);
    }
  }
  std::vector<std::string> out;
  for (const auto& [block, kinds] : blocks) {
    std::string text;
    for (const auto& [reason, kind] : kinds) {
      std::string said = reason;
      if (const size_t at = said.find('#'); kind.figure && at != std::string::npos)
        said.replace(at, 1,
                     kind.low == kind.high ? Short(kind.low) : fmt::format("{}–{}", Short(kind.low), Short(kind.high)));
      text += (text.empty() ? "" : w("; ", "；")) +
              w(fmt::format("{} ({} of {} runs)", said, kind.runs, sizes[block]),
                fmt::format("{}（{} 次运行中的 {} 次）", w.Reason(said), sizes[block], kind.runs));
    }
    out.push_back(w(fmt::format("Block {}: {}", block, text), fmt::format("区块 {}：{}", block, text)));
  }
  return out;
}

std::vector<std::string> NotMonitored(const BundleEvidence& e, const Wording& w) {
  std::map<std::string, std::string> all;
  for (const EvidenceRun& r : e.runs) all.insert(r.record.missing.begin(), r.record.missing.end());
  std::vector<std::string> out;
  for (const auto& [what, why] : all) {
    if (what != "process") out.push_back(w.Reason(what) + w(": ", "：") + w.Reason(why));
  }
  return out;
}

}  // namespace ridge::lab
