// Fetches texts and files over HTTP with retries, resume and digest check.
//
//   Downloader downloader(options, meter);
//   RIDGE_ASSIGN_OR_RETURN(std::string text, downloader.GetText({.url = url}, 16 << 20));
//   RIDGE_ASSIGN_OR_RETURN(StoredFile file, downloader.GetFile(remote, partial_path));
//
// Guarantees: a file that GetFile returns has the size and SHA-256 that the source published, begins with "GGUF", and
// is synced to disk. Rate limits (429, Retry-After), server errors and broken connections are retried with growing
// waits, a bounded number of times; a host that was never reached fails at once. An interrupted file stays at
// partial_path and is resumed; one with a wrong digest is deleted.
#pragma once

#include <optional>
#include <string>

#include "hub/http.h"
#include "hub/hub.h"
#include "hub/progress.h"

namespace ridge::hub {

// What a source says about a file before a byte of it is fetched.
struct RemoteFile {
  std::string url;
  std::string bearer;
  std::string label;
  std::optional<Digest> digest;  // nullopt: the source publishes none; then nothing is resumed across processes
  std::optional<uint64_t> size_bytes;
};

class Downloader {
 public:
  Downloader(const PullOptions& options, Meter& meter);

  // Errors: kUnavailable, kNotFound (404), kPermissionDenied (401, 403), kOutOfRange (longer than max_bytes),
  // kCancelled.
  Result<std::string> GetText(const HttpRequest& request, size_t max_bytes);
  // `done_before_bytes`: of other files of the same model, for the progress. The caller holds the lock of partial_path.
  Result<StoredFile> GetFile(const RemoteFile& remote, const std::string& partial_path, uint64_t done_before_bytes);

 private:
  struct Retry {
    int failures = 0;  // since the last byte that came
    int attempts = 0;
  };
  // Sleeps before the next attempt, or returns the error that ends it.
  Status WaitOrFail(const HttpResult& failed, Retry& retry);
  Status Sleep(double seconds);

  const PullOptions& options_;
  Meter& meter_;
  HttpClient http_;
  bool reached_ = false;  // some server of this pull has answered: a lost connection is worth waiting for
};

}  // namespace ridge::hub
