#include "file_fault.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/mmap.h"

namespace ridge::app {
namespace {

const Output* g_out = nullptr;

// A text on the stack: a signal handler may not allocate.
class Text {
 public:
  void Add(std::string_view more) {
    const size_t n = more.size() < bytes_.size() - used_ ? more.size() : bytes_.size() - used_;
    std::memcpy(bytes_.data() + used_, more.data(), n);
    used_ += n;
  }
  // Between quotation marks.
  void AddJson(std::string_view text) {
    constexpr char kDigits[] = "0123456789abcdef";
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20) {
        const char escape[] = {'\\', 'u', '0', '0', kDigits[byte >> 4], kDigits[byte & 15]};
        Add({escape, sizeof(escape)});
        continue;
      }
      if (c == '"' || c == '\\') Add("\\");
      Add({&c, 1});
    }
  }
  bool Write(int to) const { return ::write(to, bytes_.data(), used_) == static_cast<ssize_t>(used_); }

 private:
  std::array<char, 8192> bytes_;
  size_t used_ = 0;
};

constexpr std::string_view kWhat = "a file was cut short while it was in use",
                           kRemedy = "write a new file beside it and rename it, instead of writing over it";

void OnBusError(int, siginfo_t* info, void*) {
  const char* path = MappedPathAt(info->si_addr);
  if (path == nullptr) {
    std::signal(SIGBUS, SIG_DFL);  // comes again at once
    return;
  }
  // Threads that compute meet it at the same moment: the first one tells and ends the program, which ends the others.
  static std::atomic_flag told;
  while (told.test_and_set()) pause();
  Text line;
  line.Add("error: ");
  line.Add(kWhat);
  line.Add(": ");
  line.Add(path);
  line.Add("; ");
  line.Add(kRemedy);
  line.Add("\n");
  if (!line.Write(STDERR_FILENO)) _exit(1);
  if (g_out->json && !g_out->documented) {
    Text document;
    document.Add("{\"error\": {\"code\": \"invalid_data\", \"what\": \"");
    document.Add(kWhat);
    document.Add("\", \"where\": \"");
    document.AddJson(path);
    document.Add("\", \"found\": \"\", \"expected\": \"\", \"remedy\": \"");
    document.Add(kRemedy);
    document.Add("\"}}\n");
    if (!document.Write(STDOUT_FILENO)) _exit(1);
  }
  _exit(1);
}

}  // namespace

void TellFileFaults(const Output& out) {
  g_out = &out;
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace ridge::app
