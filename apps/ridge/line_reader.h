// Lines of standard input, one at a time, as a person or a pipe sends them.
//
//   LineReader reader;   std::string line;
//   while (reader.Next(line) == LineReader::Got::kLine) ...
//
// Guarantees: a signal ends the wait (kInterrupted), which the standard streams do not do. No byte past the line is lost.
#pragma once

#include <string>

namespace ridge::app {

class LineReader {
 public:
  enum class Got { kLine, kEnd, kInterrupted };
  Got Next(std::string& line);  // without its line break

 private:
  std::string buffer_;
  bool end_ = false;
};

}  // namespace ridge::app
