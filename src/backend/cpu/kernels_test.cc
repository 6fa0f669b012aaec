// Every kernel of every target against the scalar one, bit for bit, and the scalar one against plain double arithmetic.
#include "backend/cpu/kernels/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/test_rows.h"
#include "quant/quant.h"

namespace ridge::cpu {
namespace {

std::vector<const Kernels*> FastTargets() {
  std::vector<const Kernels*> targets;
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    if (isa.supported && isa.name != "scalar") targets.push_back(SelectKernels(isa.name).value());
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

// As SameBits, but a NaN is a NaN: which payload survives is up to the instruction.
bool SameBitsOrNan(std::vector<float> a, std::vector<float> b) {
  for (std::vector<float>* x : {&a, &b}) {
    for (float& v : *x) v = std::isnan(v) ? std::numeric_limits<float>::quiet_NaN() : v;
  }
  return SameBits(a, b);
}

// A random matrix [n, k] of one type, in GGUF rows and in panels.
struct TestMatrix {
  const quant::Type* type;
  PanelKind kind;
  int64_t n, k;
  std::vector<std::byte> rows;
  std::vector<uint8_t> panels;
  std::vector<float> decoded;

  TestMatrix(const quant::Type& t, int64_t n_rows, int64_t cols, uint32_t seed)
      : type(&t), kind(*PanelFor(t.id)), n(n_rows), k(cols) {
    const int64_t row_bytes = k / t.block_elements * t.block_bytes;
    rows = TestRows(t, static_cast<size_t>(n * k), seed);
    decoded.resize(static_cast<size_t>(n * k));
    t.decode(rows.data(), decoded.data(), static_cast<size_t>(n * k) / t.block_elements);
    const int64_t n_panels = (n + kPanelRows - 1) / kPanelRows, bytes = PanelBytes(kind, k);
    panels.assign(static_cast<size_t>(n_panels * bytes), 0);
    for (int64_t p = 0; p < n_panels; p++) {
      PackPanel(t.id, rows.data() + p * kPanelRows * row_bytes, std::min<int64_t>(kPanelRows, n - p * kPanelRows), k,
                panels.data() + p * bytes);
    }
  }
};

struct Activations {
  std::vector<float> x, d;
  std::vector<int8_t> q;
  std::vector<int32_t> sums;
  int64_t k;

  Activations(const Kernels& kernels, ActKind act, std::vector<float> values, int64_t cols)
      : x(std::move(values)), k(cols) {
    const int64_t tokens = static_cast<int64_t>(x.size()) / k, scales = ActScales(act, k), n_sums = ActSums(act, k);
    if (act == ActKind::kF32) return;
    q.resize(x.size());
    d.resize(static_cast<size_t>(tokens * scales));
    sums.resize(static_cast<size_t>(tokens * n_sums));
    const auto quantize = act == ActKind::kQ8x32 ? kernels.quantize_q8x32 : kernels.quantize_q8x256;
    for (int64_t t = 0; t < tokens; t++)
      quantize(x.data() + t * k, k, q.data() + t * k, d.data() + t * scales, sums.data() + t * n_sums);
  }
  ActView view() const {
    return {.f32 = x.data(), .f32_stride = k, .q = q.data(), .d = d.data(), .sums = sums.data(), .k = k};
  }
};

constexpr float kPoison = 1234567.0f;

// The product, in a buffer whose padding is poisoned; checks that the padding is untouched, and that the tiles for both kinds of processors agree.
std::vector<float> Multiply(const Kernels& kernels, const TestMatrix& m, const Activations& a, int64_t tokens,
                            const float* bias) {
  const int64_t stride = m.n + 5;
  std::vector<float> out(static_cast<size_t>(tokens * stride), kPoison);
  MatMulArgs args{.panels = m.panels.data(),
                  .panel_bytes = PanelBytes(m.kind, m.k),
                  .panel_begin = 0,
                  .panel_end = (m.n + kPanelRows - 1) / kPanelRows,
                  .n_rows = m.n,
                  .x = a.view(),
                  .token_begin = 0,
                  .token_end = tokens,
                  .out = out.data(),
                  .out_stride = stride,
                  .bias = bias};
  kernels.matmul[static_cast<int>(m.kind)](args);
  std::vector<float> narrow(out.size(), kPoison);
  args.out = narrow.data();
  args.narrow_ports = true;
  kernels.matmul[static_cast<int>(m.kind)](args);
  EXPECT_TRUE(SameBitsOrNan(out, narrow)) << kernels.isa << ": the tiles of another processor";
  for (int64_t t = 0; t < tokens; t++) {
    for (int64_t i = m.n; i < stride; i++)
      EXPECT_EQ(out[static_cast<size_t>(t * stride + i)], kPoison) << "padding overwritten";
  }
  return out;
}

std::vector<quant::TypeId> PanelTypes() {
  std::vector<quant::TypeId> types;
  for (const quant::Type& type : quant::Types()) {
    if (PanelFor(type.id)) types.push_back(type.id);
  }
  return types;
}

class MatMulTest : public ::testing::TestWithParam<quant::TypeId> {
 protected:
  const quant::Type& type() const { return quant::Get(GetParam()); }
};

TEST_P(MatMulTest, ScalarEqualsDoubleArithmetic) {
  const TestMatrix m(type(), 37, 512, 1);
  const Activations a(kScalarKernels, ActOf(m.kind), Normal(3 * 512, 2), 512);
  const std::vector<float> bias = Normal(37, 3), out = Multiply(kScalarKernels, m, a, 3, bias.data());
  const int64_t block = ActOf(m.kind) == ActKind::kQ8x256 ? 256 : 32;
  for (int64_t t = 0; t < 3; t++) {
    for (int64_t r = 0; r < m.n; r++) {
      double sum = bias[static_cast<size_t>(r)], size = 0;
      for (int64_t k = 0; k < m.k; k++) {
        const double x = a.q.empty() ? a.x[static_cast<size_t>(t * m.k + k)]
                                     : static_cast<double>(a.q[static_cast<size_t>(t * m.k + k)]) *
                                           a.d[static_cast<size_t>(t * ActScales(ActOf(m.kind), m.k) + k / block)];
        sum += x * m.decoded[static_cast<size_t>(r * m.k + k)];
        size += std::abs(x * m.decoded[static_cast<size_t>(r * m.k + k)]);
      }
      EXPECT_NEAR(out[static_cast<size_t>(t * (m.n + 5) + r)], sum, 1e-5 * size + 1e-6)
          << type().name << " token " << t << " row " << r;
    }
  }
}

TEST_P(MatMulTest, EveryTargetEqualsScalar) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 256}, {53, 512}, {100, 256}}) {
    const TestMatrix m(type(), n, k, static_cast<uint32_t>(n));
    for (int64_t tokens : {1, 2, 5, 8, 17, 70}) {
      const std::vector<float> x = Normal(static_cast<size_t>(tokens * k), static_cast<uint32_t>(tokens));
      const Activations scalar(kScalarKernels, ActOf(m.kind), x, k);
      const std::vector<float> want = Multiply(kScalarKernels, m, scalar, tokens, nullptr);
      for (const Kernels* kernels : FastTargets()) {
        const Activations fast(*kernels, ActOf(m.kind), x, k);
        EXPECT_EQ(scalar.q, fast.q) << kernels->isa;
        EXPECT_TRUE(SameBits(scalar.d, fast.d)) << kernels->isa;
        EXPECT_EQ(scalar.sums, fast.sums) << kernels->isa;
        EXPECT_TRUE(SameBits(want, Multiply(*kernels, m, fast, tokens, nullptr)))
            << kernels->isa << " " << type().name << " " << n << "x" << k << " tokens " << tokens;
      }
    }
  }
}

