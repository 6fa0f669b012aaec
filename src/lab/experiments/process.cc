#include "lab/experiments/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
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
  if (out == err)
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
  else
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

// The port of loopback that could be bound; 0: any.
Result<int> Bound(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int ended = port != 0;  // connections that ended just now are nobody's, as for the servers that are started
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof(address);
  const bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &ended, sizeof(ended)) == 0 &&
                  bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!ok) return Fail(Code::kUnavailable, "no port of loopback is free").Found(std::strerror(error));
  return ntohs(address.sin_port);
}

}  // namespace

Result<Usage> RunProcess(const std::vector<std::string>& command, const std::string& out, const std::string& err) {
  RIDGE_ASSIGN_OR_RETURN(const pid_t pid, Start(command, out, err));
  return Wait(pid, command[0]);
}

Result<Child> Child::Start(const std::vector<std::string>& command, const std::string& out, const std::string& err) {
  RIDGE_ASSIGN_OR_RETURN(const pid_t pid, lab::Start(command, out, err));
  return Child(pid, command[0]);
}

Child::~Child() { (void)Stop(); }

bool Child::Running() {
  if (pid_ == 0) return false;
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

Result<Usage> Child::Stop() {
  if (pid_ == 0) return Usage{};
  const pid_t pid = std::exchange(pid_, 0);
  kill(pid, SIGTERM);
  for (int i = 0; i < 4000; i++) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0) break;
    usleep(10'000);
    if (i == 3999) kill(pid, SIGKILL);
  }
  return Wait(pid, program_);
}

Result<int> FreePort() { return Bound(0); }
bool IsFree(int port) { return Bound(port).has_value(); }

}  // namespace ridge::lab
