#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <istream>

#include "base/quantity.h"

namespace ridge {
namespace {

std::string Kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode)) return "a block device";
  return "a device";
}

std::string Size(uint64_t bytes) {
  return bytes % (1 << 20) == 0 ? std::to_string(bytes >> 20) + " MiB" : Count(bytes, "byte");
}

Fail Cannot(const char* verb, const std::string& path, const ReadOptions& options, int reason) {
  const Code code = reason == ENOENT || reason == ENOTDIR ? Code::kNotFound
                    : reason == EACCES || reason == EPERM ? Code::kPermissionDenied
                                                          : Code::kUnavailable;
  return Fail(code, std::string("cannot ") + verb + " " + options.what)
      .Where(path)
      .Found(std::strerror(reason))
      .Remedy(code == Code::kNotFound ? options.remedy : "");
}

}  // namespace

Result<std::string> ReadDescriptor(int fd, const std::string& shown, const ReadOptions& options) {
  const auto too_long = [&](std::string found) {
    return Fail(Code::kOutOfRange, options.what + " is too long")
        .Where(shown)
        .Found(std::move(found))
        .Expected(Size(options.most_bytes) + " at most");
  };
  struct stat info{};
  if (::fstat(fd, &info) != 0) return Cannot("read", shown, options, errno);
  const bool regular = S_ISREG(info.st_mode);
  if (!regular && !(options.pipes && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode) || S_ISSOCK(info.st_mode)))) {
    return Fail(Code::kInvalidArgument, "cannot read " + options.what)
        .Where(shown)
        .Found(Kind(info.st_mode))
        .Expected(options.pipes ? "a file or a pipe" : "a file");
  }
  if (regular && static_cast<uint64_t>(info.st_size) > options.most_bytes) return too_long(Count(info.st_size, "byte"));
  std::string text;
  // A byte beyond the limit tells that there is more. Files of /proc say that they hold none.
  while (text.size() <= options.most_bytes) {
    const size_t before = text.size();
    const uint64_t guess = regular && before == 0 ? static_cast<uint64_t>(info.st_size) + 1 : 0;
    const size_t room = std::min<uint64_t>(std::max<uint64_t>(guess, 1 << 16), options.most_bytes + 1 - before);
    text.resize(before + room);
    const ssize_t n = ::read(fd, text.data() + before, room);
    text.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Cannot("read", shown, options, errno);
    if (n == 0) return text;
  }
  return too_long("more");
}

Result<std::string> ReadFile(const std::string& path, const ReadOptions& options) {
  struct stat info{};
  // Looked at before it is opened: to open a device may do something. The descriptor is looked at again.
  if (::stat(path.c_str(), &info) != 0) return Cannot("open", path, options, errno);
  const bool waits = options.pipes && S_ISFIFO(info.st_mode);  // for the program at its other end
  if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode) && !waits && !(options.pipes && S_ISCHR(info.st_mode))) {
    return Fail(Code::kInvalidArgument, "cannot read " + options.what)
        .Where(path)
        .Found(Kind(info.st_mode))
        .Expected(options.pipes ? "a file or a pipe" : "a file");
  }
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | (waits || S_ISCHR(info.st_mode) ? 0 : O_NONBLOCK));
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return Cannot("open", path, options, errno);
  auto text = ReadDescriptor(fd, path, options);
  ::close(fd);
  return text;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == '\0' || line.back() == ' ' || line.back() == '\r')) line.pop_back();
  return line;
}

std::string ReadRest(std::istream& in) {
  std::string text;
  for (char part[4096]; in.read(part, sizeof part) || in.gcount() > 0;)
    text.append(part, static_cast<size_t>(in.gcount()));
  return text;
}

Status CheckReplaces(const std::string& path, const std::string& what, std::initializer_list<std::string_view> begins) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return {};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  std::string start(256, '\0');
  const ssize_t n = fd < 0 ? -1 : ::read(fd, start.data(), start.size());
  if (fd >= 0) ::close(fd);
  start.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (std::ranges::any_of(begins, [&](std::string_view begin) { return start.starts_with(begin); })) return {};
  return Fail(Code::kAlreadyExists, "the output would replace a file that is no " + what)
      .Where(path)
      .Remedy("give another name, or take the file away first");
}

}  // namespace ridge
