#include "hub/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "hub/files.h"

extern char** environ;

namespace ridge::hub {
namespace {

constexpr size_t kMaxOutputBytes = 64 << 10;

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Result<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return FailErrno(errno, "cannot make a pipe", "");
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

int WaitFor(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Asks the child to end, and after three seconds makes it.
void Stop(pid_t child) {
  ::kill(child, SIGTERM);
  for (int i = 0; i < 60; ++i) {
    if (::waitpid(child, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ::kill(child, SIGKILL);
  (void)WaitFor(child);
}

// Between fork and exec only async-signal-safe calls are allowed: everything is prepared before.
[[noreturn]] void BecomeChild(char* const* argv, char* const* envp, int output, int report, int null, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() == parent) {  // else the parent died before prctl
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(null, 0);
    ::dup2(output, 1);
    ::dup2(output, 2);
    ::execvpe(argv[0], argv, envp);
  }
  const int error = errno;
  (void)!::write(report, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

Result<ProcessResult> RunProcess(const std::vector<std::string>& command, const ProcessOptions& options) {
  RIDGE_CHECK(!command.empty());
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  envp.reserve(options.environment.size() + 64);
  for (const std::string& item : options.environment) envp.push_back(const_cast<char*>(item.c_str()));
  for (char** item = environ; *item != nullptr; ++item) {
    const std::string_view text = *item;
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const std::string& mine : options.environment) replaced = replaced || mine.substr(0, mine.find('=')) == name;
    if (!replaced) envp.push_back(*item);
  }
  envp.push_back(nullptr);

  RIDGE_ASSIGN_OR_RETURN(Pipe output, MakePipe());
  RIDGE_ASSIGN_OR_RETURN(Pipe report, MakePipe());  // closed by a successful exec, else carries errno
  RIDGE_ASSIGN_OR_RETURN(Descriptor null, OpenFile("/dev/null", O_RDONLY));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return FailErrno(errno, "cannot start a process", command[0]);
  if (child == 0) BecomeChild(argv.data(), envp.data(), output.write.get(), report.write.get(), null.get(), parent);
  output.write.Close();
  report.write.Close();

  int exec_error = 0;
  ssize_t told = 0;
  do {
    told = ::read(report.read.get(), &exec_error, sizeof exec_error);
  } while (told < 0 && errno == EINTR);
  if (told == sizeof exec_error) {
    (void)WaitFor(child);
    return FailErrno(exec_error, "cannot start program", command[0]);
  }

  ProcessResult result;
  std::string line;
  const auto take = [&](std::string_view text) {
    result.output += text;
    if (result.output.size() > 2 * kMaxOutputBytes) result.output.erase(0, result.output.size() - kMaxOutputBytes);
    for (char c : text) {
      if (c != '\n' && c != '\r') {
        if (line.size() < 4096) line += c;
        continue;
      }
      if (options.line && !line.empty()) options.line(line);
      line.clear();
    }
  };
  while (true) {
    if (options.tick && !options.tick()) {
      Stop(child);
      return Fail(Code::kCancelled, "stopped").Where(command[0]);
    }
    pollfd wait{output.read.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, 100);
    if (ready <= 0) continue;  // time to tick, or a signal
    char buffer[4096];
    const ssize_t count = ::read(output.read.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    take({buffer, static_cast<size_t>(count)});
  }
  take("\n");
  result.exit_status = WaitFor(child);
  return result;
}

}  // namespace ridge::hub
