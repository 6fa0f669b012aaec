// Attention kernels: against double arithmetic, and every target, page size, tiling and split of the work bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/kernels.h"
#include "quant/quant.h"

namespace ridge::cpu {
namespace {

constexpr KvKind kKinds[] = {KvKind::kF16, KvKind::kBF16, KvKind::kF32, KvKind::kQ8_0, KvKind::kQ4_0};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<const Kernels*> Targets() {
  std::vector<const Kernels*> targets;
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    if (isa.supported) targets.push_back(SelectKernels(isa.name).value());
  }
  return targets;
}

std::vector<float> Normal(size_t n, uint32_t seed, float scale = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

struct Case {
  int64_t head_dim, page_tokens, n_tokens;
  std::vector<int64_t> lo, hi;
  KvKind k = KvKind::kF16, v = KvKind::kF16;
  std::vector<float> keys, values, queries;  // [n_tokens, head_dim], [rows, head_dim]
};

Case RandomCase(KvKind k, KvKind v, int64_t head_dim, int64_t n_tokens, std::vector<int64_t> lo,
                std::vector<int64_t> hi) {
  const size_t n = static_cast<size_t>(n_tokens * head_dim), rows = lo.size();
  return {head_dim, 32, n_tokens,      std::move(lo), std::move(hi),
          k,        v,  Normal(n, 11), Normal(n, 12), Normal(rows * static_cast<size_t>(head_dim), 13)};
}

enum class Way { kWhole, kParts, kFull };

// Runs one target over KV in shuffled pages. Slots that hold no token are poisoned with NaN.
std::vector<float> Attend(const Kernels& kernels, const Case& c, Way way = Way::kWhole) {
  const int64_t pages = (c.n_tokens + c.page_tokens - 1) / c.page_tokens, tiles = c.page_tokens / kKvTile;
  const int64_t k_tile = KvTileBytes(c.k, c.head_dim), v_tile = KvTileBytes(c.v, c.head_dim);
  const PageGroups groups{.shift = 1, .bytes = 2 * tiles * (k_tile + v_tile)};  // two pages of K, two of V
  std::vector<uint8_t> kv(static_cast<size_t>((pages + 1) / 2 * groups.bytes), 0xff);
  uint8_t *k = kv.data(), *v = k + 2 * tiles * k_tile;
  std::vector<int32_t> table(static_cast<size_t>(pages));
  for (int64_t p = 0; p < pages; p++) table[static_cast<size_t>(p)] = static_cast<int32_t>(pages - 1 - p);
  for (int64_t t = 0; t < c.n_tokens; t++) {
    const int64_t page = table[static_cast<size_t>(t / c.page_tokens)], tile = t % c.page_tokens / kKvTile;
    kernels.store_k[static_cast<int>(c.k)](c.keys.data() + t * c.head_dim, c.head_dim,
                                           k + groups.At(page, tiles * k_tile) + tile * k_tile, t % kKvTile);
    kernels.store_v[static_cast<int>(c.v)](c.values.data() + t * c.head_dim, c.head_dim,
                                           v + groups.At(page, tiles * v_tile) + tile * v_tile, t % kKvTile);
  }
  const int64_t rows = static_cast<int64_t>(c.lo.size()), stride = c.n_tokens / 16 * 16 + 32;
  std::vector<float> out(c.queries.size()), full(static_cast<size_t>(kMaxTileRows * stride));
  std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(c.head_dim)), std::nanf(""));
  std::vector<const float*> q_rows;
  std::vector<float*> out_rows;
  for (int64_t r = 0; r < rows; r++)
    q_rows.push_back(c.queries.data() + r * c.head_dim), out_rows.push_back(out.data() + r * c.head_dim);
  AttentionArgs args{.n_rows = rows,
                     .q = q_rows.data(),
                     .out = out_rows.data(),
                     .lo = c.lo.data(),
                     .hi = c.hi.data(),
                     .k_kind = c.k,
                     .v_kind = c.v,
                     .k = k,
                     .v = v,
                     .k_page_bytes = tiles * k_tile,
                     .v_page_bytes = tiles * v_tile,
                     .groups = groups,
                     .pages = table.data(),
                     .page_tokens = c.page_tokens,
                     .head_dim = c.head_dim,
                     .scale = 0.125f,
                     .scratch = scratch.data()};
  if (way == Way::kParts) {
    const int64_t splits = (c.n_tokens + kKvSplit - 1) / kKvSplit, part = AttentionPartFloats(c.head_dim);
    std::vector<float> parts(static_cast<size_t>(splits * rows * part), std::nanf(""));
    for (int64_t s = splits - 1; s >= 0; s -= 2) {  // in pieces of two, the last first
      args.split_begin = std::max<int64_t>(0, s - 1), args.split_end = s + 1;
      args.parts = parts.data() + args.split_begin * rows * part;
      kernels.attention(args);
    }
    for (int64_t r = 0; r < rows; r++)
      kernels.combine_attention(parts.data() + r * part, splits, rows * part, c.head_dim,
                                out_rows[static_cast<size_t>(r)]);
    return out;
  }
  if (way == Way::kFull) args.full = full.data(), args.full_stride = stride;
  kernels.attention(args);
  return out;
}

