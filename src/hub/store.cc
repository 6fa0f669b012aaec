#include "hub/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <set>

#include "base/quantity.h"
#include "hub/files.h"
#include "hub/json_fields.h"

namespace ridge::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxManifestBytes = 1 << 20;
constexpr size_t kMaxFiles = 1000;

std::string NameKey(const std::string& name) { return HashText(name).Hex().substr(0, 32); }

// The names in a folder, sorted; empty when the folder is not there.
std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Fail BadManifest(const std::string& path, std::string found) {
  return Fail(Code::kInvalidData, "damaged entry in the model store")
      .Where(path)
      .Found(std::move(found))
      .Remedy("delete this file and pull the model again");
}

Result<Entry> ReadManifest(const std::string& path) {
  RIDGE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxManifestBytes));
  const Json root = ParseJson(text);
  if (!root.is_object()) return BadManifest(path, "text that is not a JSON object");
  Entry entry;
  entry.name = TextField(root, "name");
  entry.source = TextField(root, "source");
  if (NameKey(entry.name) != fs::path(path).stem()) return BadManifest(path, "a name that does not belong to the file");
  if (const Json* at = Field(root, "fetched_unix_s"); at != nullptr && at->is_number_integer()) {
    entry.fetched_unix_s = at->get<int64_t>();
  }
  const Json* files = Field(root, "files");
  if (files == nullptr || !files->is_array() || files->empty() || files->size() > kMaxFiles) {
    return BadManifest(path, "no list of files");
  }
  for (const Json& item : *files) {
    const std::optional<uint64_t> size = SizeField(item, "size_bytes");
    if (!size || *size > std::numeric_limits<uint64_t>::max() / kMaxFiles) {
      return BadManifest(path, "a file without a sensible size");
    }
    Result<Digest> digest = ParseDigest(TextField(item, "digest"));
    if (!digest) return BadManifest(path, digest.error().Message());
    entry.files.push_back({*digest, *size, TextField(item, "label")});
  }
  return entry;
}

Status CheckBlobs(const Store& store, const Entry& entry) {
  for (const StoredFile& file : entry.files) {
    const std::string path = store.BlobPath(file.digest);
    const std::optional<uint64_t> size = FileSize(path);
    if (size == file.size_bytes) continue;
    return Fail(Code::kInvalidData, "model " + entry.name + " is damaged in the store")
        .Where(path)
        .Found(size ? Count(*size, "byte") : "no such file")
        .Expected(Count(file.size_bytes, "byte"))
        .Remedy("ridge pull " + entry.name + " fetches it again");
  }
  return {};
}

// The digests name the folder, so two entries of one model share it.
std::string ShardFolder(const std::string& root, const Entry& entry) {
  std::string all;
  for (const StoredFile& file : entry.files) all += file.digest.Hex();
  return root + "/shards/" + HashText(all).Hex();
}

std::string ShardName(size_t index, size_t count) { return fmt::format("model-{:05}-of-{:05}.gguf", index + 1, count); }

bool KeepWaiting() { return true; }

}  // namespace

uint64_t Entry::size_bytes() const {
  uint64_t sum = 0;
  for (const StoredFile& file : files) sum += file.size_bytes;
  return sum;
}

Result<std::string> DefaultStoreRoot() {
  const auto given = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string root = given("RIDGE_HOME");
  if (root.empty()) {
    if (const std::string data = given("XDG_DATA_HOME"); !data.empty()) root = data + "/ridge";
  }
  if (root.empty()) {
    if (const std::string home = given("HOME"); !home.empty()) root = home + "/.local/share/ridge";
  }
  if (root.empty()) {
    return Fail(Code::kNotFound, "no place for the model store")
        .Found("HOME is not set")
        .Remedy("set RIDGE_HOME to a folder");
  }
  std::error_code error;
  const fs::path absolute = fs::absolute(root, error);
  if (error) return FailErrno(error.value(), "cannot find the model store", root);
  return absolute.lexically_normal().string();
}

std::string Store::BlobPath(const Digest& digest) const { return root_ + "/blobs/sha256-" + digest.Hex(); }

std::string Store::ManifestPath(const std::string& name) const {
  return root_ + "/manifests/" + NameKey(name) + ".json";
}

bool Store::HasBlob(const Digest& digest, uint64_t size_bytes) const {
  return FileSize(BlobPath(digest)) == size_bytes;
}

