#include "lab/monitor/tool_feed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ridge::lab {
namespace {

constexpr size_t kMostLineBytes = 1 << 16;
constexpr int kMostReads = 64;  // of 4 KiB: four times what a pipe holds
constexpr double kMostGpus = 1024;

double Now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

Result<ToolFeed> ToolFeed::Start(const std::vector<std::string>& command, LogKind kind, double period_s) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return Fail(Code::kUnavailable, "no pipe").Found(std::strerror(errno));
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words[0].c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return Fail(Code::kNotFound, "cannot start the tool").Where(words[0]).Found(std::strerror(error));
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  ToolFeed feed(pid, ends[0], kind, period_s);
  const double end = Now() + 3 * period_s + 1;
  while (feed.newest_.empty() && Now() < end) {
    pollfd waits{.fd = feed.fd_, .events = POLLIN, .revents = 0};
    poll(&waits, 1, 100);
    feed.Poll();
    if ((waits.revents & POLLHUP) != 0 && (waits.revents & POLLIN) == 0) break;
  }
  if (!feed.newest_.empty()) return feed;
  return Fail(Code::kUnavailable, "it printed no sample")
      .Where(words[0])
      .Found(feed.other_.empty() ? "nothing" : feed.other_);
}

ToolFeed::ToolFeed(ToolFeed&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      fd_(std::exchange(other.fd_, -1)),
      kind_(other.kind_),
      period_s_(other.period_s_),
      part_(std::move(other.part_)),
      header_(std::move(other.header_)),
      other_(std::move(other.other_)),
      newest_(std::move(other.newest_)) {}

ToolFeed::~ToolFeed() {
  if (fd_ >= 0) close(fd_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);  // it holds nothing that it could lose
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ToolFeed::Take(const std::string& line, double now_s) {
  if (kind_ == LogKind::kTegrastats) {
    if (auto row = ParseTegrastats(line))
      newest_[0] = {std::move(*row), now_s};
    else
      other_ = line;
    return;
  }
  if (line.starts_with('#')) {
    // Two lines, names and units, that come again every so often.
    if (line.find("gpu") != std::string::npos) header_.clear();
    if (header_.size() < kMostLineBytes) header_ += line + "\n";
    return;
  }
  Recorded log{.kind = kind_};
  ParseDmon(header_ + line + "\n", log);
  if (log.rows.empty()) other_ = line;
  for (Row& row : log.rows) {
    const Field* gpu = row.Find("gpu");
    if (gpu == nullptr || !gpu->value || !(*gpu->value >= 0 && *gpu->value < kMostGpus)) continue;
    const int number = static_cast<int>(*gpu->value);
    newest_[number] = {std::move(row), now_s};
  }
}

void ToolFeed::Poll() {
  char buffer[4096];
  // A tool that writes faster than it is read would never let go.
  for (int reads = 0; reads < kMostReads; reads++) {
    const ssize_t n = read(fd_, buffer, sizeof(buffer));
    if (n <= 0) return;
    part_.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = part_.find('\n')) != std::string::npos; part_.erase(0, end + 1))
      Take(part_.substr(0, end), Now());
    if (part_.size() > kMostLineBytes) part_.clear();
  }
}

void ToolFeed::Fill(Row& row, const std::string& prefix, double now_s) {
  Poll();
  for (const auto& [gpu, newest] : newest_) {
    const std::string before = kind_ == LogKind::kDmon ? fmt::format("{}{}_", prefix, gpu) : prefix;
    const double age_s = now_s - newest.at_s;
    const bool old = age_s > 3 * period_s_ + 1;
    for (const Field& f : newest.row.fields) {
      if (f.name == "gpu" || !f.text.empty()) continue;
      if (old)
        row.Add(before + f.name, {}, fmt::format("the tool has printed nothing for {:.0f} s", age_s));
      else
        row.Add(before + f.name, f.value, f.reason);
    }
    row.Add(before + "age_ms", age_s * 1e3);
  }
}

}  // namespace ridge::lab
