#include "lab/evidence/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/atomic_file.h"
#include "text/utf8.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 100000;
constexpr int kDeepest = 16;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Fail Cannot(const std::string& path, int error) {
  if (error == ENOENT) return Fail(Code::kNotFound, "cannot open the file").Where(path).Remedy("check the path");
  if (error == ELOOP || error == ENOTDIR)
    return Fail(Code::kInvalidData, "a link or no folder stands on the way")
        .Where(path)
        .Expected("regular files in folders of the evidence itself");
  if (error == EACCES || error == EPERM)
    return Fail(Code::kPermissionDenied, "cannot open the file").Where(path).Found(std::strerror(error));
  return Fail(Code::kUnavailable, "cannot open the file").Where(path).Found(std::strerror(error));
}

// Of the file, reached without following a link below `folder`.
Result<Descriptor> OpenBeneath(const std::string& folder, const std::string& name) {
  const std::string shown = folder + "/" + QuoteName(name);
  Descriptor at(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (at.get() < 0) return Cannot(folder, errno);
  size_t begin = 0;
  while (true) {
    const size_t slash = name.find('/', begin);
    const std::string part = name.substr(begin, slash == std::string::npos ? slash : slash - begin);
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string::npos)
      return Fail(Code::kInvalidData, "a name that leads out of the folder, or nowhere").Where(shown);
    const bool last = slash == std::string::npos;
    // A pipe must not make us wait for its other end.
    const int flags = O_CLOEXEC | O_NOFOLLOW | (last ? O_RDONLY | O_NONBLOCK | O_NOCTTY : O_PATH | O_DIRECTORY);
    Descriptor next(openat(at.get(), part.c_str(), flags));
    if (next.get() < 0) return Cannot(shown, errno);
    at = std::move(next);
    if (last) return at;
    begin = slash + 1;
  }
}

Status List(const std::string& folder, const std::string& prefix, int depth, Listing& out) {
  if (depth > kDeepest) return Fail(Code::kOutOfRange, "folders in folders, too deep").Where(folder);
  std::error_code error;
  const size_t before = out.files.size() + out.others.size() + out.empty.size();
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (out.files.size() + out.others.size() + out.empty.size() >= kMostEntries)
      return Fail(Code::kOutOfRange, "too many files").Where(folder).Expected(fmt::format("{} at most", kMostEntries));
    const std::string name = prefix + it->path().filename().string();
    const fs::file_status status = it->symlink_status(error);
    if (error) break;
    if (fs::is_directory(status))
      RIDGE_RETURN_IF_ERROR(List(it->path().string(), name + "/", depth + 1, out));
    else
      (fs::is_regular_file(status) ? out.files : out.others).push_back(name);
  }
  if (error) return Fail(Code::kUnavailable, "cannot list the folder").Where(folder).Found(error.message());
  if (depth > 0 && out.files.size() + out.others.size() + out.empty.size() == before)
    out.empty.push_back(prefix.substr(0, prefix.size() - 1));
  return {};
}

}  // namespace

Result<std::string> ReadBeneath(const std::string& folder, const std::string& name, uint64_t most_bytes) {
  const std::string shown = folder + "/" + QuoteName(name);
  RIDGE_ASSIGN_OR_RETURN(const Descriptor file, OpenBeneath(folder, name));
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return Cannot(shown, errno);
  if (!S_ISREG(info.st_mode)) return Fail(Code::kInvalidData, "no regular file").Where(shown);
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  if (size > most_bytes)
    return Fail(Code::kOutOfRange, "the file is too long")
        .Where(shown)
        .Found(fmt::format("{} bytes", size))
        .Expected(fmt::format("{} at most", most_bytes));
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = read(file.get(), text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Cannot(shown, errno);
    if (n == 0) return Fail(Code::kInvalidData, "the file became shorter while it was read").Where(shown);
    done += static_cast<size_t>(n);
  }
  return text;
}

bool ExistsBeneath(const std::string& folder, const std::string& name) {
  const auto file = OpenBeneath(folder, name);
  struct stat info{};
  return file && fstat(file->get(), &info) == 0 && S_ISREG(info.st_mode);
}

Status WriteWhole(const std::string& path, std::string_view text) {
  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RIDGE_RETURN_IF_ERROR(file.Write(text));
  return file.Commit();
}

Result<Listing> ListBeneath(const std::string& folder) {
  Listing out;
  RIDGE_RETURN_IF_ERROR(List(folder, "", 0, out));
  std::ranges::sort(out.files);
  std::ranges::sort(out.others);
  std::ranges::sort(out.empty);
  return out;
}

std::string HashText(std::string_view text) { return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())); }

std::string QuoteName(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    const text::CodePoint point = text::DecodeUtf8(name, i);
    const size_t n = point.valid ? point.length_bytes : 0;
    const unsigned char c = static_cast<unsigned char>(name[i]);
    if (n == 0 || c <= 0x20 || c == 0x7f || c == '%') {
      out += fmt::format("%{:02X}", c);
      i++;
    } else {
      out += name.substr(i, n);
      i += n;
    }
  }
  return out;
}

std::string UnquoteName(std::string_view quoted) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  std::string out;
  for (size_t i = 0; i < quoted.size(); i++) {
    if (quoted[i] == '%' && i + 2 < quoted.size() && digit(quoted[i + 1]) >= 0 && digit(quoted[i + 2]) >= 0) {
      out += static_cast<char>(digit(quoted[i + 1]) * 16 + digit(quoted[i + 2]));
      i += 2;
    } else {
      out += quoted[i];
    }
  }
  return out;
}

}  // namespace ridge::lab
