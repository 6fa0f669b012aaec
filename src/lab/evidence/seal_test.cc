#include "lab/evidence/seal.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "lab/evidence/acceptance.h"
#include "lab/evidence/database.h"
#include "lab/evidence/document.h"
#include "lab/evidence/environment.h"
#include "lab/evidence/files.h"
#include "lab/evidence/report.h"
#include "lab/evidence/trace.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void Spit(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// An experiment whose subject is a script that says it is llama-bench, sealed.
class Sealed : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = (fs::temp_directory_path() / "ridge-sealed-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    Spit(root_ + "/bench", R"(#!/bin/sh
t=1; while [ $# -gt 0 ]; do case $1 in -t) t=$2;; esac; shift; done
echo "a line of the log <script>alert(1)</script>" >&2
echo "[{\"n_prompt\": 8, \"n_gen\": 0, \"n_threads\": $t, \"model_filename\": \"/m/a<b>&\\\"c.gguf\", \"avg_ts\": $((100 * t)),
\"bound\": \"memory\", \"ceiling_share\": 0.5, \"ceiling_bytes\": 1e9, \"ceiling_flops\": 2e9,
\"ceiling_memory_s\": 0.01, \"ceiling_unpack_s\": 0, \"ceiling_arithmetic_s\": 0.001}]"
)");
    chmod((root_ + "/bench").c_str(), 0755);
    const std::string toml =
        "[experiment]\nname = \"threads <img src=x onerror=alert(1)>\"\nblocks = 1\nsubject = \"llama-bench\"\nprogram "
        "= \"" +
        root_ + "/bench\"\n[variable]\nflag = \"t\"\nvalues = [1, 2]\n";
    const Bundle bundle = Bundle::Create(root_ + "/e.lab", toml).value();
    ASSERT_TRUE(bundle.Begin(Environment({.framework = "ridge test"}).dump(), ""));
    for (const PlannedRun& run : PlanRuns(bundle.experiment())) ASSERT_TRUE(bundle.Run(run));
    ASSERT_TRUE(SealBundle(bundle));
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }
  void SetUp() override {
    folder_ = root_ + "/copy.lab";
    fs::remove_all(folder_);
    fs::copy(root_ + "/e.lab", folder_, fs::copy_options::recursive);
  }
  std::vector<std::string> Problems(bool rederive = false) const {
    return CheckBundle(folder_, {rederive}).value().problems;
  }
  // With checksums made anew: as someone would who wants to deceive.
  void Forge(const std::string& name, const std::string& text) const {
    Spit(folder_ + "/" + name, text);
    std::string manifest;
    const Listing listing = ListBeneath(folder_).value();
    for (const std::string& file : listing.files) {
      if (file == "MANIFEST") continue;
      const std::string content = Slurp(folder_ + "/" + file);
      manifest += HashText(content) + " " + std::to_string(content.size()) + " " + QuoteName(file) + "\n";
    }
    Spit(folder_ + "/MANIFEST", manifest + "xxh3-64 of the lines above: " + HashText(manifest) + "\n");
  }
  BundleEvidence Read() const { return ReadEvidence(Bundle::Open(folder_).value()).value(); }

  static std::string root_;
  std::string folder_;
};
std::string Sealed::root_;

TEST_F(Sealed, HoldsAndIsDerivedAgain) {
  EXPECT_EQ(Problems(), std::vector<std::string>{});
  const Checked all = CheckBundle(folder_, {true}).value();
  EXPECT_EQ(all.problems, std::vector<std::string>{});
  EXPECT_EQ(all.derived, 6u + 5);
  EXPECT_EQ(all.files, ListBeneath(folder_)->files.size() - 1);
}

TEST_F(Sealed, AnyFlippedByteIsFound) {
  const std::vector<std::string> files = ListBeneath(folder_).value().files;
  RC_ASSERT(rc::check("a byte differs", [&] {
    const std::string& name = files[*rc::gen::inRange<size_t>(0, files.size())];
    const std::string text = Slurp(folder_ + "/" + name);
    if (text.empty()) return;
    const size_t at = *rc::gen::inRange<size_t>(0, text.size());
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ *rc::gen::inRange(1, 256));
    Spit(folder_ + "/" + name, changed);
    const bool found = !Problems().empty();
    Spit(folder_ + "/" + name, text);
    RC_ASSERT(found);
  }));
  EXPECT_EQ(Problems(), std::vector<std::string>{});
}