Case FirstRows(Case c, size_t rows) {
  c.lo.resize(rows), c.hi.resize(rows);
  c.queries.resize(rows * static_cast<size_t>(c.head_dim));
  return c;
}

// What a type makes of a row, by its definition.
std::vector<float> Rounded(KvKind kind, std::vector<float> x) {
  for (size_t b = 0; b < x.size() && (kind == KvKind::kQ8_0 || kind == KvKind::kQ4_0); b += 32) {
    float top = 0;
    for (size_t i = b; i < b + 32; i++) top = std::abs(x[i]) > std::abs(top) ? x[i] : top;
    const float d = quant::HalfToFloat(quant::FloatToHalf(kind == KvKind::kQ8_0 ? std::abs(top) / 127 : top / -8));
    for (size_t i = b; i < b + 32; i++)
      x[i] = d == 0 ? 0
                    : d * std::clamp(std::nearbyint(x[i] * (1 / d)), kind == KvKind::kQ8_0 ? -128.0f : -8.0f,
                                     kind == KvKind::kQ8_0 ? 127.0f : 7.0f);
  }
  for (float& v : x) {
    if (kind == KvKind::kF16) v = quant::HalfToFloat(quant::FloatToHalf(v));
    if (kind == KvKind::kBF16) v = quant::Bf16ToFloat(quant::FloatToBf16(v));
  }
  return x;
}

class AttentionTest : public ::testing::TestWithParam<std::pair<KvKind, KvKind>> {};

TEST_P(AttentionTest, EqualsDoubleArithmetic) {
  const auto [k, v] = GetParam();
  const Case c = RandomCase(k, v, 64, 1200, {0, 700, 1100}, {1200, 1190, 1101});
  const std::vector<float> keys = Rounded(k, c.keys), values = Rounded(v, c.values);
  const bool blocks = k == KvKind::kQ8_0 || k == KvKind::kQ4_0;  // queries are rounded to 8 bits then
  for (Way way : {Way::kWhole, Way::kParts, Way::kFull}) {
    const std::vector<float> out = Attend(kScalarKernels, c, way);
    for (size_t r = 0; r < 3; r++) {
      std::vector<float> q(c.queries.begin() + static_cast<std::ptrdiff_t>(r * 64),
                           c.queries.begin() + static_cast<std::ptrdiff_t>(r * 64 + 64));
      for (size_t b = 0; b < 64 && blocks; b += 32) {
        float top = 0;
        for (size_t i = b; i < b + 32; i++) top = std::max(top, std::abs(q[i]));
        for (size_t i = b; i < b + 32; i++) q[i] = std::nearbyint(q[i] * (127 / top)) * (top / 127);
      }
      std::vector<double> p(1200, 0), want(64, 0);
      double sum = 0;
      for (int64_t t = c.lo[r]; t < c.hi[r]; t++) {
        double dot = 0;
        for (size_t i = 0; i < 64; i++) dot += static_cast<double>(q[i]) * keys[static_cast<size_t>(t) * 64 + i];
        sum += p[static_cast<size_t>(t)] = std::exp(dot * 0.125);
      }
      for (int64_t t = c.lo[r]; t < c.hi[r]; t++) {
        for (size_t i = 0; i < 64; i++)
          want[i] += p[static_cast<size_t>(t)] / sum * values[static_cast<size_t>(t) * 64 + i];
      }
      for (size_t i = 0; i < 64; i++) EXPECT_NEAR(out[r * 64 + i], want[i], 2e-6) << "row " << r << " channel " << i;
    }
  }
}

