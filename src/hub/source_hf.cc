#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/quantity.h"
#include "hub/json_fields.h"
#include "hub/source.h"

namespace ridge::hub {
namespace {

constexpr size_t kMaxAnswerBytes = 32 << 20;
constexpr size_t kMaxShards = 1000;

// Where a reference names no quantization: the usual balance of size and quality first.
constexpr std::string_view kPreferred[] = {"Q4_K_M", "Q4_K_S", "Q5_K_M", "Q4_0", "Q4_1", "Q8_0", "Q6_K", "F16", "BF16"};

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

struct Shard {
  size_t index = 0;  // from 1
  size_t count = 0;
};

// "-00002-of-00005.gguf" at the end of a name.
std::optional<Shard> ParseShard(std::string_view path) {
  constexpr size_t kLength = 20;
  if (path.size() <= kLength) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kLength);
  const auto number = [&](size_t from) -> size_t {
    size_t value = 0;
    for (size_t i = from; i < from + 5; ++i) {
      if (tail[i] < '0' || tail[i] > '9') return 0;
      value = value * 10 + static_cast<size_t>(tail[i] - '0');
    }
    return value;
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf") return std::nullopt;
  const Shard shard{number(1), number(10)};
  if (shard.index == 0 || shard.count == 0 || shard.index > shard.count || shard.count > kMaxShards)
    return std::nullopt;
  return shard;
}

// The name without what makes it one of several shards, and without ".gguf".
std::string Stem(std::string_view path) {
  return std::string(path.substr(0, path.size() - (ParseShard(path) ? 20 : 5)));
}

// True when `quant` stands in `text` between characters that are no part of a type's name: Q4_K is not in Q4_K_M, Q4_0
// not in IQ4_0.
bool HasQuant(std::string_view text, std::string_view quant) {
  const std::string where = Lower(text);
  const std::string what = Lower(quant);
  const auto part_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = where.find(what); at != std::string::npos; at = where.find(what, at + 1)) {
    const bool left = at == 0 || !part_of_name(where[at - 1]);
    const bool right = at + what.size() == where.size() || !part_of_name(where[at + what.size()]);
    if (left && right) return true;
  }
  return false;
}

using Groups = std::map<std::string, std::vector<ListedFile>>;  // stem -> its file or shards

std::string Choices(const Groups& groups) {
  std::string out;
  size_t shown = 0;
  for (const auto& [stem, files] : groups) {
    if (++shown > 20) return out + fmt::format(" and {} more", groups.size() - 20);
    out += (out.empty() ? "" : " ") + std::string(BaseName(files.front().path));
  }
  return out.empty() ? "no GGUF file" : out;
}

}  // namespace