// A residual, added in place, gives what a product with a bias and then an addition give.
TEST_P(MatMulTest, ResidualEqualsAdditionAfterwards) {
  const TestMatrix m(type(), 53, 512, 3);
  const int64_t tokens = 13, stride = m.n;
  const std::vector<float> x = Normal(static_cast<size_t>(tokens * m.k), 4), bias = Normal(53, 5),
                           residual = Normal(static_cast<size_t>(tokens * stride), 6);
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    if (!isa.supported) continue;
    const Kernels& kernels = **SelectKernels(isa.name);
    const Activations a(kernels, ActOf(m.kind), x, m.k);
    for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
      std::vector<float> want(residual.size()), got = residual;
      MatMulArgs args{.panels = m.panels.data(),
                      .panel_bytes = PanelBytes(m.kind, m.k),
                      .panel_begin = 0,
                      .panel_end = (m.n + kPanelRows - 1) / kPanelRows,
                      .n_rows = m.n,
                      .x = a.view(),
                      .token_begin = 0,
                      .token_end = tokens,
                      .out = want.data(),
                      .out_stride = stride,
                      .bias = b};
      kernels.matmul[static_cast<int>(m.kind)](args);
      kernels.add(residual.data(), want.data(), static_cast<int64_t>(want.size()), want.data());
      args.out = got.data();
      args.residual = got.data();
      kernels.matmul[static_cast<int>(m.kind)](args);
      EXPECT_TRUE(SameBits(want, got)) << isa.name << (b ? " with bias" : "");
    }
  }
}

