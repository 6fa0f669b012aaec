#include "backend/cpu/panel_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "backend/cpu/pack.h"
#include "base/atomic_file.h"
#include "quant/quant.h"

namespace ridge::cpu {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'R', 'I', 'D', 'G', 'E', 'P', 'A', 'N'};
constexpr uint64_t kFormat = 1;
constexpr uint64_t kHugePage = uint64_t{2}
                               << 20;  // the panels begin at a multiple of it, so that they can be mapped on huge pages
constexpr uint64_t kChunk = uint64_t{4} << 20;  // bytes under one checksum
constexpr uint64_t kMostHeaderBytes = uint64_t{64} << 20;

uint64_t RoundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// One hash per chunk, in parallel. drop: pages of a source file leave resident memory once they are hashed.
std::vector<uint64_t> ChunkHashes(ThreadPool& pool, std::span<const std::byte> bytes, bool drop) {
  std::vector<uint64_t> hashes((bytes.size() + kChunk - 1) / kChunk);
  pool.ParallelFor(hashes.size(), 1, [&](size_t begin, size_t end, int) {
    for (size_t i = begin; i < end; i++) {
      const auto chunk = bytes.subspan(i * kChunk, std::min<size_t>(kChunk, bytes.size() - i * kChunk));
      hashes[i] = XXH3_64bits(chunk.data(), chunk.size());
      if (drop) DropPages(chunk);
    }
  });
  return hashes;
}

uint64_t HashOfSource(ThreadPool& pool, const backend::SourceFile& source) {
  const std::vector<uint64_t> hashes = ChunkHashes(pool, source.bytes, true);
  return XXH3_64bits_withSeed(hashes.data(), hashes.size() * sizeof(uint64_t), source.bytes.size());
}

// Names the cache file: the sizes, the first and last 64 KiB and 64 blocks between. It only has to keep different models apart.
uint64_t SampleHash(const std::vector<backend::SourceFile>& sources) {
  constexpr size_t kEnds = 64 << 10, kBlock = 4096, kBlocks = 64;
  uint64_t hash = 0;
  for (const backend::SourceFile& source : sources) {
    const auto add = [&](size_t at, size_t n) {
      hash = XXH3_64bits_withSeed(source.bytes.data() + at, std::min(n, source.bytes.size() - at), hash + at + 1);
    };
    const size_t size = source.bytes.size();
    if (size == 0) continue;
    add(0, kEnds);
    add(size - std::min(size, kEnds), kEnds);
    for (size_t i = 1; i < kBlocks; i++) add(size / kBlocks * i, kBlock);
    hash = XXH3_64bits_withSeed(&size, sizeof size, hash);
  }
  return hash;
}

