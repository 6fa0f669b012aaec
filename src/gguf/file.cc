// Opens models: one file, a split file by any of its shards, or a folder.
#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/quantity.h"
#include "gguf/gguf.h"
#include "gguf/parse.h"
#include "gguf/split.h"

namespace ridge::gguf {
namespace {

constexpr uint64_t kMaxShards = 99999;  // the five digits of the shard names

struct SplitKeys {
  uint64_t number = 0;  // from 0
  uint64_t count = 1;
};

Result<SplitKeys> ReadSplitKeys(const ParsedShard& shard, const std::string& path) {
  const auto located = [&path](Error error) {
    error.where = path + ": " + error.where;
    return error;
  };
  const Result<uint64_t> count = shard.metadata.GetOr<uint64_t>("split.count", 1);
  if (!count) return std::unexpected(located(count.error()));
  const Result<uint64_t> number = shard.metadata.GetOr<uint64_t>("split.no", 0);
  if (!number) return std::unexpected(located(number.error()));
  if (*count > kMaxShards || (*count > 1 && *number >= *count)) {
    return Fail(Code::kInvalidData, "bad split numbers")
        .Where(path + ": keys \"split.no\" and \"split.count\"")
        .Found(fmt::format("{} and {}", *number, *count))
        .Expected(fmt::format("a number below the count, and a count up to {}", kMaxShards));
  }
  return SplitKeys{*count > 1 ? *number : 0, std::max<uint64_t>(*count, 1)};
}

// All shards of the model of which `path` is shard `number` (from 0), all of them there.
Result<std::vector<std::string>> ListShards(const std::string& path, const SplitKeys& keys) {
  const std::optional<SplitName> name = ParseSplitName(path);
  if (!name || name->number != keys.number + 1 || name->count != keys.count) {
    return Fail(Code::kInvalidData, "shard's name does not fit its split numbers")
        .Where(path)
        .Found(fmt::format("\"split.no\" {} and \"split.count\" {}", keys.number, keys.count))
        .Expected(fmt::format("a name that ends in {}",
                              ShardPath("", static_cast<uint32_t>(keys.number + 1), static_cast<uint32_t>(keys.count))))
        .Remedy("give the file its original name, beside the other shards");
  }
  std::vector<std::string> paths;
  std::string missing;
  size_t n_missing = 0;
  for (uint32_t number = 1; number <= name->count; ++number) {
    paths.push_back(ShardPath(name->prefix, number, name->count));
    std::error_code error;
    if (std::filesystem::exists(paths.back(), error)) continue;
    constexpr size_t kMostListed = 8;
    if (++n_missing <= kMostListed) {
      missing += (missing.empty() ? "" : ", ") + std::filesystem::path(paths.back()).filename().string();
    } else if (n_missing == kMostListed + 1) {
      missing += ", ...";
    }
  }
  if (n_missing > 0) {
    return Fail(Code::kNotFound, fmt::format("{} of {} shards of the model are missing", n_missing, name->count))
        .Where(missing)
        .Expected("all shards in one folder")
        .Remedy("fetch the missing files");
  }
  return paths;
}

// What a later shard says beside its own split numbers must not contradict the first; keys of its own are added.
Status MergeMetadata(Metadata& all, const Metadata& shard, const std::string& path) {
  for (const auto& [key, value] : shard.entries()) {
    if (key == "split.no" || key == "general.alignment") continue;
    const Value* first = all.Find(key);
    if (first == nullptr) {
      RIDGE_RETURN_IF_ERROR(all.Add(key, value));
    } else if (*first != value) {
      return Fail(Code::kInvalidData, "shards disagree on a metadata key")
          .Where(fmt::format("{}: key {}", path, Quoted(key)))
          .Found("another value than in the first shard")
          .Expected("the shards of one model")
          .Remedy("fetch all shards from one place");
    }
  }
  return {};
}

}  // namespace

Result<File> File::Open(const std::string& path) {
  std::string first_path = path;
  std::error_code no_folder;
  if (std::filesystem::is_directory(path, no_folder)) {
    RIDGE_ASSIGN_OR_RETURN(first_path, FindModelInFolder(path));
  }
  RIDGE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(first_path));
  RIDGE_ASSIGN_OR_RETURN(ParsedShard shard, Parse(file.bytes(), first_path));
  RIDGE_ASSIGN_OR_RETURN(SplitKeys keys, ReadSplitKeys(shard, first_path));
  std::vector<std::string> paths = {first_path};
  if (keys.count > 1) {
    RIDGE_ASSIGN_OR_RETURN(paths, ListShards(first_path, keys));
  }
  std::vector<MappedFile> files(paths.size());
  std::vector<ParsedShard> shards(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    if (i == keys.number) continue;
    RIDGE_ASSIGN_OR_RETURN(files[i], MappedFile::Open(paths[i]));
    RIDGE_ASSIGN_OR_RETURN(shards[i], Parse(files[i].bytes(), paths[i]));
  }
  files[keys.number] = std::move(file);
  shards[keys.number] = std::move(shard);
  return Join(std::move(files), std::move(shards));
}

