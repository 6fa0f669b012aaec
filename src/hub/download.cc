#include "hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/quantity.h"
#include "hub/files.h"

namespace ridge::hub {
namespace {

constexpr int kMaxAttempts = 200;       // a server that cuts after each few bytes must end too
constexpr double kMaxRetryAfter = 120;  // seconds; longer is for the user to decide

Error ForStatus(const HttpResult& failed) {
  Error error = failed.error;
  switch (failed.head.status) {
    case 404:
    case 410:
      error.code = Code::kNotFound;
      error.what = "server has no such model or file";
      error.remedy = "check the name";
      break;
    case 401:
    case 403:
      error.code = Code::kPermissionDenied;
      error.what = "server gives no access to this model";
      error.remedy = "check the name; for a gated or private model accept its terms on the site and set HF_TOKEN";
      break;
    case 429:
      error.remedy = "the server limits the rate of requests: try again later (a token in HF_TOKEN raises the limit)";
      break;
    default: error.remedy = "try again later"; break;
  }
  return error;
}

bool WorthRetrying(long status) {
  return status == 408 || status == 429 || (status >= 500 && status != 501 && status != 505);
}

// One file on its way to disk: position, hash and checks of what arrives.
class PartialFile {
 public:
  PartialFile(const RemoteFile& remote, std::string path) : remote_(remote), path_(std::move(path)) {}

