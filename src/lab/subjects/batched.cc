// ridge batched-bench and llama-batched-bench: rows of speeds over the number of sequences.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_text.h"
#include "lab/monitor/recorded.h"
#include "lab/subjects/asked.h"
#include "lab/subjects/llama_log.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

class Batched : public Subject {
 public:
  explicit Batched(bool llama) : llama_(llama) {}
  std::string_view name() const override { return llama_ ? "llama-batched-bench" : "batched-bench"; }

  Status Check(const Experiment& e) const override {
    if (llama_ && e.program.empty() && e.flag != "program")
      return Fail(Code::kInvalidData, "subject llama-batched-bench needs its program").Where("[experiment] program");
    return {};
  }

  Result<std::vector<std::string>> Command(const Experiment& e, size_t arm) const override {
    std::vector<std::string> out = {ProgramOf(e, arm)};
    if (out[0].empty()) {
      RIDGE_ASSIGN_OR_RETURN(out[0], OwnProgram());
    }
    if (!llama_) out.push_back("batched-bench");
    AddFlags(e, arm, llama_, {}, out);
    if (llama_)
      out.insert(out.end(), {"--output-format", "jsonl", "--verbosity", "4"});
    else
      out.insert(out.end(), {"-o", "jsonl"});
    return out;
  }

  Result<RunOutput> Parse(std::string_view out, std::string_view log) const override {
    static const std::set<std::string> kFigures = {"n_kv",     "t_pp", "speed_pp", "t_tg",
                                                   "speed_tg", "t",    "speed",    "read_gbps"};
    RunOutput output;
    std::map<std::string, std::set<std::string>> settings;
    for (const std::string_view line : Lines(out)) {
      const Json row = line.starts_with('{') ? ParseJsonText<Json>(line) : Json();
      if (!row.is_object() || !row.contains("speed_tg")) continue;
      const auto number = [&](const char* key) {
        return row.contains(key) && row[key].is_number() ? row[key].get<double>() : 0.0;
      };
      const std::string shape = fmt::format("pp{} tg{} x{}", number("pp"), number("tg"), number("pl"));
      for (const auto& [key, what] : {std::pair{"speed_pp", "prefill"}, {"speed_tg", "decode"}, {"speed", "all"}}) {
        if (number(key) > 0) output.tests.push_back({fmt::format("{} {}", what, shape), number(key)});
      }
      if (!output.measures.prefill_per_second && number("speed_pp") > 0)
        output.measures.prefill_per_second = number("speed_pp");
      if (!output.measures.decode_per_second && number("speed_tg") > 0 && number("pl") > 0)
        output.measures.decode_per_second = number("speed_tg") / number("pl");
      for (const auto& [key, value] : row.items()) {
        if (!kFigures.contains(key)) settings[key].insert(value.is_string() ? value.get<std::string>() : value.dump());
      }
    }
    if (output.tests.empty())
      return Fail(Code::kInvalidData, "the subject printed no row of results")
          .Expected("lines of batched-bench's jsonl");
    if (llama_) {
      Json said = Json::object();
      ReadLlamaSettings(log, said);
      for (const auto& [key, value] : said.items()) {
        if (!settings.contains(key)) settings[key].insert(value.get<std::string>());
      }
    }
    for (const auto& [key, values] : settings) {
      std::string all;
      for (const std::string& v : values) all += (all.empty() ? "" : ",") + v;
      output.resolved[key] = all;
    }
    if (const auto size = output.resolved.find("model_size"); size != output.resolved.end())
      output.measures.model_bytes = ToNumber(size->second);
    output.measures.missing["ttft_ms"] = "batched-bench gives no first token";
    output.subject_version = llama_ ? "llama-batched-bench" : "ridge batched-bench";
    for (const std::string_view line : Lines(log)) {
      if (const size_t at = line.find("build: "); at != std::string_view::npos)
        output.subject_version += " " + std::string(line.substr(at + 7));
    }
    return output;
  }

 private:
  bool llama_;
};

}  // namespace

const Subject& BatchedBenchSubject() {
  static const Batched subject(false);
  return subject;
}

const Subject& LlamaBatchedBenchSubject() {
  static const Batched subject(true);
  return subject;
}

}  // namespace ridge::lab
