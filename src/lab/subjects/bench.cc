// ridge bench and llama-bench, which print the same JSON array.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/json_text.h"
#include "lab/subjects/subject.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

std::string TestName(double prompt, double gen, double depth) {
  std::string name = prompt > 0 ? fmt::format("pp{}", prompt) : "";
  if (gen > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", gen);
  if (depth > 0) name += fmt::format(" @ d{}", depth);
  return name;
}

bool IsMeasured(const std::string& key) {
  for (const char* prefix :
       {"avg_", "stddev_", "median_", "samples_", "read_", "ceiling_", "bound", "test_time", "op_trace"}) {
    if (key.starts_with(prefix)) return true;
  }
  return false;
}

// "CPU", "BLAS", "CPU,BLAS": backends that compute on no GPU; or one that found none.
bool OnCpuOnly(std::string_view backends, std::string_view gpu) {
  if (backends.empty()) return false;  // not told
  bool only = true;
  while (!backends.empty()) {
    const size_t comma = std::min(backends.find(','), backends.size());
    const std::string_view name = backends.substr(0, comma);
    only = only && (name == "CPU" || name == "BLAS" || name == "OpenBLAS" || name == "AMX" || name == "LLAMAFILE");
    backends.remove_prefix(std::min(comma + 1, backends.size()));
  }
  return only && gpu.empty();
}

std::string TextOf(const Json& row, const char* key) {
  const auto it = row.find(key);
  return it == row.end() ? "" : it->is_string() ? it->get<std::string>() : it->dump();
}

class Bench : public Subject {
 public:
  explicit Bench(bool llama) : llama_(llama) {}
  std::string_view name() const override { return llama_ ? "llama-bench" : "bench"; }

  Status Check(const Experiment& e) const override {
    if (llama_ && e.program.empty() && e.flag != "program")
      return Fail(Code::kInvalidData, "subject llama-bench needs its program").Where("[experiment] program");
    return {};
  }

  Result<std::vector<std::string>> Command(const Experiment& e, size_t arm) const override {
    std::vector<std::string> out = {ProgramOf(e, arm)};
    if (out[0].empty()) {
      RIDGE_ASSIGN_OR_RETURN(out[0], OwnProgram());
    }
    if (!llama_) out.push_back("bench");
    AddFlags(e, arm, llama_, {}, out);
    if (!llama_) AddTrace(e, arm, out);
    out.insert(out.end(), {"-r", std::to_string(e.repeats), "-o", "json"});
    return out;
  }

  Result<RunOutput> Parse(std::string_view out, std::string_view) const override {
    const Json rows = ParseJsonText<Json>(out);
    if (!rows.is_array() || rows.empty())
      return Fail(Code::kInvalidData, "the subject printed no table of results")
          .Expected("the JSON array of bench -o json");
    RunOutput output;
    std::map<std::string, std::set<std::string>> tests;  // of the keys that tell tests apart
    for (const Json& row : rows) {
      if (!row.is_object() || !row.contains("avg_ts") || !row["avg_ts"].is_number())
        return Fail(Code::kInvalidData, "a row without avg_ts");
      const auto number = [&](const char* key) {
        return row.contains(key) && row[key].is_number() ? row[key].get<double>() : 0.0;
      };
      const double speed = number(row.contains("median_ts") && row["median_ts"].is_number() ? "median_ts" : "avg_ts");
      Measured m{.test = TestName(number("n_prompt"), number("n_gen"), number("n_depth")), .value = speed};
      m.bound = row.contains("bound") && row["bound"].is_string() ? row["bound"].get<std::string>() : "";
      if (number("read_gbps") > 0) m.read_gbps = number("read_gbps");
      if (number("read_ceiling_gbps") > 0) m.read_ceiling_gbps = number("read_ceiling_gbps");
      output.tests.push_back(std::move(m));
      if (number("n_gen") == 0 && !output.measures.prefill_per_second) output.measures.prefill_per_second = speed;
      if (number("n_prompt") == 0 && !output.measures.decode_per_second) output.measures.decode_per_second = speed;
      for (const auto& [key, value] : row.items()) {
        if (!IsMeasured(key)) tests[key].insert(value.is_string() ? value.get<std::string>() : value.dump());
      }
    }
    for (const auto& [key, values] : tests) {
      std::string all;
      for (const std::string& v : values) all += (all.empty() ? "" : ",") + v;
      output.resolved[key] = all;
    }
    // llama-bench repeats the -ngl that was typed; a build without a GPU backend, or a machine without a GPU, has no layer there.
    if (llama_ && output.resolved.contains("n_gpu_layers") &&
        OnCpuOnly(TextOf(rows[0], "backends"), TextOf(rows[0], "gpu_info")))
      output.resolved["n_gpu_layers"] = "0";
    const Json& first = rows[0];
    if (number_of(first, "model_size") > 0) output.measures.model_bytes = number_of(first, "model_size");
    output.measures.missing["ttft_ms"] = "bench gives no first token";
    const std::string commit = TextOf(first, "build_commit"), build = TextOf(first, "build_number");
    output.subject_version = std::string(llama_ ? "llama-bench" : "ridge bench") +
                             (commit.empty() ? "" : " " + commit) + (build.empty() ? "" : " (b" + build + ")");
    return output;
  }

 private:
  static double number_of(const Json& row, const char* key) {
    return row.contains(key) && row[key].is_number() ? row[key].get<double>() : 0.0;
  }
  bool llama_;
};

}  // namespace

const Subject& BenchSubject() {
  static const Bench subject(false);
  return subject;
}

const Subject& LlamaBenchSubject() {
  static const Bench subject(true);
  return subject;
}

}  // namespace ridge::lab
