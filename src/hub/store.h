// The local model store: content-addressed blobs and one small manifest per name.
//
//   Store store(*DefaultStoreRoot());
//   RIDGE_ASSIGN_OR_RETURN(Entry entry, store.Find("smollm2:135m"));
//   RIDGE_ASSIGN_OR_RETURN(std::string path, store.ModelPath(entry));
//
// Layout below the root (all names are made by us, none comes from a server):
//   blobs/sha256-<64 hex>                        a whole, verified file; read-only
//   manifests/<32 hex>.json                      the first half of the SHA-256 of the name; name, source, digests, sizes, time
//   shards/<64 hex>/model-00001-of-00003.gguf    links to the blobs of a split model, under names by which the loader finds its siblings
//   partial/, locks/                             downloads under way (see FileLock) and the files that processes lock
//
// Guarantees: a manifest is written (temporary file, fsync, rename) only after all its blobs are complete, verified and
// synced, so a kill or a power cut at any moment leaves no partial model listed. Processes may use one store at the
// same time. Nothing is created by reading.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/digest.h"

namespace ridge::hub {

struct StoredFile {
  Digest digest;
  uint64_t size_bytes = 0;
  std::string label;  // what the source calls it; shown to people, never used as a path
};

struct Entry {
  std::string name;               // what MODEL is written as
  std::string source;             // the reference that it came from
  std::vector<StoredFile> files;  // one, or the shards of a split model in order
  int64_t fetched_unix_s = 0;
  uint64_t size_bytes() const;
};

struct Listing {
  std::vector<Entry> entries;  // by name
  std::vector<Error> damaged;  // manifests that cannot be read, models whose blobs are missing or of the wrong size
};

struct Removal {
  Entry entry;
  uint64_t freed_bytes = 0;  // 0 where another name still uses the blob
};

// A finished, verified and synced file below partial/ that Commit moves into place. An empty path: the blob is already
// in the store.
struct FinishedFile {
  StoredFile file;
  std::string partial_path;
};

// $RIDGE_HOME, else $XDG_DATA_HOME/ridge, else $HOME/.local/share/ridge. Errors: kNotFound when none of them is set.
Result<std::string> DefaultStoreRoot();

class Store {
 public:
  explicit Store(std::string root) : root_(std::move(root)) {}
  const std::string& root() const { return root_; }

  // An empty store, or none at all, is an empty listing.
  Result<Listing> List() const;
  // Errors: kNotFound; kInvalidData when the entry is damaged (with the remedy).
  Result<Entry> Find(const std::string& name) const;
  // The blob, or the first shard's link. The path stays valid until the entry is removed.
  Result<std::string> ModelPath(const Entry& entry) const;
  std::string BlobPath(const Digest& digest) const;
  bool HasBlob(const Digest& digest, uint64_t size_bytes) const;
  // Hashes every blob of the entry. Errors: kInvalidData with the digest found and expected.
  Status Verify(const Entry& entry) const;

  // Creates the folders. Errors: kPermissionDenied, kResourceExhausted.
  Status Create() const;
  // Moves the files into place and lists the entry, replacing an older one of the same name. Errors: kNotFound when a
  // blob that was said to be in the store is gone (another process removed it), kResourceExhausted when the disk is
  // full.
  Status Commit(const std::string& name, const std::string& source, int64_t fetched_unix_s,
                const std::vector<FinishedFile>& files) const;
  // Errors: kNotFound. A damaged entry can be removed too.
  Result<Removal> Remove(const std::string& name) const;

  // Where a download under way keeps its bytes, and the lock that its process holds. KEY is a digest or a hash: never a
  // remote name.
  std::string PartialPath(const std::string& key) const { return root_ + "/partial/" + key; }
  std::string LockPath(const std::string& key) const { return root_ + "/locks/" + key; }
  // Deletes what no process is working on below partial/; returns the bytes freed.
  Result<uint64_t> RemovePartials() const;

 private:
  std::string ManifestPath(const std::string& name) const;
  uint64_t CollectGarbage() const;  // store lock held; returns the bytes freed
  Status WriteManifest(const Entry& entry) const;
  Status LinkShards(const Entry& entry) const;

  std::string root_;
};

}  // namespace ridge::hub
