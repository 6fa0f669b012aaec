#include "hub/digest.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "hub/files.h"

namespace ridge::hub {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Digest::Hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(64);
  for (uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string Digest::Text() const { return "sha256:" + Hex(); }

Result<Digest> ParseDigest(std::string_view text) {
  std::string_view hex = text;
  if (hex.starts_with("sha256:") || hex.starts_with("sha256-")) hex.remove_prefix(7);
  Digest digest;
  bool good = hex.size() == 64;
  for (size_t i = 0; good && i < 64; ++i) {
    const int value = HexValue(hex[i]);
    good = value >= 0;
    if (good) digest.bytes[i / 2] = static_cast<uint8_t>(digest.bytes[i / 2] << 4 | value);
  }
  if (!good) {
    return Fail(Code::kInvalidData, "not a SHA-256 digest")
        .Found('"' + std::string(text.substr(0, 80)) + '"')
        .Expected("sha256: and 64 hexadecimal digits");
  }
  return digest;
}

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  RIDGE_CHECK(state_->context != nullptr && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::span<const std::byte> bytes) {
  RIDGE_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

Digest Sha256::Finish() {
  Digest digest;
  unsigned size_bytes = 0;
  RIDGE_CHECK(EVP_DigestFinal_ex(state_->context, digest.bytes.data(), &size_bytes) == 1 && size_bytes == 32);
  RIDGE_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
  return digest;
}

Digest HashText(std::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return hash.Finish();
}

Result<Digest> HashFile(const std::string& path) {
  RIDGE_ASSIGN_OR_RETURN(Descriptor file, OpenFile(path, O_RDONLY));
  Sha256 hash;
  std::vector<std::byte> buffer(1 << 20);
  while (true) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FailErrno(errno, "cannot read file", path);
    if (count == 0) return hash.Finish();
    hash.Update(std::span(buffer).first(static_cast<size_t>(count)));
  }
}

}  // namespace ridge::hub
