// The whole of a file that someone named, within a limit.
//
//   RIDGE_ASSIGN_OR_RETURN(std::string text, ReadFile(path, {.what = "the log", .most_bytes = 1 << 30, .pipes = true}));
//
// Guarantees: no more than the limit is read, whatever stands there; a folder, and without `pipes` a pipe, socket or device, is an error that says
// so and is never waited for.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ridge {

struct ReadOptions {
  std::string what = "the file";             // in errors: "cannot open the file"
  uint64_t most_bytes = uint64_t{64} << 20;  // more: kOutOfRange
  bool pipes = false;  // what another program writes may be read too, as from <(command): pipes and character devices
  std::string remedy = "check the path";  // where there is no such file
};

// Errors: kNotFound, kPermissionDenied, kInvalidArgument (a folder, a device), kOutOfRange, kUnavailable.
Result<std::string> ReadFile(const std::string& path, const ReadOptions& options);
// From an open descriptor, which stays open: stdin.
Result<std::string> ReadDescriptor(int fd, const std::string& shown, const ReadOptions& options);

// What is left of an open stream; up to where a read fails, as of a file in /proc whose process has gone (iterators throw there).
std::string ReadRest(std::istream& in);

// The first line of a small file, as those in /sys are, without the blanks and NULs at its end; empty where it cannot be read.
std::string FirstLine(const std::string& path);

// Of an output that is about to replace what is there: an error (kAlreadyExists) where that is a file with bytes that does not begin with one of
// `begins`, so none that Ridge wrote there before.
Status CheckReplaces(const std::string& path, const std::string& what, std::initializer_list<std::string_view> begins);

}  // namespace ridge