// One row of the result must not depend on how many tokens stand beside it: neither in a tile nor where many share what is unpacked.
TEST_P(MatMulTest, TokensDoNotSeeEachOther) {
  const int64_t k =
      ActOf(*PanelFor(GetParam())) == ActKind::kQ8x256 ? 512 : 352;  // not whole chunks of 256 where blocks are short
  const TestMatrix m(type(), 40, k, 9);
  for (const int64_t tokens : {11, 69}) {
    const std::vector<float> x = Normal(static_cast<size_t>(tokens * k), 4);
    for (const backend::IsaInfo& isa : backend::CpuIsas()) {
      if (!isa.supported) continue;
      const Kernels& kernels = **SelectKernels(isa.name);
      const std::vector<float> all = Multiply(kernels, m, Activations(kernels, ActOf(m.kind), x, k), tokens, nullptr);
      for (int64_t t = 0; t < tokens; t++) {
        const Activations alone(kernels, ActOf(m.kind), std::vector<float>(x.begin() + t * k, x.begin() + (t + 1) * k),
                                k);
        const std::vector<float> one = Multiply(kernels, m, alone, 1, nullptr);
        EXPECT_EQ(std::memcmp(one.data(), all.data() + t * 45, 40 * sizeof(float)), 0) << isa.name << " token " << t;
      }
    }
  }
}

// All quants at their extremes, scales zero or subnormal, activations huge: whatever comes out, all targets agree.
TEST_P(MatMulTest, ExtremesAgree) {
  for (const Kernels* kernels : FastTargets()) {
    for (uint32_t fill : {0x00u, 0xffu, 0x7fu, 0x80u}) {
      TestMatrix m(type(), 32, 512, 5);
      if (ActOf(m.kind) == ActKind::kF32) continue;  // any bit pattern may be a NaN there
      const int64_t row_bytes = m.k / m.type->block_elements * m.type->block_bytes;
      for (int64_t r = 0; r < m.n; r += 2) {
        for (int64_t b = 0; b < m.k / m.type->block_elements; b++) {
          std::byte* block = m.rows.data() + r * row_bytes + b * m.type->block_bytes;
          // All but the first two bytes, where most types have their scale; elsewhere the scale becomes whatever the fill says.
          std::memset(block + 2, static_cast<int>(fill), static_cast<size_t>(m.type->block_bytes - 2));
          if (r % 4 == 0) std::memset(block, r % 8 == 0 ? 0 : 1, 2);  // d = 0, or subnormal
        }
      }
      for (int64_t p = 0; p < 2; p++)
        PackPanel(m.type->id, m.rows.data() + p * 16 * row_bytes, 16, m.k,
                  m.panels.data() + p * PanelBytes(m.kind, m.k));
      const int64_t tokens = 20;  // five times the same four
      std::vector<float> x = Normal(4 * 512, 6, 1e30f);
      x[5] = 0;
      for (size_t i = 512; i < 1024; i++) x[i] = 1e-40f;                      // subnormal
      for (size_t i = 1024; i < 1536; i++) x[i] = i % 2 == 0 ? 1.0f : -1.0f;  // all at +-127
      for (size_t i = 1536; i < 2048; i++) x[i] = i < 1792 ? 1.0f : -1.0f;    // the largest sums that there are
      for (size_t i = 2048; i < static_cast<size_t>(tokens) * 512; i++) x.push_back(x[i - 2048]);
      const Activations scalar(kScalarKernels, ActOf(m.kind), x, 512), fast(*kernels, ActOf(m.kind), x, 512);
      EXPECT_EQ(scalar.q, fast.q);
      const std::vector<float> want = Multiply(kScalarKernels, m, scalar, 4, nullptr),
                               many = Multiply(*kernels, m, fast, tokens, nullptr);
      EXPECT_TRUE(SameBitsOrNan(want, Multiply(*kernels, m, fast, 4, nullptr)))
          << kernels->isa << " " << type().name << " fill " << fill;
      for (auto from = many.begin(); from != many.end(); from += static_cast<std::ptrdiff_t>(want.size()))
        EXPECT_TRUE(SameBitsOrNan(want, std::vector<float>(from, from + static_cast<std::ptrdiff_t>(want.size()))))
            << kernels->isa << " " << type().name << " fill " << fill;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, MatMulTest, ::testing::ValuesIn(PanelTypes()),
                         [](const auto& p) { return std::string(quant::Get(p.param).name); });

TEST(Pack, EveryPanelKindHasAType) {
  std::vector<bool> seen(static_cast<size_t>(PanelKind::kCount));
  for (quant::TypeId type : PanelTypes()) seen[static_cast<size_t>(*PanelFor(type))] = true;
  for (size_t i = 0; i < seen.size(); i++) EXPECT_TRUE(seen[i]) << Name(static_cast<PanelKind>(i));
}

TEST(Quantize, InfinityAndNanMakeTheBlockNan) {
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    if (!isa.supported) continue;
    const Kernels& kernels = **SelectKernels(isa.name);
    for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<float> x = Normal(64, 1);
      x[40] = bad;
      std::vector<int8_t> q(64, 99);
      std::vector<float> d(4);
      std::vector<int32_t> sums(2, 99);
      kernels.quantize_q8x32(x.data(), 64, q.data(), d.data(), sums.data());
      EXPECT_TRUE(std::isfinite(d[0]));
      EXPECT_TRUE(std::isnan(d[1]));
      EXPECT_EQ(sums[1], 0);
      for (size_t i = 32; i < 64; i++) EXPECT_EQ(q[i], 0);
    }
  }
}

