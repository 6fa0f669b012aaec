// Keeps repacked weights on disk, so that the next load maps them instead of packing again (--panel-cache DIR).
//
//   RIDGE_ASSIGN_OR_RETURN(PanelCache cache, PanelCache::Open(dir, sources, table, size_bytes));
//   if (auto panels = cache.Read(pool)) use(panels->data()); else { pack; cache.Write(pool, packed); }
//
// Guarantees: what Read returns is what packing these very files now would give. Proved by: a fingerprint of the packing code itself, the
// table of weights (names, types, shapes, panel kinds, places), checksums over all bytes, and, of each source file, device, inode, size,
// mtime and ctime as they were when the cache was written; where one of those differs, a hash over the whole source file decides.
// A file under its final name is complete. Limits: docs/loading.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace ridge::cpu {

// A hash of what the packing code makes of fixed rows of every type that has panels: changes whenever a layout does.
uint64_t LayoutFingerprint();

class PanelCache {
 public:
  // table: text that says what lies where in the size_bytes of panels. Creates the folder. Errors: kInvalidArgument, kPermissionDenied.
  static Result<PanelCache> Open(const std::string& dir, std::vector<backend::SourceFile> sources, std::string table,
                                 uint64_t size_bytes);

  // The panels, read-only. Errors: kNotFound (none yet); all else is why what is there is not used.
  Result<Buffer> Read(ThreadPool& pool);
  // Errors: those of AtomicFile; kUnavailable when a source file changed too lately to be told from a later change.
  Status Write(ThreadPool& pool, std::span<const std::byte> panels) const;

  const std::string& path() const { return path_; }
  bool mapped() const { return mapped_; }  // after Read: the file's own pages are used, not a copy

  // Age that a source's times must have before they are trusted: file systems keep them in steps of up to two seconds. Tests set it.
  int64_t settle_ns = 2'000'000'000;

 private:
  struct Header;
  Result<Header> ReadHeader(int fd) const;
  Status CheckSources(ThreadPool& pool, int fd, const Header& header) const;
  bool SourcesAreAsOpened() const;
  std::string Encode(const Header& header) const;

  std::vector<backend::SourceFile> sources_;
  std::string table_, path_;
  uint64_t size_bytes_ = 0;
  bool mapped_ = false;
};

}  // namespace ridge::cpu