TEST_P(AttentionTest, TargetsPagesTilesAndPartsChangeNothing) {
  const auto [k, v] = GetParam();
  std::vector<int64_t> lo = {0, 3, 500, 520, 0, 1000, 17, 511, 255, 256, 0},
                       hi = {1, 515, 513, 1300, 1300, 1001, 1030, 512, 257, 300, 256};
  for (int64_t i = 0; i < 50; i++) lo.push_back(i % 3 == 0 ? 400 + i : 0), hi.push_back(1240 + i);
  for (int64_t head_dim : {int64_t{96}, k == KvKind::kF16 && v == KvKind::kF16 ? int64_t{80} : int64_t{64}}) {
    Case c = RandomCase(k, v, head_dim, 1300, lo, hi);
    c.page_tokens = 16;
    const std::vector<float> all = Attend(kScalarKernels, c), full = Attend(kScalarKernels, c, Way::kFull);
    for (float x : all) ASSERT_TRUE(std::isfinite(x));
    EXPECT_FALSE(SameBits(all, full));
    for (const Kernels* kernels : Targets()) {
      for (int64_t page : {16, 32, 128, 512}) {
        c.page_tokens = page;
        EXPECT_TRUE(SameBits(all, Attend(*kernels, c))) << kernels->isa << " page " << page;
      }
      EXPECT_TRUE(SameBits(all, Attend(*kernels, c, Way::kParts))) << kernels->isa;
      EXPECT_TRUE(SameBits(full, Attend(*kernels, c, Way::kFull))) << kernels->isa;
      // The first row alone, the first two, ...: row 0 has the same queries each time.
      for (size_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 40}) {
        const std::vector<float> some = Attend(*kernels, FirstRows(c, rows));
        EXPECT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0)
            << kernels->isa << " rows " << rows;
      }
    }
  }
}

