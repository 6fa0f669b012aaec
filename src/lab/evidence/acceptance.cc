#include "lab/evidence/acceptance.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_text.h"
#include "lab/evidence/files.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

struct Kind {
  const char* english;
  const char* chinese;
  std::vector<std::string_view> flags;
};

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kKinds = {{"GPU offload", "GPU offload", {"ngl", "gpu-layers", "n-gpu-layers"}},
                                           {"context length", "上下文长度", {"c", "ctx-size", "d", "n-depth"}},
                                           {"weight format", "量化格式", {"m", "model"}}};
  return kKinds;
}

bool Ran(const BundleEvidence& e) { return !e.runs.empty(); }

// Up to a few of them, and how many more.
Bilingual Some(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 4); i++) text += (i == 0 ? "" : ", ") + names[i];
  const size_t more = names.size() > 4 ? names.size() - 4 : 0;
  return {text + (more > 0 ? fmt::format(" and {} more", more) : ""),
          text + (more > 0 ? fmt::format(" 等 {} 个", names.size()) : "")};
}

Accepted Matrix(const std::vector<BundleEvidence>& all) {
  Accepted a{"matrix",
             {"The matrix covers offload, context and format", "实验矩阵覆盖 offload、上下文与量化格式"},
             true,
             {},
             {}};
  for (const Kind& kind : Kinds()) {
    bool covered = false;
    for (const BundleEvidence& e : all) {
      if (std::ranges::find(kind.flags, e.experiment.flag) == kind.flags.end()) continue;
      std::set<size_t> arms;
      for (const EvidenceRun& r : e.runs) arms.insert(r.plan.arm == 1 ? 0 : r.plan.arm);
      if (arms.size() >= 2) {
        covered = true;
        a.have.push_back({fmt::format("{}: {} ({} values)", kind.english, e.experiment.name, arms.size()),
                          fmt::format("{}：{}（{} 个取值）", kind.chinese, e.experiment.name, arms.size())});
      } else if (!e.experiment.not_run.empty()) {
        covered = true;
        const auto& [value, why] = *e.experiment.not_run.begin();
        a.have.push_back({fmt::format("{}: {}, recorded as not runnable here: {} = {}: {}", kind.english,
                                      e.experiment.name, e.experiment.flag, value, why),
                          fmt::format("{}：{}，已记录此处无法运行：{} = {}：{}", kind.chinese, e.experiment.name,
                                      e.experiment.flag, value, Wording{ReportLanguage::kChinese}.Reason(why))});
      }
    }
    if (covered) continue;
    a.ok = false;
    a.lacks.push_back(
        {fmt::format("no experiment changes the {}", kind.english), fmt::format("没有改变{}的实验", kind.chinese)});
  }
  return a;
}

Accepted Logs(const std::vector<BundleEvidence>& all) {
  Accepted a{"raw_logs", {"Every run has its raw log", "每次运行都有原始日志"}, true, {}, {}};
  size_t runs = 0;
  for (const BundleEvidence& e : all) {
    std::vector<std::string> without;
    for (const EvidenceRun& r : e.runs) {
      runs++;
      if (!r.log_there) without.push_back(r.log);
    }
    if (!without.empty()) {
      const Bilingual some = Some(without);
      a.lacks.push_back(
          {e.experiment.name + ": missing: " + some.english, e.experiment.name + "：缺少：" + some.chinese});
    }
    if (e.runs.size() < e.planned)
      a.lacks.push_back({fmt::format("{}: {} of {} runs were made", e.experiment.name, e.runs.size(), e.planned),
                         fmt::format("{}：{} 次运行中只完成了 {} 次", e.experiment.name, e.planned, e.runs.size())});
  }
  if (runs == 0) a.lacks.push_back({"no run was made", "没有任何运行"});
  a.ok = a.lacks.empty();
  a.have.push_back({fmt::format("{} runs", runs), fmt::format("{} 次运行", runs)});
  return a;
}

// Readings of the device's own in the time series: of a GPU, of tegrastats.
size_t DeviceSamples(const BundleEvidence& e, std::string_view prefix) {
  size_t n = 0;
  for (const EvidenceRun& r : e.runs) {
    if (!r.series) continue;
    for (const Series::Point& p : r.series->points) {
      for (size_t i = 0; i < p.values.size(); i++) {
        if (!p.values[i] || !r.series->names[i].starts_with(prefix)) continue;
        n++;
        break;
      }
    }
  }
  return n;
}

