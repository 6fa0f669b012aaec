// Result<T> and Error: how every fallible function of Ridge reports failure. No exceptions cross a module boundary.
//
//   Result<File> Open(...) { if (fd < 0) return Fail(Code::kNotFound, "cannot open model").Where(path).Remedy("check the path"); ... }
//   RIDGE_ASSIGN_OR_RETURN(File file, Open(path));
//
// Guarantees: an Error says what failed, where, what was found, what was expected and the remedy; empty parts are not printed.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace ridge {

// The canonical dozen. One table (StatusOf) maps them to exit statuses; the server maps them to HTTP.
enum class Code {
  kUsage,            // wrong command line
  kInvalidArgument,  // a value that can never work
  kInvalidData,      // a file or stream that breaks its format
  kNotFound,
  kAlreadyExists,
  kPermissionDenied,
  kUnsupported,        // valid, but not implemented by this build
  kOutOfRange,         // too long, too large for the given limits
  kResourceExhausted,  // memory, disk, queue
  kUnavailable,        // network, remote service; may work later
  kCancelled,
  kInternal,  // a fault of ours
};

std::string_view Name(Code code);  // "invalid_data"
int ExitStatus(Code code);         // 2 for kUsage, 1 for all else

struct Error {
  Code code = Code::kInternal;
  std::string what;
  std::string where;  // file, key, tensor, field, byte offset
  std::string found;
  std::string expected;
  std::string remedy;

  // One line without a line break: "what: where: found X, expected Y; remedy".
  std::string Message() const;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

// Builder that converts to any Result<T>.
class [[nodiscard]] Fail {
 public:
  Fail(Code code, std::string what) {
    error_.code = code;
    error_.what = std::move(what);
  }
  Fail&& Where(std::string s) && {
    error_.where = std::move(s);
    return std::move(*this);
  }
  Fail&& Found(std::string s) && {
    error_.found = std::move(s);
    return std::move(*this);
  }
  Fail&& Expected(std::string s) && {
    error_.expected = std::move(s);
    return std::move(*this);
  }
  Fail&& Remedy(std::string s) && {
    error_.remedy = std::move(s);
    return std::move(*this);
  }
  template <class T>
  operator std::expected<T, Error>() && {
    return std::unexpected(std::move(error_));
  }
  Error Take() && { return std::move(error_); }

 private:
  Error error_;
};

// Ends the process for a broken invariant of our own; never for input.
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace ridge

#define RIDGE_CHECK(condition) ((condition) ? (void)0 : ::ridge::CheckFailed(#condition, __FILE__, __LINE__))

#define RIDGE_CONCAT_2(a, b) a##b
#define RIDGE_CONCAT(a, b) RIDGE_CONCAT_2(a, b)
#define RIDGE_RETURN_IF_ERROR(expr)                                                                         \
  do {                                                                                                      \
    if (auto ridge_status = (expr); !ridge_status) return std::unexpected(std::move(ridge_status).error()); \
  } while (0)
#define RIDGE_ASSIGN_OR_RETURN(decl, expr) RIDGE_ASSIGN_OR_RETURN_2(RIDGE_CONCAT(ridge_result_, __LINE__), decl, expr)
#define RIDGE_ASSIGN_OR_RETURN_2(tmp, decl, expr)           \
  auto tmp = (expr);                                        \
  if (!tmp) return std::unexpected(std::move(tmp).error()); \
  decl = std::move(*tmp)