Result<Listing> Store::List() const {
  Listing listing;
  for (const std::string& name : Names(root_ + "/manifests")) {
    if (!name.ends_with(".json")) continue;  // a temporary file of a process that was killed
    Result<Entry> entry = ReadManifest(root_ + "/manifests/" + name);
    if (!entry) {
      if (entry.error().code != Code::kNotFound)
        listing.damaged.push_back(std::move(entry).error());  // else: just removed
      continue;
    }
    if (Status intact = CheckBlobs(*this, *entry); !intact) {
      listing.damaged.push_back(std::move(intact).error());
      continue;
    }
    listing.entries.push_back(std::move(*entry));
  }
  std::sort(listing.entries.begin(), listing.entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return listing;
}

Result<Entry> Store::Find(const std::string& name) const {
  const std::string path = ManifestPath(name);
  if (!FileSize(path)) {
    return Fail(Code::kNotFound, "no such model in the store")
        .Found('"' + name + '"')
        .Remedy("ridge list shows what is there");
  }
  RIDGE_ASSIGN_OR_RETURN(Entry entry, ReadManifest(path));
  RIDGE_RETURN_IF_ERROR(CheckBlobs(*this, entry));
  return entry;
}

Result<std::string> Store::ModelPath(const Entry& entry) const {
  if (entry.files.size() == 1) return BlobPath(entry.files[0].digest);
  for (size_t i = 0; i < entry.files.size(); ++i) {
    const std::string link = ShardFolder(root_, entry) + "/" + ShardName(i, entry.files.size());
    if (FileSize(link) == entry.files[i].size_bytes) continue;
    return Fail(Code::kInvalidData, "model " + entry.name + " is damaged in the store")
        .Where(link)
        .Expected("a link to " + BlobPath(entry.files[i].digest))
        .Remedy("ridge pull --force " + entry.name);
  }
  return ShardFolder(root_, entry) + "/" + ShardName(0, entry.files.size());
}

Status Store::Verify(const Entry& entry) const {
  for (const StoredFile& file : entry.files) {
    const std::string path = BlobPath(file.digest);
    RIDGE_ASSIGN_OR_RETURN(const Digest found, HashFile(path));
    if (found != file.digest) {
      return Fail(Code::kInvalidData, "model " + entry.name + " is damaged in the store")
          .Where(path)
          .Found(found.Text())
          .Expected(file.digest.Text())
          .Remedy("ridge pull --force " + entry.name + " fetches it again");
    }
  }
  return {};
}

Status Store::Create() const {
  for (const char* folder : {"/blobs", "/manifests", "/partial", "/locks"}) {
    RIDGE_RETURN_IF_ERROR(CreateFolders(root_ + folder));
  }
  return {};
}

Status Store::LinkShards(const Entry& entry) const {
  const std::string folder = ShardFolder(root_, entry);
  RIDGE_RETURN_IF_ERROR(CreateFolders(folder));
  for (size_t i = 0; i < entry.files.size(); ++i) {
    const std::string link = folder + "/" + ShardName(i, entry.files.size());
    ::unlink(link.c_str());
    // Relative, so that the store can be moved as a whole.
    const std::string target = "../../blobs/sha256-" + entry.files[i].digest.Hex();
    if (::symlink(target.c_str(), link.c_str()) != 0) return FailErrno(errno, "cannot create link", link);
  }
  return SyncFolder(folder);
}

Status Store::WriteManifest(const Entry& entry) const {
  Json files = Json::array();
  for (const StoredFile& file : entry.files) {
    files.push_back({{"digest", file.digest.Text()}, {"size_bytes", file.size_bytes}, {"label", file.label}});
  }
  const Json root = {{"name", entry.name},
                     {"source", entry.source},
                     {"fetched_unix_s", entry.fetched_unix_s},
                     {"files", std::move(files)}};
  return WriteFileDurably(ManifestPath(entry.name), root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Status Store::Commit(const std::string& name, const std::string& source, int64_t fetched_unix_s,
                     const std::vector<FinishedFile>& files) const {
  RIDGE_CHECK(!files.empty() && files.size() <= kMaxFiles);
  Entry entry{name, source, {}, fetched_unix_s};
  RIDGE_RETURN_IF_ERROR(Create());
  RIDGE_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(LockPath("store"), KeepWaiting));
  for (const FinishedFile& finished : files) {
    const std::string blob = BlobPath(finished.file.digest);
    entry.files.push_back(finished.file);
    if (finished.partial_path.empty()) {
      if (!HasBlob(finished.file.digest, finished.file.size_bytes)) {
        return Fail(Code::kNotFound, "a blob was removed while the model was being fetched")
            .Where(blob)
            .Remedy("pull again");
      }
      continue;
    }
    ::chmod(finished.partial_path.c_str(), 0444);
    if (::rename(finished.partial_path.c_str(), blob.c_str()) != 0) {
      return FailErrno(errno, "cannot move the download into the store", blob);
    }
  }
  RIDGE_RETURN_IF_ERROR(SyncFolder(root_ + "/blobs"));
  if (entry.files.size() > 1) RIDGE_RETURN_IF_ERROR(LinkShards(entry));
  RIDGE_RETURN_IF_ERROR(WriteManifest(entry));
  (void)CollectGarbage();  // the blobs of an older entry of this name
  return {};
}

Result<Removal> Store::Remove(const std::string& name) const {
  const std::string path = ManifestPath(name);
  const auto missing = [&] {
    return Fail(Code::kNotFound, "no such model in the store")
        .Found('"' + name + '"')
        .Remedy("ridge list shows what is there");
  };
  if (!FileSize(path)) return missing();
  RIDGE_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(LockPath("store"), KeepWaiting));
  Removal removal;
  Result<Entry> entry = ReadManifest(path);
  if (!entry && entry.error().code == Code::kNotFound) return missing();
  if (entry) {
    removal.entry = std::move(*entry);
  } else {
    removal.entry.name = name;
  }
  if (::unlink(path.c_str()) != 0) return FailErrno(errno, "cannot remove the entry", path);
  RIDGE_RETURN_IF_ERROR(SyncFolder(root_ + "/manifests"));
  removal.freed_bytes = CollectGarbage();
  return removal;
}

// Blobs enter the store together with their manifest under the store lock, so under the lock a blob that no manifest
// names is a leftover (a removed or replaced entry, a process killed inside Commit). A manifest that cannot be read
// stops the collection: it may name any blob.
uint64_t Store::CollectGarbage() const {
  std::set<std::string> used_blobs;
  std::set<std::string> used_shards;
  for (const std::string& name : Names(root_ + "/manifests")) {
    const std::string path = root_ + "/manifests/" + name;
    if (!name.ends_with(".json")) {
      ::unlink(path.c_str());
      continue;
    }
    const Result<Entry> entry = ReadManifest(path);
    if (!entry) return 0;
    for (const StoredFile& file : entry->files) used_blobs.insert(BlobPath(file.digest));
    if (entry->files.size() > 1) used_shards.insert(ShardFolder(root_, *entry));
  }
  uint64_t freed_bytes = 0;
  for (const std::string& name : Names(root_ + "/blobs")) {
    const std::string path = root_ + "/blobs/" + name;
    const std::optional<uint64_t> size = FileSize(path);
    if (used_blobs.contains(path) || !name.starts_with("sha256-") || !size) continue;
    if (::unlink(path.c_str()) == 0) freed_bytes += *size;
  }
  for (const std::string& name : Names(root_ + "/shards")) {
    const std::string path = root_ + "/shards/" + name;
    std::error_code error;
    if (!used_shards.contains(path)) fs::remove_all(path, error);
  }
  return freed_bytes;
}

Result<uint64_t> Store::RemovePartials() const {
  uint64_t freed_bytes = 0;
  for (const std::string& key : Names(root_ + "/partial")) {
    RIDGE_ASSIGN_OR_RETURN(std::optional<FileLock> lock, FileLock::TryAcquire(LockPath(key)));
    if (!lock) continue;  // under way
    std::error_code error;
    uint64_t size = 0;
    if (const std::optional<uint64_t> file = FileSize(PartialPath(key))) size = *file;
    for (fs::recursive_directory_iterator at(PartialPath(key), error), end; !error && at != end; at.increment(error)) {
      if (const std::optional<uint64_t> file = FileSize(at->path().string())) size += *file;
    }
    fs::remove_all(PartialPath(key), error);
    if (error) return FailErrno(error.value(), "cannot remove a partial download", PartialPath(key));
    freed_bytes += size;
  }
  return freed_bytes;
}

}  // namespace ridge::hub