std::string Hex(uint64_t value) {
  std::string text(16, '0');
  for (int i = 0; i < 16; i++) text[static_cast<size_t>(i)] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
  return text;
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool ReadAt(int fd, uint64_t at, char* to, size_t n) {
  while (n > 0) {
    const ssize_t got = ::pread(fd, to, n, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got, at += static_cast<uint64_t>(got), n -= static_cast<size_t>(got);
  }
  return true;
}

Error Refuse(std::string why) { return Fail(Code::kInvalidData, std::move(why)).Take(); }

template <class T>
void Put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

uint64_t LayoutFingerprint() {
  constexpr int64_t kColumns = 512, kRows = 11;  // a tail of five rows
  uint64_t hash = kFormat;
  for (const quant::Type& type : quant::Types()) {
    const auto kind = PanelFor(type.id);
    if (!kind) continue;
    std::vector<std::byte> rows(static_cast<size_t>(kRows * kColumns / type.block_elements * type.block_bytes));
    uint32_t state = 12345;
    for (std::byte& b : rows) {
      state = state * 1664525 + 1013904223;
      b = static_cast<std::byte>(state >> 24);
    }
    std::vector<uint8_t> panel(static_cast<size_t>(PanelBytes(*kind, kColumns)));
    PackPanel(type.id, rows.data(), kRows, kColumns, panel.data());
    const std::string_view name = Name(*kind);
    hash = XXH3_64bits_withSeed(name.data(), name.size(), hash);
    hash = XXH3_64bits_withSeed(type.name.data(), type.name.size(), hash);
    hash = XXH3_64bits_withSeed(panel.data(), panel.size(), hash);
  }
  return hash;
}

// On disk: magic, then 64-bit little-endian numbers and the table, then a hash over all of it; zeros up to a multiple of 2 MiB; panels.
struct PanelCache::Header {
  uint64_t format = kFormat, layout = 0, header_bytes = 0, size_bytes = 0, n_sources = 0, n_chunks = 0, table_bytes = 0;
  struct Source {
    FileIdentity identity;
    uint64_t hash = 0;
  };
  std::vector<Source> sources;
  std::vector<uint64_t> chunks;
};

std::string PanelCache::Encode(const Header& h) const {
  std::string out(kMagic, sizeof kMagic);
  for (const uint64_t n : {h.format, h.layout, h.header_bytes, h.size_bytes, h.n_sources, h.n_chunks, h.table_bytes}) {
    Put(out, n);
  }
  for (const Header::Source& source : h.sources) {
    const FileIdentity& id = source.identity;
    for (const uint64_t n : {id.device, id.inode, id.size_bytes, static_cast<uint64_t>(id.modified_ns),
                             static_cast<uint64_t>(id.changed_ns), source.hash}) {
      Put(out, n);
    }
  }
  for (const uint64_t hash : h.chunks) Put(out, hash);
  out += table_;
  Put(out, XXH3_64bits(out.data(), out.size()));
  out.resize(h.header_bytes);
  return out;
}

Result<PanelCache> PanelCache::Open(const std::string& dir, std::vector<backend::SourceFile> sources, std::string table,
                                    uint64_t size_bytes) {
  PanelCache cache;
  std::error_code failed;
  fs::create_directories(dir, failed);
  if (failed || !fs::is_directory(dir, failed)) {
    return Fail(failed == std::errc::permission_denied ? Code::kPermissionDenied : Code::kInvalidArgument,
                "the folder for repacked weights cannot be used")
        .Where("--panel-cache " + dir)
        .Found(failed ? failed.message() : "not a folder")
        .Remedy("give a folder that you may write to");
  }
  cache.sources_ = std::move(sources);
  cache.table_ = std::move(table);
  cache.size_bytes_ = size_bytes;
  cache.path_ = (fs::path(dir) / (Hex(SampleHash(cache.sources_)) + ".panels")).string();
  return cache;
}

bool PanelCache::SourcesAreAsOpened() const {
  return std::all_of(sources_.begin(), sources_.end(),
                     [](const backend::SourceFile& source) { return IdentityOf(source.path) == source.identity; });
}

Result<PanelCache::Header> PanelCache::ReadHeader(int fd) const {
  constexpr size_t kNumbers = 7;
  char front[sizeof kMagic + kNumbers * 8];
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !ReadAt(fd, 0, front, sizeof front)) return std::unexpected(Refuse("it is cut short"));
  if (std::memcmp(front, kMagic, sizeof kMagic) != 0) return std::unexpected(Refuse("it is no panel cache"));
  Header h;
  uint64_t numbers[kNumbers];
  std::memcpy(numbers, front + sizeof kMagic, sizeof numbers);
  if (numbers[0] != kFormat) return std::unexpected(Refuse("its format is of another version"));
  if (numbers[1] != LayoutFingerprint()) return std::unexpected(Refuse("its layout is of another version of Ridge"));
  h.layout = numbers[1], h.header_bytes = numbers[2], h.size_bytes = numbers[3];
  h.n_sources = numbers[4], h.n_chunks = numbers[5], h.table_bytes = numbers[6];
  if (h.size_bytes != size_bytes_ || h.n_sources != sources_.size() || h.table_bytes != table_.size() ||
      h.n_chunks != (size_bytes_ + kChunk - 1) / kChunk)
    return std::unexpected(Refuse("it holds other weights"));
  if (h.header_bytes > kMostHeaderBytes || h.header_bytes % kHugePage != 0 ||
      static_cast<uint64_t>(info.st_size) != h.header_bytes + h.size_bytes)
    return std::unexpected(Refuse("its size is wrong"));
  h.sources.resize(h.n_sources);
  h.chunks.resize(h.n_chunks);
  const uint64_t used = sizeof front + h.n_sources * 6 * 8 + h.n_chunks * 8 + h.table_bytes + 8;
  if (used > h.header_bytes) return std::unexpected(Refuse("its size is wrong"));
  std::string all(used, '\0');
  if (!ReadAt(fd, 0, all.data(), used)) return std::unexpected(Refuse("it cannot be read"));
  uint64_t sum = 0;
  std::memcpy(&sum, all.data() + used - 8, 8);
  if (sum != XXH3_64bits(all.data(), used - 8)) return std::unexpected(Refuse("its header is damaged"));
  const char* at = all.data() + sizeof front;
  const auto next = [&at] {
    uint64_t value = 0;
    std::memcpy(&value, at, 8);
    at += 8;
    return value;
  };
  for (Header::Source& source : h.sources) {
    source.identity.device = next();
    source.identity.inode = next();
    source.identity.size_bytes = next();
    source.identity.modified_ns = static_cast<int64_t>(next());
    source.identity.changed_ns = static_cast<int64_t>(next());
    source.hash = next();
  }
  for (uint64_t& chunk : h.chunks) chunk = next();
  if (table_ != std::string_view(at, h.table_bytes)) return std::unexpected(Refuse("it holds other weights"));
  return h;
}

// Times and inode as recorded: the same bytes. Else (a copy, a touched file, another container) the whole file is hashed, and where that
// agrees, the cache learns the new times.
Status PanelCache::CheckSources(ThreadPool& pool, int fd, const Header& header) const {
  Header now = header;
  bool moved = false, settled = true;
  const int64_t time_ns = NowNs();
  for (size_t i = 0; i < sources_.size(); i++) {
    const FileIdentity& id = sources_[i].identity;
    if (header.sources[i].identity == id) continue;
    if (header.sources[i].identity.size_bytes != id.size_bytes ||
        header.sources[i].hash != HashOfSource(pool, sources_[i]))
      return std::unexpected(Refuse("the model file has changed"));
    moved = true;
    settled = settled && std::max(id.modified_ns, id.changed_ns) + settle_ns < time_ns;
    now.sources[i].identity = id;
  }
  if (!moved || !settled || !SourcesAreAsOpened()) return {};
  // A header that is torn by a crash here fails its checksum and is written anew; where it cannot be written, the next load hashes again.
  const std::string bytes = Encode(now);
  const Fd writable(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  struct stat read{}, write{};
  if (writable.get() >= 0 && ::fstat(fd, &read) == 0 && ::fstat(writable.get(), &write) == 0 &&
      read.st_ino == write.st_ino && read.st_dev == write.st_dev) {
    [[maybe_unused]] const ssize_t done = ::pwrite(writable.get(), bytes.data(), bytes.size(), 0);
  }
  return {};
}

Result<Buffer> PanelCache::Read(ThreadPool& pool) {
  const Fd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    if (errno == ENOENT) return Fail(Code::kNotFound, "no repacked weights yet");
    return Fail(Code::kPermissionDenied, "cannot open").Found(std::strerror(errno));
  }
  RIDGE_ASSIGN_OR_RETURN(const Header header, ReadHeader(fd.get()));
  RIDGE_RETURN_IF_ERROR(CheckSources(pool, fd.get(), header));
  RIDGE_ASSIGN_OR_RETURN(Buffer file, Buffer::MapFile(fd.get(), header.header_bytes, header.size_bytes));
  const std::span<const std::byte> bytes(file.data(), header.size_bytes);
  if (ChunkHashes(pool, bytes, false) != header.chunks) return std::unexpected(Refuse("its panels are damaged"));
  // The page cache holds the file on huge pages where the file system can (ext4 since Linux 6.16, XFS, tmpfs): then its pages are used as
  // they are. On 4 KiB pages the kernels lose speed, which costs more than one copy.
  mapped_ = file.HugeFileBytes() * 10 >= header.size_bytes * 9;
  if (mapped_ || bytes.empty()) return file;
  RIDGE_ASSIGN_OR_RETURN(Buffer copy, Buffer::Allocate(header.size_bytes));
  pool.ParallelFor(header.n_chunks, 1, [&](size_t begin, size_t end, int) {
    for (size_t i = begin; i < end; i++) {
      const auto chunk = bytes.subspan(i * kChunk, std::min<size_t>(kChunk, bytes.size() - i * kChunk));
      std::memcpy(copy.data() + i * kChunk, chunk.data(), chunk.size());
      DropPages(chunk);
    }
  });
  return copy;
}

Status PanelCache::Write(ThreadPool& pool, std::span<const std::byte> panels) const {
  RIDGE_CHECK(panels.size() == size_bytes_);
  Header header;
  header.layout = LayoutFingerprint();
  header.size_bytes = size_bytes_;
  header.n_sources = sources_.size();
  header.table_bytes = table_.size();
  // Reserved before anything is hashed: a full disk is told at once.
  header.n_chunks = (size_bytes_ + kChunk - 1) / kChunk;
  header.header_bytes =
      RoundUp(sizeof kMagic + 8 * (8 + 6 * header.n_sources + header.n_chunks) + header.table_bytes, kHugePage);
  if (header.header_bytes > kMostHeaderBytes) return Fail(Code::kUnsupported, "too many weights for a panel cache");
  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path_));
  RIDGE_RETURN_IF_ERROR(file.Reserve(header.header_bytes + size_bytes_));
  for (const backend::SourceFile& source : sources_) {
    if (std::max(source.identity.modified_ns, source.identity.changed_ns) + settle_ns >= NowNs()) {
      return Fail(Code::kUnavailable, "the model file is too new for its times to be trusted")
          .Where(source.path)
          .Remedy("the next run will keep its panels");
    }
    header.sources.push_back({source.identity, HashOfSource(pool, source)});
  }
  header.chunks = ChunkHashes(pool, panels, false);
  RIDGE_RETURN_IF_ERROR(file.Write(Encode(header)));
  RIDGE_RETURN_IF_ERROR(file.Write(panels));
  if (!SourcesAreAsOpened()) return Fail(Code::kUnavailable, "the model file changed while it was loaded");
  return file.Commit();
}

}  // namespace ridge::cpu