TEST_F(Sealed, EveryByteOfTheManifestCounts) {
  const std::string text = Slurp(folder_ + "/MANIFEST");
  for (size_t at = 0; at < text.size(); at += at + 120 < text.size() ? 7 : 1) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    Spit(folder_ + "/MANIFEST", changed);
    ASSERT_FALSE(Problems().empty()) << at;
  }
  for (const std::string& changed :
       {text + "\n", text + "x", text.substr(0, text.size() - 1), std::string(), text.substr(text.find('\n') + 1)}) {
    Spit(folder_ + "/MANIFEST", changed);
    EXPECT_FALSE(Problems().empty());
  }
}

TEST_F(Sealed, MissingAddedAndReplacedFilesAreNamed) {
  const auto has = [&](const std::string& text) {
    for (const std::string& p : Problems()) {
      if (p.find(text) != std::string::npos) return true;
    }
    return false;
  };
  fs::remove(folder_ + "/runs/0002.log");
  EXPECT_TRUE(has("runs/0002.log: is missing"));
  Spit(folder_ + "/runs/new\n file\xff", "x");
  EXPECT_TRUE(has("runs/new%0A%20file%FF: is not in the manifest"));
  fs::rename(folder_ + "/samples.csv", root_ + "/moved.csv");
  fs::create_symlink(root_ + "/moved.csv", folder_ + "/samples.csv");
  EXPECT_TRUE(has("samples.csv: is a link"));
  fs::remove(folder_ + "/environment.json");
  ASSERT_EQ(mkfifo((folder_ + "/environment.json").c_str(), 0600), 0);
  EXPECT_TRUE(has("environment.json: is a link or no regular file"));
  fs::resize_file(folder_ + "/runs/0004.log", kMostFileBytes + 1);  // takes no room
  EXPECT_TRUE(has("runs/0004.log: the file is too long"));
  fs::remove(folder_ + "/runs/0004.log");
  // A manifest, rightly summed, that names what lies outside.
  const std::string lines = HashText("outside") + " 7 ../secret\n" + HashText("root") + " 4 /etc/passwd\n";
  Spit(root_ + "/secret", "outside");
  Spit(folder_ + "/MANIFEST", lines + "xxh3-64 of the lines above: " + HashText(lines) + "\n");
  EXPECT_TRUE(has("../secret: a name that leads out of the folder"));
  EXPECT_TRUE(has("/etc/passwd: a name that leads out of the folder"));
  fs::remove_all(folder_ + "/runs");
  fs::create_directory_symlink(root_ + "/e.lab/runs", folder_ + "/runs");
  EXPECT_TRUE(has("runs: is a link"));
}

TEST_F(Sealed, WhatIsForgedWithRightChecksumsDoesNotFollowFromTheRawRuns) {
  for (const char* name : {"samples.csv", "trace.json", "report.md", "report.html", "runs/0001.resolved.json"}) {
    std::string text = Slurp(folder_ + "/" + name);
    const size_t at = text.rfind('1');
    ASSERT_NE(at, std::string::npos) << name;
    const std::string good = text;
    text[at] = '2';
    Forge(name, text);
    EXPECT_EQ(Problems().empty(), std::string(name) != "samples.csv") << name;
    const auto problems = Problems(true);
    ASSERT_EQ(problems.size(), 1u) << name;
    EXPECT_TRUE(problems[0].starts_with(name)) << problems[0];
    Forge(name, good);
  }
  EXPECT_EQ(Problems(true), std::vector<std::string>{});
}

void Sql(const std::string& path, const char* sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
}

TEST_F(Sealed, ForgedTablesOfTheDatabaseAreFoundAndNeverRun) {
  const std::string path = folder_ + "/samples.sqlite", good = Slurp(path);
  EXPECT_TRUE(DatabaseText(good));
  // Another SQLite, or one that has cleaned up, has other bytes and the same content.
  Sql(path, "VACUUM");
  Forge("samples.sqlite", Slurp(path));
  EXPECT_EQ(Problems(true), std::vector<std::string>{});
  Sql(path, "UPDATE samples SET value = value + 1 WHERE run = 0");
  Forge("samples.sqlite", Slurp(path));
  EXPECT_EQ(Problems(true), std::vector<std::string>{"samples.sqlite: its tables do not follow from the raw runs"});
  // A view in a table's place that would count for ever.
  Spit(path, good);
  Sql(path,
      "DROP TABLE about; CREATE VIEW about AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT "
      "x, x FROM n");
  Forge("samples.sqlite", Slurp(path));
  EXPECT_EQ(Problems(true).size(), 1u);
  for (const std::string& bytes :
       {std::string(), std::string("no database"), std::string(5000, '\0'), good.substr(0, good.size() / 2)}) {
    Forge("samples.sqlite", bytes);
    EXPECT_EQ(Problems(true).size(), 1u);
  }
}

