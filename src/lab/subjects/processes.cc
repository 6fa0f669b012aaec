// Programs of the command line as subjects that answer: a process for each question.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lab/subjects/asked.h"

namespace ridge::lab {

Result<Usage> AskProcesses(const std::vector<std::string>& command, const Workload& work, const RunFiles& files,
                           bool log_output, AskedRun& run, const TakeAnswer& take) {
  const std::string part = files.out + ".part", log = files.log + ".part";
  run.max_tokens = work.max_tokens;
  Usage total{.cpu_s = 0, .max_rss_mb = 0};
  const double start = MonotonicSeconds();
  std::filesystem::remove(files.log);
  for (const Question& q : QuestionsOf(work)) {
    std::vector<std::string> words = command;
    words.insert(words.end(), {"-p", q.text});
    const double began = RawSeconds();
    RIDGE_ASSIGN_OR_RETURN(const Usage usage, RunProcess(words, part, log));
    const double ended = RawSeconds();
    RIDGE_ASSIGN_OR_RETURN(const std::string out, ReadText(part));
    RIDGE_ASSIGN_OR_RETURN(const std::string said, ReadText(log));
    RIDGE_RETURN_IF_ERROR(
        AppendLine(files.log, fmt::format("# {}\n{}{}", q.id, log_output ? out + "\n" : "", WithoutEnd(said))));
    *total.cpu_s += usage.cpu_s.value_or(0);
    total.max_rss_mb = std::max(*total.max_rss_mb, usage.max_rss_mb.value_or(0));
    total.status = usage.status;
    if (usage.status != 0) break;
    RIDGE_ASSIGN_OR_RETURN(AskedRequest request, take(q, out, said, run));
    request.began_s = began, request.ended_s = ended;
    run.requests.push_back(std::move(request));
  }
  run.duration_s = MonotonicSeconds() - start;
  std::filesystem::remove(part);
  std::filesystem::remove(log);
  return total;
}

}  // namespace ridge::lab
