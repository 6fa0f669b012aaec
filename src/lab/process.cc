#include "lab/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ridge::lab {
namespace {

double Seconds(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; }

Result<pid_t> Start(const std::vector<std::string>& command, const std::string& out, const std::string& err) {
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words[0].c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Fail(Code::kNotFound, "cannot start the subject").Where(words[0]).Found(std::strerror(error));
  return pid;
}

Result<Usage> Wait(pid_t pid, const std::string& program) {
  int status = 0;
  rusage usage{};
  while (wait4(pid, &status, 0, &usage) < 0) {
    if (errno != EINTR) return Fail(Code::kInternal, "cannot wait for the subject").Where(program);
  }
  return Usage{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
               Seconds(usage.ru_utime) + Seconds(usage.ru_stime), static_cast<double>(usage.ru_maxrss) / 1024};
}

}  // namespace

Result<Usage> RunProcess(const std::vector<std::string>& command, const std::string& out, const std::string& err) {
  RIDGE_ASSIGN_OR_RETURN(const pid_t pid, Start(command, out, err));
  return Wait(pid, command[0]);
}

}  // namespace ridge::lab
