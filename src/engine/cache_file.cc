#include "engine/cache_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "base/atomic_file.h"

namespace ridge::engine {
namespace {

// On disk, 64-bit numbers in little endian: the head, the index (key, roots, nodes, checkpoints), a hash over both; then each page and each
// slot, each with a hash behind it.
constexpr uint64_t kVersion = 1;
struct Head {
  char magic[8];
  uint64_t version = 0, index_bytes = 0, page_bytes = 0, slot_bytes = 0, nodes = 0, states = 0;
};
static_assert(sizeof(Head) == 56);
constexpr uint64_t kHashBytes = 8;

uint64_t HashAt(uint64_t number, std::span<const std::byte> bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), number + 1);
}

CacheKey Whole(const CacheKey& key, const backend::StateStore& state) {
  CacheKey all = key;
  const backend::StateOptions& options = state.options();
  all.emplace_back("K type", backend::Name(options.k_type));
  all.emplace_back("V type", backend::Name(options.v_type));
  all.emplace_back("tokens of a page", std::to_string(options.page_tokens));
  all.emplace_back("flash attention", options.flash_attention ? "on" : "off");
  all.emplace_back("layout of pages", std::to_string(state.bytes_version()));
  all.emplace_back("bytes of a page", std::to_string(state.page_bytes()));
  all.emplace_back("bytes of a state", std::to_string(state.slot_bytes()));
  return all;
}