Result<File> File::OpenShards(const std::vector<std::string>& paths) {
  if (paths.empty()) return Fail(Code::kInvalidArgument, "no file given").Expected("the shards of one model");
  std::vector<MappedFile> files(paths.size());
  std::vector<ParsedShard> shards(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    RIDGE_ASSIGN_OR_RETURN(files[i], MappedFile::Open(paths[i]));
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    RIDGE_ASSIGN_OR_RETURN(shards[i], Parse(files[i].bytes(), paths[i]));
  }
  return Join(std::move(files), std::move(shards));
}

Result<File> File::Join(std::vector<MappedFile> files, std::vector<ParsedShard> shards) {
  File all;
  all.version_ = shards[0].version;
  all.alignment_ = shards[0].alignment;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string& path = files[i].path();
    RIDGE_ASSIGN_OR_RETURN(SplitKeys keys, ReadSplitKeys(shards[i], path));
    if (keys.count != shards.size() || keys.number != i) {
      return Fail(Code::kInvalidData, "file is not the shard expected")
          .Where(path)
          .Found(fmt::format("\"split.no\" {} and \"split.count\" {}", keys.number, keys.count))
          .Expected(fmt::format("{} and {}", i, shards.size()))
          .Remedy("give all shards of one model in order");
    }
    if (i == 0) {
      all.metadata_ = std::move(shards[0].metadata);
    } else {
      RIDGE_RETURN_IF_ERROR(MergeMetadata(all.metadata_, shards[i].metadata, path));
    }
    for (TensorInfo& tensor : shards[i].tensors) {
      tensor.shard = i;
      const auto [at, added] = all.tensor_index_.emplace(tensor.name, all.tensors_.size());
      if (!added) {
        return Fail(Code::kInvalidData, "two shards hold a tensor of the same name")
            .Where("tensor " + Quoted(tensor.name))
            .Found(fmt::format("{} and {}", files[all.tensors_[at->second].shard].path(), path))
            .Expected("unique names");
      }
      all.tensors_.push_back(std::move(tensor));
    }
  }
  all.shards_ = std::move(files);
  const std::string kTotal = "split.tensors.count";
  if (all.shards_.size() > 1 && all.metadata_.Find(kTotal) != nullptr) {
    RIDGE_ASSIGN_OR_RETURN(uint64_t total, all.metadata_.Get<uint64_t>(kTotal));
    if (total != all.tensors_.size()) {
      return Fail(Code::kInvalidData, "shards do not hold all tensors of the model")
          .Where(fmt::format("{}: key {}", all.path(), Quoted(kTotal)))
          .Found(fmt::format("{} in {}", Count(all.tensors_.size(), "tensor"), Count(all.shards_.size(), "shard")))
          .Expected(fmt::format("{}", total))
          .Remedy("fetch all shards from one place");
    }
  }
  return all;
}

const TensorInfo* File::FindTensor(const std::string& name) const {
  const auto at = tensor_index_.find(name);
  return at == tensor_index_.end() ? nullptr : &tensors_[at->second];
}

std::span<const std::byte> File::Data(const TensorInfo& tensor) const {
  return shards_[tensor.shard].bytes().subspan(tensor.offset_bytes, tensor.size_bytes);
}

void File::Release(const TensorInfo& tensor) const {
  shards_[tensor.shard].Release(tensor.offset_bytes, tensor.size_bytes);
}

Status File::CheckWhole() const {
  for (const MappedFile& shard : shards_) RIDGE_RETURN_IF_ERROR(shard.CheckWhole());
  return {};
}

uint64_t File::size_bytes() const {
  uint64_t total = 0;
  for (const MappedFile& shard : shards_) total += shard.bytes().size();
  return total;
}

std::vector<std::string> File::shard_paths() const {
  std::vector<std::string> paths;
  for (const MappedFile& shard : shards_) paths.push_back(shard.path());
  return paths;
}

uint64_t TensorInfo::elements() const {
  uint64_t product = 1;
  for (const uint64_t length : shape) product *= length;  // Parse has proved that this fits
  return product;
}

uint64_t TensorInfo::rows() const { return elements() / shape[0]; }

}  // namespace ridge::gguf
