#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace ridge {

std::string_view Name(Code code) {
  switch (code) {
    case Code::kUsage: return "usage";
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kInvalidData: return "invalid_data";
    case Code::kNotFound: return "not_found";
    case Code::kAlreadyExists: return "already_exists";
    case Code::kPermissionDenied: return "permission_denied";
    case Code::kUnsupported: return "unsupported";
    case Code::kOutOfRange: return "out_of_range";
    case Code::kResourceExhausted: return "resource_exhausted";
    case Code::kUnavailable: return "unavailable";
    case Code::kCancelled: return "cancelled";
    case Code::kInternal: return "internal";
  }
  return "internal";
}

int ExitStatus(Code code) { return code == Code::kUsage ? 2 : 1; }

std::string Error::Message() const {
  std::string out = what;
  if (!where.empty()) out += ": " + where;
  if (!found.empty()) out += ": found " + found;
  if (!expected.empty()) out += (found.empty() ? ": expected " : ", expected ") + expected;
  if (!remedy.empty()) out += "; " + remedy;
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';  // names in a file may hold control characters
  }
  return out;
}

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "ridge: internal fault: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace ridge