std::string CleanLabel(std::string text) {
  std::erase_if(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  return text;
}

Result<std::vector<ListedFile>> ChooseFiles(const Reference& reference, std::vector<ListedFile> listing) {
  Groups groups;
  for (ListedFile& file : listing) {
    if (!IsRepositoryPath(file.path)) continue;  // also what tries to climb out
    const std::string name = Lower(BaseName(file.path));
    const bool helper = name.find("mmproj") != std::string::npos || name.find("imatrix") != std::string::npos;
    if (helper && reference.file != file.path) continue;
    groups[Stem(file.path)].push_back(std::move(file));
  }
  const std::string where = reference.Canonical();
  std::vector<std::vector<ListedFile>*> chosen;
  const auto choose = [&](auto&& wanted) {
    chosen.clear();
    for (auto& [stem, files] : groups) {
      if (wanted(stem, files)) chosen.push_back(&files);
    }
  };
  if (!reference.file.empty()) {
    choose([&](const std::string&, const std::vector<ListedFile>& files) {
      return std::any_of(files.begin(), files.end(),
                         [&](const ListedFile& file) { return file.path == reference.file; });
    });
  } else if (!reference.quant.empty()) {
    choose([&](const std::string& stem, const auto&) { return HasQuant(BaseName(stem), reference.quant); });
    if (chosen.empty()) choose([&](const std::string& stem, const auto&) { return HasQuant(stem, reference.quant); });
  } else if (groups.size() == 1) {
    choose([](const std::string&, const auto&) { return true; });
  } else {
    for (std::string_view quant : kPreferred) {
      choose([&](const std::string& stem, const auto&) { return HasQuant(BaseName(stem), quant); });
      if (!chosen.empty()) break;
    }
  }
  if (chosen.empty()) {
    return Fail(Code::kNotFound, "repository has no such GGUF file")
        .Where(where)
        .Found(Choices(groups))
        .Remedy("name a quantization (hf:OWNER/REPO:QUANT) or a file (hf:OWNER/REPO/FILE.gguf) that it has");
  }
  if (chosen.size() > 1) {
    Groups several;
    for (const auto* files : chosen) several[files->front().path] = *files;
    return Fail(Code::kInvalidArgument, "several files of the repository match")
        .Where(where)
        .Found(Choices(several))
        .Remedy("name one: hf:OWNER/REPO/FILE.gguf");
  }
  std::vector<ListedFile> files = std::move(*chosen.front());
  std::sort(files.begin(), files.end(), [](const ListedFile& a, const ListedFile& b) { return a.path < b.path; });
  for (size_t i = 0; i < files.size(); ++i) {
    const std::optional<Shard> shard = ParseShard(files[i].path);
    if (files.size() == 1 && !shard) break;
    if (!shard || shard->count != files.size() || shard->index != i + 1) {
      return Fail(Code::kInvalidData, "repository lacks shards of a split model")
          .Where(where)
          .Found(fmt::format("{}, number {} is {}", Count(files.size(), "file"), i + 1, BaseName(files[i].path)));
    }
  }
  return files;
}

Result<std::vector<RemoteFile>> AskHuggingFace(const Reference& reference, const Network& network,
                                               Downloader& downloader) {
  std::string endpoint = network.hf_endpoint;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (std::any_of(network.hf_token.begin(), network.hf_token.end(),
                  [](unsigned char c) { return c <= 0x20 || c >= 0x7f; })) {
    return Fail(Code::kInvalidArgument, "HF_TOKEN holds a character that no token has");
  }
  const std::string repository = UrlEncode(reference.owner) + "/" + UrlEncode(reference.repo);
  const std::string api = endpoint + "/api/models/" + repository + "?blobs=true";
  RIDGE_ASSIGN_OR_RETURN(const std::string text,
                         downloader.GetText({api, "application/json", network.hf_token}, kMaxAnswerBytes));
  const Json root = ParseJson(text);
  const Json* siblings = Field(root, "siblings");
  if (siblings == nullptr || !siblings->is_array()) {
    return Fail(Code::kInvalidData, "server's answer is not a model's description")
        .Where(api)
        .Expected("a JSON object with \"siblings\"");
  }
  std::vector<ListedFile> listing;
  for (const Json& item : *siblings) {
    ListedFile file;
    file.path = TextField(item, "rfilename");
    if (!file.path.ends_with(".gguf")) continue;
    file.size_bytes = SizeField(item, "size");
    if (const Json* lfs = Field(item, "lfs"); lfs != nullptr && lfs->is_object()) {
      if (const std::optional<uint64_t> size = SizeField(*lfs, "size")) file.size_bytes = size;
      std::string digest = TextField(*lfs, "sha256");
      if (digest.empty()) digest = TextField(*lfs, "oid");
      if (!digest.empty()) {
        RIDGE_ASSIGN_OR_RETURN(file.digest, ParseDigest(digest));
      }
    }
    listing.push_back(std::move(file));
  }
  RIDGE_ASSIGN_OR_RETURN(const std::vector<ListedFile> chosen, ChooseFiles(reference, std::move(listing)));

  // The commit that the listing spoke of: so that the digest and the bytes belong together while someone pushes.
  std::string revision = TextField(root, "sha");
  if (revision.size() != 40 ||
      !std::all_of(revision.begin(), revision.end(), [](unsigned char c) { return std::isxdigit(c); }))
    revision = "main";
  std::vector<RemoteFile> files;
  for (const ListedFile& file : chosen) {
    std::string path;
    for (std::string_view rest = file.path; !rest.empty();) {
      const size_t slash = rest.find('/');
      path += '/';
      path += UrlEncode(rest.substr(0, slash));
      rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
    }
    files.push_back({endpoint + "/" + repository + "/resolve/" + revision + path, network.hf_token,
                     CleanLabel(std::string(BaseName(file.path))), file.digest, file.size_bytes});
  }
  return files;
}

}  // namespace ridge::hub
