#include "gguf/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "base/quantity.h"

namespace ridge::gguf {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr size_t kDigits = 5;

// Removes a number of exactly five digits, as the naming has it, from the end of `text`.
std::optional<uint32_t> TakeNumber(std::string_view& text) {
  if (text.size() < kDigits) return std::nullopt;
  const std::string_view digits = text.substr(text.size() - kDigits);
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + kDigits, number);
  if (error != std::errc() || end != digits.data() + kDigits) return std::nullopt;
  text.remove_suffix(kDigits);
  return number;
}

bool TakeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

}  // namespace

std::optional<SplitName> ParseSplitName(std::string_view path) {
  if (!TakeSuffix(path, kSuffix)) return std::nullopt;
  const std::optional<uint32_t> count = TakeNumber(path);
  if (!count || !TakeSuffix(path, "-of-")) return std::nullopt;
  const std::optional<uint32_t> number = TakeNumber(path);
  if (!number || !TakeSuffix(path, "-") || *number < 1 || *number > *count) return std::nullopt;
  return SplitName{std::string(path), *number, *count};
}

std::string ShardPath(std::string_view prefix, uint32_t number, uint32_t count) {
  return fmt::format("{}-{:05}-of-{:05}{}", prefix, number, count, kSuffix);
}

Result<std::string> FindModelInFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::map<std::string, std::string> models;  // model -> its first shard
  fs::directory_iterator at(folder, error);
  for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    std::error_code unreadable;
    if (!path.ends_with(kSuffix) || !at->is_regular_file(unreadable)) continue;
    const std::optional<SplitName> split = ParseSplitName(path);
    const std::string model = split ? fmt::format("{} ({})", split->prefix, Count(split->count, "shard")) : path;
    std::string& first = models[model];
    if (first.empty() || path < first) first = path;
  }
  if (error) {
    return Fail(Code::kPermissionDenied, "cannot list folder")
        .Where(folder)
        .Found(error.message())
        .Remedy("check its permissions");
  }
  if (models.empty()) {
    return Fail(Code::kNotFound, "folder holds no GGUF file").Where(folder).Expected("a file that ends in .gguf");
  }
  if (models.size() > 1) {
    std::string list;
    constexpr size_t kMostListed = 8;
    size_t listed = 0;
    for (const auto& [model, first] : models) {
      if (listed++ == kMostListed) break;
      list += (list.empty() ? "" : ", ") + fs::path(model).filename().string();
    }
    if (models.size() > kMostListed) list += ", ...";
    return Fail(Code::kInvalidArgument, "folder holds several models")
        .Where(folder)
        .Found(fmt::format("{}: {}", models.size(), list))
        .Expected("one")
        .Remedy("give the path of the file");
  }
  return models.begin()->second;
}

}  // namespace ridge::gguf
