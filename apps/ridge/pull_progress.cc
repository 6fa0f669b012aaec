#include "pull_progress.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "text_table.h"

namespace ridge::app {
namespace {

using Clock = std::chrono::steady_clock;

// A signal handler can reach nothing but a global.
std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnSignal(int) { g_stop.store(true); }

size_t TerminalColumns() {
  winsize size{};
  if (::ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string TimeText(double seconds) {
  const long whole = std::lround(std::min(seconds, 359999.0));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

std::string SizeText(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string ProgressLine(const hub::Progress& progress, size_t columns) {
  std::string tail;
  std::string bar;
  if (progress.total_bytes > 0) {
    const double part =
        std::min(1.0, static_cast<double>(progress.done_bytes) / static_cast<double>(progress.total_bytes));
    constexpr size_t kWidth = 20;
    const size_t full = static_cast<size_t>(part * kWidth);
    bar = "[" + std::string(full, '#') + std::string(kWidth - full, '.') + "]";
    tail = fmt::format(" {:3}%  {} of {}", static_cast<int>(part * 100), SizeText(progress.done_bytes),
                       SizeText(progress.total_bytes));
  } else if (progress.done_bytes > 0) {
    tail = "  " + SizeText(progress.done_bytes);
  }
  if (progress.bytes_per_second > 0) tail += "  " + SizeText(static_cast<uint64_t>(progress.bytes_per_second)) + "/s";
  if (progress.remaining_seconds >= 0) tail += "  " + TimeText(progress.remaining_seconds) + " left";
  const size_t used = bar.size() + tail.size() + 1;
  std::string line;
  if (columns > used + 8) line = Printable(progress.label, std::min<size_t>(40, columns - used - 4)) + " ";
  line += bar + tail;
  return bar.size() + tail.size() > columns ? line.substr(0, columns) : line;
}

struct PullReporter::State {
  const bool terminal = ::isatty(2) == 1;
  const Clock::time_point start = Clock::now();
  size_t drawn_columns = 0;
  struct sigaction old_int{};
  struct sigaction old_term{};

  void Wipe() {
    if (drawn_columns == 0) return;
    std::fprintf(stderr, "\r%s\r",
                 std::string(drawn_columns, ' ').c_str());  // blanks, not escapes: also right with TERM=dumb
    std::fflush(stderr);
    drawn_columns = 0;
  }

  void Draw(const hub::Progress& progress) {
    if (!terminal || Clock::now() - start < std::chrono::seconds(1)) return;
    const size_t columns = TerminalColumns() - 1;
    const std::string line = ProgressLine(progress, columns);
    const std::string pad(drawn_columns > line.size() ? drawn_columns - line.size() : 0, ' ');
    std::fprintf(stderr, "\r%s%s", line.c_str(), pad.c_str());
    std::fflush(stderr);
    drawn_columns = std::min(line.size(), columns);
  }

  void Tell(const std::string& text) {
    Wipe();
    std::fprintf(stderr, "ridge: %s\n", Printable(text).c_str());
  }
};

PullReporter::PullReporter() : state_(std::make_unique<State>()) {
  g_stop.store(false);
  struct sigaction action{};
  action.sa_handler = &OnSignal;  // no SA_RESTART: waiting calls return at once
  ::sigaction(SIGINT, &action, &state_->old_int);
  ::sigaction(SIGTERM, &action, &state_->old_term);
}

PullReporter::~PullReporter() {
  state_->Wipe();
  ::sigaction(SIGINT, &state_->old_int, nullptr);
  ::sigaction(SIGTERM, &state_->old_term, nullptr);
}

hub::PullOptions PullReporter::Options(bool force) {
  hub::PullOptions options;
  options.force = force;
  options.cancel = &g_stop;
  options.progress = [state = state_.get()](const hub::Progress& progress) { state->Draw(progress); };
  options.notice = [state = state_.get()](const std::string& text) { state->Tell(text); };
  return options;
}

Result<std::string> ResolveOrPull(const std::string& model) {
  const auto resolve = [&] {
    PullReporter reporter;
    hub::ResolveOptions options;
    options.pull = true;
    options.options = reporter.Options();
    return hub::ResolveModel(model, options);
  };
  Result<std::string> path = resolve();
  // What needs no download looks for no signal; with the old handlers back, none is lost from here on.
  if (path && g_stop.load()) return Fail(Code::kCancelled, "interrupted").Where(model);
  return path;
}

}  // namespace ridge::app
