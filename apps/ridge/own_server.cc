#include "own_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace ridge::app {
namespace {

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    text.append(buffer, static_cast<size_t>(n));
    // The one document of `serve --json` ends with "}\n" in the first column; the server goes on running.
    if (text.ends_with("\n}\n")) break;
  }
  return text;
}

}  // namespace

Result<OwnServer> OwnServer::Start(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"ridge", "serve", "--no-profile"});  // its settings are those that are given
  arguments.insert(arguments.end(), {"--host", "127.0.0.1", "--port", "0", "--json"});
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0)
    return Fail(Code::kResourceExhausted, "cannot start a server").Found(std::strerror(errno));
  const pid_t parent = getpid();
  OwnServer server;
  server.pid_ = fork();
  if (server.pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(out[1], STDOUT_FILENO);
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDERR_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(out[1]);
  if (server.pid_ < 0) {
    close(out[0]);
    return Fail(Code::kResourceExhausted, "cannot start a server").Found(std::strerror(errno));
  }
  const std::string text = ReadAll(out[0]);
  close(out[0]);
  const auto document = ParseJsonText<nlohmann::json>(text);
  if (document.is_object() && document.contains("url") && document["url"].is_string()) {
    server.url_ = document["url"].get<std::string>();
    return server;
  }
  std::string why = "it ended without a word";
  if (document.is_object() && document.contains("error") && document["error"].contains("what"))
    why = document["error"]["what"].get<std::string>();
  return Fail(Code::kUnavailable, "a server of this program did not start").Found(why);
}

OwnServer::~OwnServer() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace ridge::app