TEST(Elementwise, EveryTargetEqualsScalar) {
  for (const Kernels* k : FastTargets()) {
    for (int64_t n : {1, 3, 8, 15, 16, 17, 64, 100, 1000}) {
      std::vector<float> a = Normal(static_cast<size_t>(n), 1, 5), b = Normal(static_cast<size_t>(n), 2);
      a[0] = -100;
      if (n > 2) a[1] = 100, a[2] = -0.0f;
      const auto both = [&](auto run) {
        std::vector<float> x(a.size(), kPoison), y(a.size(), kPoison);
        run(kScalarKernels, x);
        run(*k, y);
        EXPECT_TRUE(SameBits(x, y)) << k->isa << " n " << n;
      };
      for (GateKind kind : {GateKind::kSilu, GateKind::kGeluTanh, GateKind::kSigmoid}) {
        both([&](const Kernels& t, std::vector<float>& out) { t.gated_act(a.data(), b.data(), kind, n, out.data()); });
      }
      both([&](const Kernels& t, std::vector<float>& out) { t.rms_norm(a.data(), b.data(), n, 1e-5f, out.data()); });
      both([&](const Kernels& t, std::vector<float>& out) {
        t.layer_norm(a.data(), b.data(), a.data(), n, 1e-5f, out.data());
      });
      both([&](const Kernels& t, std::vector<float>& out) {
        t.gated_act(a.data(), nullptr, GateKind::kGeluTanh, n, out.data());
      });
      both([&](const Kernels& t, std::vector<float>& out) { t.add(a.data(), b.data(), n, out.data()); });
      both([&](const Kernels& t, std::vector<float>& out) { t.softcap(a.data(), 30, n, out.data()); });
      both([&](const Kernels& t, std::vector<float>& out) {
        out = a;
        t.softmax(out.data(), n);
      });
      both([&](const Kernels& t, std::vector<float>& out) {
        out = a;
        t.axpy(0.3f, b.data(), n, out.data());
      });
      if (n % 2 == 0) {
        for (bool interleaved : {false, true}) {
          both([&](const Kernels& t, std::vector<float>& out) {
            out = a;
            t.rope(out.data(), b.data(), b.data() + n / 2, n, interleaved);
          });
        }
      }
    }
  }
}

TEST(Elementwise, FunctionsAreAccurate) {
  std::vector<float> x, ones;
  for (float v = -80; v < 80; v += 0.037f) x.push_back(v), ones.push_back(1);
  std::vector<float> silu(x.size()), gelu(x.size()), cap(x.size());
  kScalarKernels.gated_act(x.data(), ones.data(), GateKind::kSilu, static_cast<int64_t>(x.size()), silu.data());
  kScalarKernels.gated_act(x.data(), ones.data(), GateKind::kGeluTanh, static_cast<int64_t>(x.size()), gelu.data());
  kScalarKernels.softcap(x.data(), 30, static_cast<int64_t>(x.size()), cap.data());
  for (size_t i = 0; i < x.size(); i++) {
    const double v = x[i], z = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    EXPECT_NEAR(silu[i], v / (1 + std::exp(-v)), 3e-7 * std::abs(v) + 1e-30);
    EXPECT_NEAR(gelu[i], 0.5 * v * (1 + std::tanh(z)), 2e-6 * std::abs(v) + 1e-30);
    EXPECT_NEAR(cap[i], 30 * std::tanh(v / 30), 1e-5);
  }
}

}  // namespace
}  // namespace ridge::cpu