class Writer {
 public:
  template <class T>
  void Put(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void Text(std::string_view text) {
    Put(static_cast<uint64_t>(text.size()));
    out_ += text;
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads what Writer wrote; a count that the rest cannot hold makes all that follows fail.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  bool Get(T& value) {
    if (rest_.size() < sizeof value) return false;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return true;
  }
  bool Text(std::string& text) {
    uint64_t n = 0;
    if (!Count(n, 1)) return false;
    text = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return true;
  }
  bool Count(uint64_t& n, size_t least_bytes) { return Get(n) && n <= rest_.size() / least_bytes; }
  bool Tokens(std::vector<TokenId>& tokens) {
    uint64_t n = 0;
    if (!Count(n, sizeof(TokenId))) return false;
    tokens.resize(n);
    std::memcpy(tokens.data(), rest_.data(), n * sizeof(TokenId));
    rest_.remove_prefix(n * sizeof(TokenId));
    return true;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

std::string Index(const CacheKey& key, const cache::SavedTree& tree, const backend::StateStore& state) {
  Writer out;
  out.Put(uint64_t{key.size()});
  for (const auto& [name, value] : key) {
    out.Text(name);
    out.Text(value);
  }
  out.Put(uint64_t{tree.roots.size()});
  for (const std::string& root : tree.roots) out.Text(root);
  for (const cache::SavedTree::Node& node : tree.nodes) {
    out.Put(node.parent);
    out.Put(node.root);
    out.Put(node.last_use);
    out.Put(uint64_t{node.tokens.size()});
    for (const TokenId token : node.tokens) out.Put(token);
  }
  for (const cache::SavedTree::State& saved : tree.states) {
    out.Put(saved.node);
    out.Put(saved.tokens);
    out.Put(static_cast<uint32_t>(saved.minor));
    out.Put(saved.last_use);
    out.Put(state.slot_tokens(saved.slot));
  }
  return out.Take();
}

std::span<const std::byte> Bytes(const auto& value) { return std::as_bytes(std::span(&value, 1)); }

}  // namespace

Result<uint64_t> WriteCacheFile(const std::string& path, const CacheKey& key, const cache::SavedTree& tree,
                                const backend::StateStore& state) {
  const std::string index = Index(Whole(key, state), tree, state);
  Head head{.version = kVersion,
            .index_bytes = index.size(),
            .page_bytes = state.page_bytes(),
            .slot_bytes = state.slot_bytes(),
            .nodes = tree.nodes.size(),
            .states = tree.states.size()};
  std::memcpy(head.magic, kCacheFileBegins.data(), sizeof head.magic);
  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, 0600));
  RIDGE_RETURN_IF_ERROR(file.Reserve(sizeof head + index.size() + kHashBytes +
                                     head.nodes * (head.page_bytes + kHashBytes) +
                                     head.states * (head.slot_bytes + kHashBytes)));
  RIDGE_RETURN_IF_ERROR(file.Write(Bytes(head)));
  RIDGE_RETURN_IF_ERROR(file.Write(index));
  const uint64_t hash = XXH3_64bits_withSeed(index.data(), index.size(), XXH3_64bits(&head, sizeof head));
  RIDGE_RETURN_IF_ERROR(file.Write(Bytes(hash)));
  std::vector<std::byte> piece(head.page_bytes);
  uint64_t number = 0;
  const auto write = [&]() -> Status {
    const uint64_t sum = HashAt(number++, piece);
    RIDGE_RETURN_IF_ERROR(file.Write(piece));
    return file.Write(Bytes(sum));
  };
  for (const cache::SavedTree::Node& node : tree.nodes) {
    state.ReadPage(node.page, piece);
    RIDGE_RETURN_IF_ERROR(write());
  }
  piece.resize(head.slot_bytes);
  for (const cache::SavedTree::State& saved : tree.states) {
    state.ReadSlot(saved.slot, piece);
    RIDGE_RETURN_IF_ERROR(write());
  }
  const uint64_t size = file.size_bytes();
  RIDGE_RETURN_IF_ERROR(file.Commit());
  return size;
}

CacheFile::CacheFile(CacheFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      size_bytes_(other.size_bytes_),
      index_bytes_(other.index_bytes_),
      page_bytes_(other.page_bytes_),
      slot_bytes_(other.slot_bytes_),
      tree_(std::move(other.tree_)),
      slot_tokens_(std::move(other.slot_tokens_)) {}

CacheFile::~CacheFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status CacheFile::ReadAt(uint64_t at, void* to, size_t n) const {
  char* next = static_cast<char*>(to);
  while (n > 0) {
    const ssize_t got = ::pread(fd_, next, n, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(Code::kUnavailable, "cannot be read").Where(path_).Found(std::strerror(errno));
    if (got == 0) return Fail(Code::kInvalidData, "the saved prefix cache is cut short").Where(path_);
    next += got, at += static_cast<uint64_t>(got), n -= static_cast<size_t>(got);
  }
  return {};
}

Result<CacheFile> CacheFile::Open(const std::string& path, const CacheKey& key, const backend::StateStore& state) {
  CacheFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd_ < 0) {
    return Fail(errno == ENOENT ? Code::kNotFound : Code::kPermissionDenied, "cannot open the saved prefix cache")
        .Where(path)
        .Found(std::strerror(errno));
  }
  struct stat info{};
  if (::fstat(file.fd_, &info) != 0 || !S_ISREG(info.st_mode))
    return Fail(Code::kInvalidArgument, "no regular file").Where(path);
  file.size_bytes_ = static_cast<uint64_t>(info.st_size);
  file.page_bytes_ = state.page_bytes();
  file.slot_bytes_ = state.slot_bytes();
  RIDGE_RETURN_IF_ERROR(file.ReadIndex(Whole(key, state)));
  return file;
}

Status CacheFile::ReadIndex(const CacheKey& key) {
  const auto damaged = [this](const char* what) {
    return Fail(Code::kInvalidData, "the saved prefix cache is damaged").Where(path_).Found(what);
  };
  Head head;
  RIDGE_RETURN_IF_ERROR(ReadAt(0, &head, sizeof head));
  if (std::memcmp(head.magic, kCacheFileBegins.data(), sizeof head.magic) != 0)
    return Fail(Code::kInvalidData, "no saved prefix cache").Where(path_).Found("another kind of file");
  if (head.version != kVersion) {
    return Fail(Code::kUnsupported, "the saved prefix cache is of another version")
        .Where(path_)
        .Found(std::to_string(head.version))
        .Expected(std::to_string(kVersion));
  }
  // The length is exact: what the head says of the rest must be this file's size before anything is made of that size.
  const auto total = [&](uint64_t page_bytes, uint64_t slot_bytes) {
    return __uint128_t{sizeof head} + head.index_bytes + kHashBytes +
           static_cast<__uint128_t>(head.nodes) * (__uint128_t{page_bytes} + kHashBytes) +
           static_cast<__uint128_t>(head.states) * (__uint128_t{slot_bytes} + kHashBytes);
  };
  if (const __uint128_t said = total(head.page_bytes, head.slot_bytes); said != size_bytes_)
    return damaged(said > size_bytes_ ? "it is cut short" : "it is too long");
  std::string index(head.index_bytes, '\0');
  RIDGE_RETURN_IF_ERROR(ReadAt(sizeof head, index.data(), index.size()));
  uint64_t sum = 0;
  RIDGE_RETURN_IF_ERROR(ReadAt(sizeof head + index.size(), &sum, sizeof sum));
  if (sum != XXH3_64bits_withSeed(index.data(), index.size(), XXH3_64bits(&head, sizeof head)))
    return damaged("its index has another checksum");
  // From here on it is what some Ridge wrote; perhaps for another model.
  index_bytes_ = head.index_bytes;
  if (head.nodes > index.size() / 24 || head.states > index.size() / 28) return damaged("its counts make no sense");
  tree_.nodes.resize(head.nodes);
  tree_.states.resize(head.states);
  slot_tokens_.resize(head.states);
  RIDGE_RETURN_IF_ERROR(ParseIndex(index, key));
  if (total(page_bytes_, slot_bytes_) != size_bytes_) return damaged("its pages have another size");
  return {};
}

Status CacheFile::ParseIndex(std::string_view index, const CacheKey& key) {
  const auto broken = [this] {
    return Fail(Code::kInvalidData, "the saved prefix cache is damaged").Where(path_).Found("its index breaks off");
  };
  Reader in(index);
  uint64_t n = 0;
  if (!in.Count(n, 16)) return broken();
  CacheKey found(n);
  for (auto& [name, value] : found) {
    if (!in.Text(name) || !in.Text(value)) return broken();
  }
  for (size_t i = 0; i < std::max(found.size(), key.size()); i++) {
    if (i < found.size() && i < key.size() && found[i] == key[i]) continue;
    const bool named = i < found.size() && i < key.size() && found[i].first == key[i].first;
    const std::string name = i < key.size() ? key[i].first : found[i].first;
    return Fail(Code::kUnsupported, "the saved prefix cache was made with another " + name)
        .Where(path_)
        .Found(named ? found[i].second : "none")
        .Expected(i < key.size() ? key[i].second : "none");
  }
  if (!in.Count(n, 8)) return broken();
  tree_.roots.resize(n);
  for (std::string& root : tree_.roots) {
    if (!in.Text(root)) return broken();
  }
  for (size_t i = 0; i < tree_.nodes.size(); i++) {
    cache::SavedTree::Node& node = tree_.nodes[i];
    if (!in.Get(node.parent) || !in.Get(node.root) || !in.Get(node.last_use) || !in.Tokens(node.tokens))
      return broken();
    node.page = static_cast<cache::PageId>(i);
  }
  for (size_t i = 0; i < tree_.states.size(); i++) {
    cache::SavedTree::State& saved = tree_.states[i];
    uint32_t minor = 0;
    if (!in.Get(saved.node) || !in.Get(saved.tokens) || !in.Get(minor) || !in.Get(saved.last_use) ||
        !in.Get(slot_tokens_[i]))
      return broken();
    saved.minor = minor != 0;
    saved.slot = static_cast<int32_t>(i);
  }
  return in.done() ? Status() : broken();
}

Status CacheFile::ReadPiece(uint64_t at, uint64_t number, std::span<std::byte> bytes) const {
  uint64_t sum = 0;
  RIDGE_RETURN_IF_ERROR(ReadAt(at, bytes.data(), bytes.size()));
  RIDGE_RETURN_IF_ERROR(ReadAt(at + bytes.size(), &sum, sizeof sum));
  if (sum == HashAt(number, bytes)) return {};
  return Fail(Code::kInvalidData, "the saved prefix cache is damaged")
      .Where(path_)
      .Found("piece " + std::to_string(number) + " has another checksum");
}

Status CacheFile::ReadPage(size_t node, std::span<std::byte> bytes) const {
  return ReadPiece(sizeof(Head) + index_bytes_ + kHashBytes + node * (page_bytes_ + kHashBytes), node, bytes);
}

Status CacheFile::ReadSlot(size_t state, std::span<std::byte> bytes, int64_t& tokens) const {
  tokens = slot_tokens_[state];
  const uint64_t pages_end = sizeof(Head) + index_bytes_ + kHashBytes + tree_.nodes.size() * (page_bytes_ + kHashBytes);
  return ReadPiece(pages_end + state * (slot_bytes_ + kHashBytes), tree_.nodes.size() + state, bytes);
}

}  // namespace ridge::engine