  // Opens the file and takes over what an earlier process left.
  Status Open(Meter& meter, uint64_t done_before_bytes, const std::function<bool()>& cancelled) {
    RIDGE_ASSIGN_OR_RETURN(file_, OpenFile(path_, O_RDWR | O_CREAT));
    const uint64_t size = FileSize(path_).value_or(0);
    if (!remote_.digest || (remote_.size_bytes && size > *remote_.size_bytes)) return Restart();
    std::vector<std::byte> buffer(1 << 20);
    while (at_bytes_ < size) {
      if (cancelled()) return Fail(Code::kCancelled, "download stopped");
      const ssize_t count = ::read(file_.get(), buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return FailErrno(errno, "cannot read file", path_);
      if (count == 0) break;
      if (Status good = Take(std::span(buffer).first(static_cast<size_t>(count))); !good) return Restart();
      meter.SetDone(done_before_bytes + at_bytes_);
    }
    resumed_ = at_bytes_ > 0;
    return {};
  }

  Status Restart() {
    if (::ftruncate(file_.get(), 0) != 0 || ::lseek(file_.get(), 0, SEEK_SET) != 0)
      return FailErrno(errno, "cannot empty file", path_);
    hash_ = Sha256();
    at_bytes_ = 0;
    resumed_ = false;
    return {};
  }

  // The head of a response and its first bytes, then more bytes.
  Status Begin(const HttpHead& head) {
    if (head.status == 200 && at_bytes_ > 0) RIDGE_RETURN_IF_ERROR(Restart());  // the server does not know ranges
    std::optional<uint64_t> total = head.content_length_bytes;
    if (head.status == 206) {
      if (head.range_start_bytes != at_bytes_) {
        return Fail(Code::kUnavailable, "server sent another part of the file than was asked for")
            .Where(remote_.label)
            .Expected(fmt::format("bytes from {}", at_bytes_));
      }
      total = head.range_total_bytes;
    }
    if (total && remote_.size_bytes && *total != *remote_.size_bytes) return WrongSize(*total);
    return {};
  }

  Status Write(std::span<const std::byte> bytes) {
    if (remote_.size_bytes && bytes.size() > *remote_.size_bytes - at_bytes_)
      return WrongSize(at_bytes_ + bytes.size());
    RIDGE_RETURN_IF_ERROR(Take(bytes));
    return WriteAll(file_, bytes.data(), bytes.size(), path_);
  }

  // Everything is there: does it match?
  Result<StoredFile> Finish() {
    RIDGE_RETURN_IF_ERROR(SyncFile(file_, path_));
    const Digest found = hash_.Finish();
    if (remote_.digest && found != *remote_.digest) {
      return Fail(Code::kInvalidData, "download has the wrong SHA-256")
          .Where(remote_.label)
          .Found(found.Text())
          .Expected(remote_.digest->Text())
          .Remedy("what came was deleted; try again, and suspect the server or the network");
    }
    return StoredFile{found, at_bytes_, remote_.label};
  }

  bool Complete() const { return remote_.size_bytes && at_bytes_ == *remote_.size_bytes; }
  bool resumed() const { return resumed_; }
  uint64_t at_bytes() const { return at_bytes_; }
  bool can_resume() const { return remote_.digest.has_value(); }

 private:
  // Counts and hashes; refuses a file that is no GGUF within its first bytes (a login page, an archive).
  Status Take(std::span<const std::byte> bytes) {
    static constexpr char kMagic[] = "GGUF";
    for (size_t i = 0; i < bytes.size() && at_bytes_ + i < 4; ++i) {
      if (static_cast<char>(bytes[i]) == kMagic[at_bytes_ + i]) continue;
      return Fail(Code::kInvalidData, "what the server sends is not a GGUF file")
          .Where(remote_.label)
          .Found(fmt::format("byte 0x{:02x} at offset {}", static_cast<unsigned>(bytes[i]), at_bytes_ + i))
          .Expected("\"GGUF\"");
    }
    hash_.Update(bytes);
    at_bytes_ += bytes.size();
    return {};
  }

  Fail WrongSize(uint64_t found) const {
    return Fail(Code::kInvalidData, "server sends a file of the wrong size")
        .Where(remote_.label)
        .Found(Count(found, "byte"))
        .Expected(Count(*remote_.size_bytes, "byte"))
        .Remedy("try again, and suspect the server or a proxy");
  }

  const RemoteFile& remote_;
  std::string path_;
  Descriptor file_;
  Sha256 hash_;
  uint64_t at_bytes_ = 0;
  bool resumed_ = false;
};

}  // namespace

Downloader::Downloader(const PullOptions& options, Meter& meter)
    : options_(options),
      meter_(meter),
      http_({options.network.connect_seconds, options.network.stall_seconds, options.cancel,
             [&meter] { meter.Tick(); }}) {}

Status Downloader::Sleep(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (options_.cancel != nullptr && options_.cancel->load())
      return Fail(Code::kCancelled, "download stopped")
          .Remedy("what came is kept: the same command goes on from there");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return {};
}

Status Downloader::WaitOrFail(const HttpResult& failed, Retry& retry) {
  if (failed.verdict == Verdict::kStatus) reached_ = true;
  if (failed.verdict == Verdict::kFatal) return std::unexpected(failed.error);
  if (failed.verdict == Verdict::kStatus && !WorthRetrying(failed.head.status))
    return std::unexpected(ForStatus(failed));
  if (failed.verdict == Verdict::kUnreachable && !reached_) return std::unexpected(failed.error);
  const Error error = failed.verdict == Verdict::kStatus ? ForStatus(failed) : failed.error;
  ++retry.failures;
  // A host that takes connections and has not answered once gets one more chance, not all of them.
  const int chances = reached_ ? options_.network.retries : 1;
  if (retry.failures > chances || ++retry.attempts >= kMaxAttempts) return std::unexpected(error);
  const double backoff = 0.5 * static_cast<double>(1 << std::min(retry.failures - 1, 6));
  const double asked = failed.head.retry_after_seconds.value_or(0);
  if (asked > kMaxRetryAfter) {
    Error late = error;
    late.found += fmt::format(", which asks to wait {:.0f} s", asked);
    return std::unexpected(late);
  }
  const double wait = std::max(backoff, asked);
  if (options_.notice)
    options_.notice(fmt::format("{}; next attempt in {:.1f} s",
                                Error{error.code, error.what, error.where, error.found, "", ""}.Message(), wait));
  return Sleep(wait);
}

Result<std::string> Downloader::GetText(const HttpRequest& request, size_t max_bytes) {
  Retry retry;
  while (true) {
    std::string text;
    const HttpResult got = http_.Get(request, [&](const HttpHead&, std::span<const std::byte> bytes) -> Status {
      if (bytes.size() > max_bytes - text.size()) {
        return Fail(Code::kOutOfRange, "server's answer is too long")
            .Where(request.url)
            .Expected(fmt::format("at most {}", Count(max_bytes, "byte")));
      }
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return {};
    });
    if (got.verdict == Verdict::kDone) {
      reached_ = true;
      return text;
    }
    RIDGE_RETURN_IF_ERROR(WaitOrFail(got, retry));
  }
}

Result<StoredFile> Downloader::GetFile(const RemoteFile& remote, const std::string& partial_path,
                                       uint64_t done_before_bytes) {
  const auto cancelled = [this] { return options_.cancel != nullptr && options_.cancel->load(); };
  PartialFile partial(remote, partial_path);
  RIDGE_RETURN_IF_ERROR(partial.Open(meter_, done_before_bytes, cancelled));
  if (partial.resumed() && options_.notice)
    options_.notice(fmt::format("{}: going on after {}", remote.label, Count(partial.at_bytes(), "byte")));
  const auto give_up = [&](Error error) -> Result<StoredFile> {
    if (error.code == Code::kInvalidData || partial.at_bytes() == 0) ::unlink(partial_path.c_str());
    return std::unexpected(std::move(error));
  };
  if (remote.size_bytes) {
    const std::string folder = partial_path.substr(0, partial_path.rfind('/'));
    Status space = NeedSpace(folder, *remote.size_bytes - partial.at_bytes());
    if (!space) return give_up(std::move(space).error());
  }
  Retry retry;
  bool started_over = false;
  while (true) {
    const bool resuming = partial.resumed() || partial.at_bytes() > 0;
    if (!partial.Complete()) {
      bool begun = false;
      const HttpResult got = http_.Get({remote.url, "", remote.bearer, partial.at_bytes()},
                                       [&](const HttpHead& head, std::span<const std::byte> bytes) -> Status {
                                         if (!begun) RIDGE_RETURN_IF_ERROR(partial.Begin(head));
                                         begun = true;
                                         retry.failures = 0;
                                         reached_ = true;
                                         RIDGE_RETURN_IF_ERROR(partial.Write(bytes));
                                         meter_.SetDone(done_before_bytes + partial.at_bytes());
                                         return {};
                                       });
      const bool ended_early = got.verdict == Verdict::kDone && remote.size_bytes && !partial.Complete();
      if (got.verdict != Verdict::kDone || ended_early) {
        HttpResult failed = got;
        if (ended_early) {
          failed.verdict = Verdict::kInterrupted;
          failed.error = Fail(Code::kUnavailable, "server ended the file early")
                             .Where(remote.label)
                             .Found(Count(partial.at_bytes(), "byte"))
                             .Expected(Count(*remote.size_bytes, "byte"))
                             .Remedy("try again: what came is kept")
                             .Take();
        }
        if (got.verdict == Verdict::kStatus && got.head.status == 416 && resuming && !started_over) {
          started_over = true;  // the file on the server is shorter than what we have
          RIDGE_RETURN_IF_ERROR(partial.Restart());
          continue;
        }
        if (Status wait = WaitOrFail(failed, retry); !wait) return give_up(std::move(wait).error());
        if (!partial.can_resume()) RIDGE_RETURN_IF_ERROR(partial.Restart());
        continue;
      }
    }
    Result<StoredFile> finished = partial.Finish();
    if (finished) return finished;
    if (finished.error().code == Code::kInvalidData && partial.resumed() && !started_over) {
      started_over = true;  // what an earlier process left may be what is wrong
      if (options_.notice) options_.notice(fmt::format("{}: the kept part is damaged; starting over", remote.label));
      RIDGE_RETURN_IF_ERROR(partial.Restart());
      continue;
    }
    return give_up(std::move(finished).error());
  }
}

}  // namespace ridge::hub