// Whatever comes out of infinities, NaN, subnormals and the largest numbers, it is the same on every target, and a row that does not
// see such a token is not touched by it.
TEST_P(AttentionTest, ExtremesAgreeAndStayWhereTheyAreSeen) {
  const auto [k, v] = GetParam();
  std::vector<int64_t> lo = {0, 0, 0, 100, 200, 0, 0}, hi = {40, 41, 100, 230, 300, 257, 300};
  for (size_t i = 0; i < 21; i++) lo.push_back(lo[i]), hi.push_back(hi[i]);  // rows enough to widen K and V for
  const Case clean = RandomCase(k, v, 64, 300, lo, hi);
  const std::vector<float> untouched = Attend(kScalarKernels, clean);
  for (float bad : {kInfinity, -kInfinity, std::nanf(""), 1e30f, -3e38f, 1e-40f, 7e-8f, 0.0f}) {
    for (int where = 0; where < 3; where++) {  // in K, in V, in both
      Case c = clean;
      for (size_t i = 0; i < 64; i++) {  // token 40 whole, channel 7 of token 260
        if (where != 1) c.keys[40 * 64 + i] = bad;
        if (where != 0) c.values[40 * 64 + i] = bad;
      }
      if (where != 1) c.keys[260 * 64 + 7] = bad;
      if (where != 0) c.values[260 * 64 + 7] = bad;
      for (Way way : {Way::kWhole, Way::kParts, Way::kFull}) {
        const std::vector<float> want = Attend(kScalarKernels, c, way);
        for (const Kernels* kernels : Targets())
          EXPECT_TRUE(SameBits(want, Attend(*kernels, c, way))) << kernels->isa << " " << bad << " in " << where;
        if (way == Way::kFull) continue;
        for (size_t row : {0, 3})
          EXPECT_EQ(std::memcmp(want.data() + row * 64, untouched.data() + row * 64, 64 * sizeof(float)), 0)
              << bad << " reached row " << row;
        if (std::isnan(bad)) {
          EXPECT_TRUE(std::isnan(want[2 * 64 + 7])) << "NaN vanished";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, AttentionTest,
    ::testing::Values(std::pair{KvKind::kF16, KvKind::kF16}, std::pair{KvKind::kBF16, KvKind::kBF16},
                      std::pair{KvKind::kF32, KvKind::kF32}, std::pair{KvKind::kQ8_0, KvKind::kQ8_0},
                      std::pair{KvKind::kQ4_0, KvKind::kQ4_0}, std::pair{KvKind::kQ8_0, KvKind::kF16},
                      std::pair{KvKind::kF16, KvKind::kQ4_0}, std::pair{KvKind::kQ4_0, KvKind::kQ8_0}));

TEST(StoreKv, EveryTargetStoresTheSameBytes) {
  std::vector<float> x = Normal(16 * 64, 3, 4);
  x[5] = kInfinity, x[70] = std::nanf(""), x[130] = -0.0f, x[200] = 1e30f, x[300] = 1e-41f;
  for (size_t i = 320; i < 384; i++)
    x[i] = 1e-6f * static_cast<float>(i);  // scales that are subnormal in half precision
  for (size_t i = 384; i < 448; i++) x[i] = 0;
  for (size_t i = 448; i < 512; i++) x[i] = i % 2 == 0 ? 3.0f : -3.0f;
  for (KvKind kind : kKinds) {
    const auto bytes = [&](const Kernels& kernels, bool keys) {
      std::vector<uint8_t> tile(static_cast<size_t>(KvTileBytes(kind, 64)) + 64, 0xab);
      for (int64_t slot = 0; slot < 16; slot++)
        (keys ? kernels.store_k : kernels.store_v)[static_cast<int>(kind)](x.data() + slot * 64, 64, tile.data(), slot);
      for (size_t i = tile.size() - 64; i < tile.size(); i++) EXPECT_EQ(tile[i], 0xab) << "written past the tile";
      return tile;
    };
    for (bool keys : {true, false}) {
      const std::vector<uint8_t> want = bytes(kScalarKernels, keys);
      for (const Kernels* kernels : Targets())
        EXPECT_EQ(want, bytes(*kernels, keys)) << kernels->isa << " type " << static_cast<int>(kind);
    }
  }
}

TEST(StoreKv, HalfIsRoundedToNearestEven) {
  const std::vector<float> x = {1.0f,
                                65504.0f,
                                65519.9f,
                                65520.0f,
                                5.9604645e-8f,
                                2.9802322e-8f,
                                2.98023259e-8f,
                                1.00048828125f,
                                1.00146484375f,
                                -0.0f,
                                6.1e-5f,
                                1,
                                2,
                                3,
                                4,
                                5};
  for (const Kernels* kernels : Targets()) {
    std::vector<uint16_t> keys(16 * 16), values(16 * 16);
    kernels->store_k[static_cast<int>(KvKind::kF16)](x.data(), 16, reinterpret_cast<uint8_t*>(keys.data()), 3);
    kernels->store_v[static_cast<int>(KvKind::kF16)](x.data(), 16, reinterpret_cast<uint8_t*>(values.data()), 3);
    for (size_t i = 0; i < x.size(); i++) {
      EXPECT_EQ(keys[16 * i + 3], quant::FloatToHalf(x[i])) << x[i];
      EXPECT_EQ(values[3 * 16 + i], quant::FloatToHalf(x[i])) << x[i];
    }
  }
}

}  // namespace
}  // namespace ridge::cpu