TEST_F(Sealed, DamagedRecordsAreProblemsNoFaults) {
  for (const char* text : {"", "[]", "{}", "null", "{\"seconds\": \"x\"}", "\xff\xfe", "[[[[[["}) {
    Forge("runs/0001.monitor.json", text);
    EXPECT_FALSE(Problems(true).empty()) << text;
    Forge("runs/0001.monitor.json", Slurp(root_ + "/e.lab/runs/0001.monitor.json"));
    Forge("runs/0001.json", text);
    EXPECT_FALSE(Problems(true).empty()) << text;
    Forge("runs/0001.json", Slurp(root_ + "/e.lab/runs/0001.json"));
    Forge("runs/0001.monitor.csv", text);
    EXPECT_FALSE(Problems(true).empty()) << text;
    Forge("runs/0001.monitor.csv", Slurp(root_ + "/e.lab/runs/0001.monitor.csv"));
    Forge("experiment.toml", text);
    EXPECT_FALSE(Problems(true).empty()) << text;
    Forge("experiment.toml", Slurp(root_ + "/e.lab/experiment.toml"));
    Forge("environment.json", text);
    EXPECT_FALSE(Problems(true).empty()) << text;
    Forge("environment.json", Slurp(root_ + "/e.lab/environment.json"));
  }
  EXPECT_EQ(Problems(true), std::vector<std::string>{});
  EXPECT_EQ(CheckBundle(root_, {}).error().code, Code::kNotFound);
}

TEST_F(Sealed, RunsOfAnotherMachineOrBuildAreNotAdded) {
  const Bundle bundle = Bundle::Open(folder_).value();
  EXPECT_TRUE(bundle.Begin(Environment({.framework = "ridge test"}).dump(), ""));
  const auto other = bundle.Begin(Environment({.framework = "ridge other"}).dump(), "");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kInvalidArgument);
  EXPECT_EQ(Problems(true), std::vector<std::string>{});  // nothing was written
}

TEST_F(Sealed, TheTraceNests) {
  BundleEvidence e = Read();
  // Spans that a clock of another boot would give: over each other.
  for (size_t i = 0; i < e.runs.size(); i++) {
    const RunRecord& r = e.runs[i].record;
    e.runs[i].spans = {{"a", r.begin_s, (r.begin_s + r.end_s) / 2, ""}, {"b", (r.begin_s + r.end_s) / 2, r.end_s, ""}};
    // One step inside a phase, one over the border of two.
    const double middle = (r.begin_s + r.end_s) / 2, part = (r.end_s - r.begin_s) / 8;
    for (const double begin : {r.begin_s + part, middle - part})
      e.runs[i].steps.push_back({"decode",
                                 1,
                                 begin,
                                 begin + 2 * part,
                                 16,
                                 {{"x", begin, begin + part}, {"y", begin + part, begin + 2 * part}}});
  }
  e.runs[3].record.unix_s = e.runs[2].record.unix_s;
  const Json trace = Json::parse(TraceJson(e));
  std::map<int, std::vector<std::pair<double, double>>> tracks;
  size_t counters = 0;
  for (const Json& event : trace.at("traceEvents")) {
    counters += event.at("ph") == "C";
    if (event.at("ph") == "X")
      tracks[event.at("tid")].push_back({event.at("ts"), event["ts"].get<double>() + event.at("dur").get<double>()});
  }
  EXPECT_GT(counters, 6u);
  size_t spans = 0;
  for (const auto& [tid, all] : tracks) {
    spans += all.size();
    for (size_t i = 0; i < all.size(); i++) {
      for (size_t j = 0; j < i; j++) {
        constexpr double kLeast = 0.02;  // us: times are rounded to 10 ns
        const auto before = [](double a, double b) { return a <= b + kLeast; };
        const bool apart = before(all[j].second, all[i].first) || before(all[i].second, all[j].first);
        const bool inside = (before(all[j].first, all[i].first) && before(all[i].second, all[j].second)) ||
                            (before(all[i].first, all[j].first) && before(all[j].second, all[i].second));
        EXPECT_TRUE(apart || inside) << tid;
      }
    }
  }
  EXPECT_EQ(spans, 6u * (3 + 2 * 3) + 1);
}

