#include "lab/subjects/subject.h"

#include <time.h>

#include <algorithm>
#include <filesystem>

namespace ridge::lab {
namespace {

constexpr int kTracedSteps = 64;  // one in so many, and the first of each repetition of bench

std::vector<const Subject*> Registry() {
  return {&BenchSubject(),      &RunSubject(),      &ServeSubject(),       &BatchedBenchSubject(),
          &LlamaBenchSubject(), &LlamaCliSubject(), &LlamaServerSubject(), &LlamaBatchedBenchSubject(),
          &UrlSubject(),        &OpenVinoSubject()};
}

}  // namespace

Status Subject::Check(const Experiment&) const { return {}; }

Result<Usage> Subject::Run(const Experiment& e, size_t arm, const RunFiles& files) const {
  RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> command, Command(e, arm));
  return RunProcess(command, files.out, files.log);
}

const Subject* FindSubject(std::string_view name) {
  for (const Subject* s : Registry()) {
    if (s->name() == name) return s;
  }
  return nullptr;
}

std::string SubjectNames() {
  std::string names;
  for (const Subject* s : Registry()) names += (names.empty() ? "" : ", ") + std::string(s->name());
  return names;
}

std::string AskedBy(std::string_view subject) {
  if (subject == "bench" || subject == "batched-bench") return "serve";
  if (subject == "llama-bench" || subject == "llama-batched-bench") return "llama-server";
  return std::string(subject);
}

const Subject& SubjectOf(const Experiment& e, const PlannedRun& run) {
  if (run.asks) return AskingSubject(AskedBy(SubjectNameOf(e, run.arm)) == "llama-server");
  if (e.flag == "power-mode") return PoweredSubject();
  return *FindSubject(SubjectNameOf(e, run.arm));
}

Result<std::string> OwnProgram() {
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return Fail(Code::kInternal, "cannot find this program's own file").Found(error.message());
  return path;
}

void AddFlags(const Experiment& e, size_t arm, bool llama, std::initializer_list<std::string_view> left_out,
              std::vector<std::string>& out) {
  for (const FlagValue& f : FlagsOf(e, arm)) {
    if (std::ranges::find(left_out, f.flag) != left_out.end()) continue;
    // llama.cpp's tools have -ngl and --model; this program takes -m and --anything.
    out.push_back((f.flag.size() == 1 || (llama && f.flag.size() <= 3) ? "-" : "--") + f.flag);
    if (f.value) out.push_back(*f.value);
  }
}

void AddTrace(const Experiment& e, size_t arm, std::vector<std::string>& out) {
  if (!ProgramOf(e, arm).empty() || e.flag == "op-trace") return;
  for (const auto& [flag, value] : e.base) {
    if (flag == "op-trace") return;
  }
  if (IsObserved(e, arm)) out.insert(out.end(), {"--op-trace", std::to_string(kTracedSteps)});
}

double MonotonicSeconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace ridge::lab