// Where the machine has a GPU or is a Jetson, its own readings are asked for: in the time series, or as its tool's record.
void DeviceRecord(const BundleEvidence& e, Accepted& a) {
  const Json j = ParseJsonText<Json>(e.environment_json);
  if (!j.is_object() || !j.contains("mlperf") || !j["mlperf"].is_object()) {
    a.lacks.push_back({e.experiment.name + ": no environment, so which monitor is needed is not known",
                       e.experiment.name + "：没有环境记录，无法得知需要哪种监控"});
    return;
  }
  const auto value = [&](const char* key) {
    const Json& fields = j["mlperf"];
    return fields.contains(key) && fields[key].is_object() && fields[key].contains("value") ? fields[key]["value"]
                                                                                            : Json();
  };
  const Json gpus = value("accelerators_per_node"), software = value("other_software_stack");
  const bool jetson = software.is_string() && software.get<std::string>().find("R3") != std::string::npos &&
                      software.get<std::string>().find("REVISION") != std::string::npos;
  const bool gpu = gpus.is_number() && gpus.get<double>() > 0;
  if (!jetson && !gpu) return;
  const char* tool = jetson ? "tegrastats" : "dmon";
  if (const size_t n = DeviceSamples(e, jetson ? "tegra_" : "gpu"); n > 0) {
    a.have.push_back(
        {fmt::format("{}: {} samples of the {}", e.experiment.name, n, jetson ? "Jetson's sensors" : "GPU"),
         fmt::format("{}：{} 个{}样本", e.experiment.name, n, jetson ? " Jetson 传感器" : " GPU ")});
    return;
  }
  const std::vector<std::string> files = ListBeneath(e.folder).value_or(Listing{}).files;
  if (std::ranges::any_of(files, [&](const std::string& f) { return f.find(tool) != std::string::npos; }))
    a.have.push_back({fmt::format("{}: {}", e.experiment.name, tool), fmt::format("{}：{}", e.experiment.name, tool)});
  else
    a.lacks.push_back({fmt::format("{}: this machine has {}, and no file of {} lies in the folder", e.experiment.name,
                                   jetson ? "Jetson sensors" : "a GPU", tool),
                       fmt::format("{}：本机有{}，但目录中没有 {} 记录", e.experiment.name,
                                   jetson ? " Jetson 传感器" : " GPU", tool)});
}

Accepted Monitoring(const std::vector<BundleEvidence>& all) {
  Accepted a{"monitoring", {"Monitoring is there for every run", "每次运行都有监控证据"}, true, {}, {}};
  size_t samples = 0;
  for (const BundleEvidence& e : all) {
    std::vector<std::string> without;
    for (const EvidenceRun& r : e.runs) {
      const size_t n = r.series ? r.series->points.size() : 0;
      samples += n;
      if (n < 2) without.push_back(fmt::format("{:04} ({})", r.plan.number, r.series ? "too short" : "none"));
    }
    if (!without.empty()) {
      const Bilingual some = Some(without);
      a.lacks.push_back({e.experiment.name + ": runs without two samples: " + some.english,
                         e.experiment.name + "：样本不足两个的运行：" + some.chinese});
    }
    if (Ran(e)) DeviceRecord(e, a);
  }
  a.ok = a.lacks.empty() && samples > 0;
  if (samples == 0 && a.lacks.empty()) a.lacks.push_back({"no run was made", "没有任何运行"});
  a.have.push_back({fmt::format("{} samples of the machine", samples), fmt::format("{} 个监控样本", samples)});
  return a;
}

Accepted Bottleneck(const std::vector<BundleEvidence>& all) {
  Accepted a{"bottleneck", {"The conclusion names the bottleneck", "结论指出瓶颈所在"}, true, {}, {}};
  bool any = false;
  for (const BundleEvidence& e : all) {
    if (!Ran(e)) continue;
    any = true;
    std::map<size_t, bool> known;
    std::string why;
    for (const EvidenceRun& r : e.runs) {
      if (r.plan.asks) continue;
      bool& k = known[r.plan.arm == 1 ? 0 : r.plan.arm];
      for (const Ceiling& c : r.ceilings) {
        k |= !c.bound.empty();
        if (c.bound.empty() && why.empty()) why = c.reason;
      }
    }
    if (why.empty()) why = "the subject does not tell what bounds it";
    if (std::ranges::all_of(known, [](const auto& k) { return k.second; }))
      a.have.push_back({e.experiment.name, e.experiment.name});
    else
      a.lacks.push_back(
          {e.experiment.name + ": " + why, e.experiment.name + "：" + Wording{ReportLanguage::kChinese}.Reason(why)});
  }
  if (!any) a.lacks.push_back({"no run was made", "没有任何运行"});
  a.ok = a.lacks.empty();
  return a;
}

Accepted Quality(const std::vector<BundleEvidence>& all) {
  Accepted a{"quality", {"Quality was judged", "质量已判断"}, true, {}, {}};
  bool any = false;
  for (const BundleEvidence& e : all) {
    if (!Ran(e)) continue;
    any = true;
    std::map<size_t, size_t> answers;  // of each value: identical arms count as one
    for (const EvidenceRun& r : e.runs) answers[r.plan.arm == 1 ? 0 : r.plan.arm] += r.record.output.answers.size();
    size_t sum = 0;
    bool each = true;
    for (const auto& [arm, n] : answers) sum += n, each &= n > 0;
    if (each)
      a.have.push_back({fmt::format("{}: {} answers", e.experiment.name, sum),
                        fmt::format("{}：{} 个回答", e.experiment.name, sum)});
    else
      a.lacks.push_back({e.experiment.name + ": no answers to judge; run a subject that gives text, or ridge kld",
                         e.experiment.name + "：没有可判断的回答；请用能输出文本的对象，或 ridge kld"});
  }
  if (!any) a.lacks.push_back({"no run was made", "没有任何运行"});
  a.ok = a.lacks.empty();
  return a;
}

}  // namespace

std::vector<Accepted> Acceptance(const std::vector<BundleEvidence>& evidences) {
  return {Matrix(evidences), Logs(evidences), Monitoring(evidences), Bottleneck(evidences), Quality(evidences)};
}

}  // namespace ridge::lab
