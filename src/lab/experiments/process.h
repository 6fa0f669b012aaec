// Other programs as children of this one: run to their end, or kept running and stopped.
//
//   RIDGE_ASSIGN_OR_RETURN(Usage usage, RunProcess({"llama-bench", "-o", "json"}, "out.json", "out.log"));
//
// Guarantees: stdin is /dev/null; stdout and stderr go to the files named, whole. What a child used is the kernel's own account of it (wait4).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

// What a run used.
struct Usage {
  int status = 0;                    // 128 + N: ended by signal N
  std::optional<double> cpu_s;       // of the subject and of who asked it; none: it runs elsewhere
  std::optional<double> max_rss_mb;  // the same
};

// Errors: kNotFound where the program cannot be started.
Result<Usage> RunProcess(const std::vector<std::string>& command, const std::string& out, const std::string& err);

// A child that runs until it is stopped: with SIGTERM, and after 40 s with SIGKILL. Stopped at the latest by the destructor.
class Child {
 public:
  // out and err may be the same file.
  static Result<Child> Start(const std::vector<std::string>& command, const std::string& out, const std::string& err);
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)), program_(std::move(other.program_)) {}
  Child& operator=(Child&&) = delete;
  ~Child();
  bool Running();  // false: it ended by itself; Stop tells how
  Result<Usage> Stop();

 private:
  explicit Child(int pid, std::string program) : pid_(pid), program_(std::move(program)) {}
  int pid_ = 0;
  std::string program_;
};

// A port of loopback that was free just now; whether one is.
Result<int> FreePort();
bool IsFree(int port);

}  // namespace ridge::lab
