#include "lab/subjects/subject.h"

#include <filesystem>

namespace ridge::lab {
namespace {

std::vector<const Subject*> Registry() { return {&BenchSubject(), &LlamaBenchSubject()}; }

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

const Subject& SubjectOf(const Experiment& e, const PlannedRun&) { return *FindSubject(e.subject); }

Result<std::string> OwnProgram() {
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return Fail(Code::kInternal, "cannot find this program's own file").Found(error.message());
  return path;
}

std::string DashedFor(std::string_view flag, bool llama) {
  // llama.cpp's tools have -ngl and --model; this program takes -m and --anything.
  return (flag.size() == 1 || (llama && flag.size() <= 3) ? "-" : "--") + std::string(flag);
}

}  // namespace ridge::lab
