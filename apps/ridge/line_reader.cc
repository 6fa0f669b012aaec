#include "line_reader.h"

#include <unistd.h>

#include <cerrno>

namespace ridge::app {

LineReader::Got LineReader::Next(std::string& line) {
  for (;;) {
    if (const size_t at = buffer_.find('\n'); at != std::string::npos) {
      line = buffer_.substr(0, at);
      buffer_.erase(0, at + 1);
      if (line.ends_with('\r')) line.pop_back();
      return Got::kLine;
    }
    if (end_) {
      if (buffer_.empty()) return Got::kEnd;
      line.swap(buffer_);  // a last line without a line break
      buffer_.clear();
      return Got::kLine;
    }
    char block[4096];
    const ssize_t n = read(STDIN_FILENO, block, sizeof(block));
    if (n < 0 && errno == EINTR) return Got::kInterrupted;
    if (n <= 0) end_ = true;
    if (n > 0) buffer_.append(block, static_cast<size_t>(n));
  }
}

}  // namespace ridge::app