// A phase and its first step begin within a microsecond, on any fraction of one.
TEST_F(Sealed, AStepThatBeginsWithItsPhaseLiesInIt) {
  BundleEvidence e = Read();
  for (size_t i = 0; i < e.runs.size(); i++) {
    const RunRecord& r = e.runs[i].record;
    const double begin = r.begin_s + 0.15e-6 * static_cast<double>(i), end = begin + 3e-6;
    e.runs[i].spans = {{"a", begin, end, "stamped"}};
    e.runs[i].steps = {{"decode", 1, begin + 0.02e-6, end, 16, {{"x", begin + 0.02e-6, end}}}};
  }
  std::map<std::string, std::set<int>> tracks;
  const Json trace = Json::parse(TraceJson(e));
  for (const Json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") tracks[event.at("cat")].insert(event.at("tid").get<int>());
  EXPECT_EQ(tracks["step"], tracks["phase"]);
  EXPECT_EQ(tracks["op"], tracks["phase"]);
}

TEST_F(Sealed, NoTextBecomesMarkup) {
  const BundleEvidence e = Read();
  for (const ReportLanguage language : {ReportLanguage::kEnglish, ReportLanguage::kChinese}) {
    const Document d = ReportOf({e}, language);
    const std::string html = ToHtml({d}), md = ToMarkdown({d});
    for (const char* bad : {"<img", "<script", "a<b>", "onerror=alert(1)>"}) {
      EXPECT_EQ(html.find(bad), std::string::npos) << bad;
      EXPECT_EQ(md.find(bad), std::string::npos) << bad;
    }
    EXPECT_NE(html.find("&lt;img src=x"), std::string::npos);
    for (const char* outside : {"http:", "https:", "src=\"", "url(", "@import", "<link", "<iframe"})
      EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
}

TEST_F(Sealed, AcceptanceNamesWhatIsMissing) {
  const auto find = [](const std::vector<Accepted>& all, const char* id) {
    for (const Accepted& a : all) {
      if (a.id == id) return a;
    }
    return Accepted{};
  };
  BundleEvidence e = Read();
  const auto of = Acceptance({e});
  ASSERT_EQ(of.size(), 5u);
  EXPECT_FALSE(find(of, "matrix").ok);
  EXPECT_EQ(find(of, "matrix").lacks.size(), 3u);
  EXPECT_TRUE(find(of, "raw_logs").ok);
  EXPECT_TRUE(find(of, "bottleneck").ok);
  EXPECT_FALSE(find(of, "quality").ok);
  BundleEvidence offload = e, context = e, format = e;
  offload.experiment.flag = "ngl", context.experiment.flag = "d", format.experiment.flag = "m";
  EXPECT_TRUE(find(Acceptance({offload, context, format}), "matrix").ok);
  offload.runs.clear();
  offload.planned = 0;
  EXPECT_FALSE(find(Acceptance({offload, context, format}), "matrix").ok);
  offload.experiment.not_run["99"] = "no NVIDIA driver";
  EXPECT_TRUE(find(Acceptance({offload, context, format}), "matrix").ok);
  e.runs[1].log_there = false;
  const Accepted logs = find(Acceptance({e}), "raw_logs");
  EXPECT_FALSE(logs.ok);
  ASSERT_FALSE(logs.lacks.empty());
  EXPECT_NE(logs.lacks[0].english.find("runs/0001.log"), std::string::npos);
  // Where there is a GPU, it has to be watched: by readings of its own, or by a file of its tool.
  BundleEvidence gpu = Read();
  gpu.environment_json =
      R"({"mlperf": {"accelerators_per_node": {"value": 1}, "other_software_stack": {"value": "x"}}})";
  EXPECT_FALSE(find(Acceptance({gpu}), "monitoring").ok);
  gpu.runs[0].series->names.push_back("gpu0_sm_percent");
  for (Series::Point& p : gpu.runs[0].series->points) p.values.push_back(std::nullopt);
  EXPECT_FALSE(find(Acceptance({gpu}), "monitoring").ok);  // a column, and nothing in it
  gpu.runs[0].series->points[0].values.back() = 97;
  EXPECT_TRUE(find(Acceptance({gpu}), "monitoring").ok);
  e.runs[0].series.reset();
  EXPECT_FALSE(find(Acceptance({e}), "monitoring").ok);
  for (EvidenceRun& r : e.runs) r.record.output.answers = {{"zh-1", "text", "stop", {}}};
  EXPECT_TRUE(find(Acceptance({e}), "quality").ok);
  for (EvidenceRun& r : e.runs) r.ceilings.clear();
  EXPECT_FALSE(find(Acceptance({e}), "bottleneck").ok);
}

}  // namespace
}  // namespace ridge::lab
