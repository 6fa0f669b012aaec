// SHA-256 digests: the only names that blobs of the store have.
//
//   RIDGE_ASSIGN_OR_RETURN(Digest digest,
//   ParseDigest("sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")); Sha256 hash;
//   hash.Update(bytes); if (hash.Finish() != digest) ...
//
// Guarantees: a Digest is 32 bytes, so no text that came over the network ever becomes part of a path. ParseDigest
// takes exactly 64 hexadecimal digits, with or without "sha256:" (or "sha256-") before them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ridge::hub {

struct Digest {
  std::array<uint8_t, 32> bytes{};
  std::string Hex() const;   // 64 lower-case digits
  std::string Text() const;  // "sha256:" and Hex()
  auto operator<=>(const Digest&) const = default;
};

// Errors: kInvalidData with the text found.
Result<Digest> ParseDigest(std::string_view text);

// Streaming hash. One thread at a time.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(std::as_bytes(std::span(text.data(), text.size()))); }
  Digest Finish();  // and starts anew

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest HashText(std::string_view text);
Result<Digest> HashFile(const std::string& path);

}  // namespace ridge::hub
