// Seeded inputs and the hash of the digests: integers and exact float operations only, so that every machine makes the same bytes.
//
//   Random random(7); std::vector<float> x = random.Floats(64, 1.0f);
//   Hash hash; hash.Floats(out.data(), out.size()); fmt: hash.Hex()
//
// Guarantee: the same on every compiler and CPU (no math library, no std distribution). A NaN is hashed as one NaN: sign and payload
// are not part of the contract (docs/numerics.md).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace ridge::digest {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567) {}
  uint64_t Next() {  // splitmix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() >> 33) % n; }
  // The sum of four uniform integers: bell-shaped, mean 0, about [-2, 2] * scale.
  float Float(float scale) {
    int32_t sum = 0;
    const uint64_t bits = Next();
    for (int i = 0; i < 4; i++) sum += static_cast<int16_t>(bits >> (16 * i));
    return static_cast<float>(sum) * (scale / 65536.0f);
  }
  std::vector<float> Floats(int64_t n, float scale) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = Float(scale);
    return x;
  }
  void Bytes(void* to, size_t n) {
    for (size_t i = 0; i < n; i++) static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(Next() >> 40);
  }

 private:
  uint64_t state_;
};

class Hash {
 public:
  void Word(uint64_t x) {
    state_ ^= x;
    state_ *= 0xff51afd7ed558ccdu;
    state_ ^= state_ >> 32;
    state_ *= 0xc4ceb9fe1a85ec53u;
    state_ ^= state_ >> 29;
  }
  void Floats(const float* x, size_t n) {
    for (size_t i = 0; i < n; i++) {
      uint32_t bits = 0x7fc00000;
      if (!std::isnan(x[i])) std::memcpy(&bits, x + i, 4);
      Word(bits);
    }
  }
  void Floats(const std::vector<float>& x) { Floats(x.data(), x.size()); }
  void Bytes(const void* x, size_t n) {
    for (size_t i = 0; i < n; i++) Word(static_cast<const uint8_t*>(x)[i]);
  }
  std::string Hex() const {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(state_));
    return text;
  }

 private:
  uint64_t state_ = 0x243f6a8885a308d3u;
};

}  // namespace ridge::digest
