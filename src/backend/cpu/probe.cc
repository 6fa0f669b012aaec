#include "backend/probe.h"

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/state.h"
#include "base/cpu.h"
#include "quant/quant.h"

namespace ridge::backend {
namespace {

using Loop = int64_t (*)(int64_t, int32_t, float*);

// Where results go, so that no compiler can drop the work.
void Keep(float value) {
  [[maybe_unused]] static thread_local volatile float sink;
  sink = value;
}

std::function<double(int64_t)> Counting(Loop loop) {
  if (loop == nullptr) return {};
  return [loop](int64_t rounds) {
    float sink = 0;
    const int64_t operations = loop(rounds, 1, &sink);
    Keep(sink);
    return static_cast<double>(operations);
  };
}

// One token in each form that a kernel may ask for.
struct Token {
  std::vector<float> x;
  std::vector<int8_t> q;
  std::vector<float> d;
  std::vector<int32_t> sums;
  cpu::ActView view;
};

std::shared_ptr<const Token> MakeToken(const cpu::Kernels& kernels, cpu::ActKind act, int64_t columns) {
  auto token = std::make_shared<Token>();
  const size_t n = static_cast<size_t>(columns);
  token->x.resize(n);
  for (size_t i = 0; i < n; i++) token->x[i] = static_cast<float>(i * 37 % 101) / 50.0f - 1.0f;
  token->q.resize(n);
  token->d.resize(static_cast<size_t>(cpu::ActScales(act, columns)));
  token->sums.resize(static_cast<size_t>(cpu::ActSums(act, columns)));
  if (act == cpu::ActKind::kQ8x32)
    kernels.quantize_q8x32(token->x.data(), columns, token->q.data(), token->d.data(), token->sums.data());
  else if (act == cpu::ActKind::kQ8x256)
    kernels.quantize_q8x256(token->x.data(), columns, token->q.data(), token->d.data(), token->sums.data());
  token->view = {.f32 = token->x.data(),
                 .f32_stride = columns,
                 .q = token->q.data(),
                 .d = token->d.data(),
                 .sums = token->sums.data(),
                 .k = columns};
  return token;
}

}  // namespace

std::vector<PeakProbe> CpuPeaks() {
  std::vector<PeakProbe> probes;
  for (const IsaInfo& isa : CpuIsas()) {
    if (!isa.supported) continue;
    const cpu::PeakLoops& loops = (*cpu::SelectKernels(isa.name))->peaks;
    const bool bf16 = loops.bf16 != nullptr && Cpu().avx512_bf16;
    probes.push_back({.isa = isa.name,
                      .int8 = Counting(loops.int8),
                      .bf16 = Counting(bf16 ? loops.bf16 : nullptr),
                      .fp32 = Counting(loops.fp32),
                      .read = [read = loops.read](const std::byte* data, size_t size_bytes, ReadPattern pattern) {
                        float sink = 0;
                        read(reinterpret_cast<const uint8_t*>(data), static_cast<int64_t>(size_bytes), pattern.streams,
                             pattern.ahead_bytes, &sink);
                        Keep(sink);
                      }});
  }
  return probes;
}

Result<std::vector<FormatProbe>> CpuFormats(const std::string& isa, int64_t columns) {
  RIDGE_ASSIGN_OR_RETURN(const cpu::Kernels* kernels, cpu::SelectKernels(isa));
  std::vector<FormatProbe> formats;
  for (const quant::Type& type : quant::Types()) {
    const std::optional<cpu::PanelKind> kind = cpu::PanelFor(type.id);
    if (!kind) continue;
    const cpu::ActKind act = cpu::ActOf(*kind);
    const int64_t panel_bytes = cpu::PanelBytes(*kind, columns);
    const double rows_bytes = static_cast<double>(columns / type.block_elements * type.block_bytes * 16);
    FormatProbe probe;
    probe.type = type.name;
    probe.kernel = cpu::Name(*kind);
    probe.integer = act != cpu::ActKind::kF32;
    probe.layout_ratio = static_cast<double>(panel_bytes) / rows_bytes;
    probe.panel_bytes = static_cast<size_t>(panel_bytes);
    probe.run_ = [token = MakeToken(*kernels, act, columns), matmul = kernels->matmul[static_cast<int>(*kind)],
                  panel_bytes](const std::byte* panels, int64_t n_panels, float* out) {
      matmul({.panels = reinterpret_cast<const uint8_t*>(panels),
              .panel_bytes = panel_bytes,
              .panel_begin = 0,
              .panel_end = n_panels,
              .n_rows = n_panels * cpu::kPanelRows,
              .x = token->view,
              .token_begin = 0,
              .token_end = 1,
              .out = out,
              .out_stride = n_panels * cpu::kPanelRows});
    };
    formats.push_back(std::move(probe));
  }
  return formats;
}

std::vector<AttentionProbe> CpuAttention() {
  const cpu::Kernels* kernels = *cpu::SelectKernels("");
  constexpr int64_t kPage = 32, kPages = AttentionProbe::kTokens / kPage, kTiles = kPage / cpu::kKvTile;
  std::vector<AttentionProbe> probes;
  for (const char* name : {"f16", "bf16", "f32", "q8_0", "q4_0"}) {
    const cpu::KvKind kind = cpu::KindOf(*ParseKvType(name));
    for (const int64_t head_dim : {64, 128}) {
      for (const int64_t group : {1, 2, 4, 8}) {
        AttentionProbe probe;
        probe.kv_type = name;
        probe.head_dim = head_dim;
        probe.group = group;
        const int64_t page_bytes = kTiles * cpu::KvTileBytes(kind, head_dim);
        probe.bytes = static_cast<size_t>(2 * kPages * page_bytes);
        probe.run_ = [=](const std::byte* kv) {
          thread_local std::vector<float> q, out, scratch;
          q.assign(static_cast<size_t>(group * head_dim), 0.01f);
          out.resize(q.size());
          scratch.resize(static_cast<size_t>(cpu::AttentionScratchFloats(head_dim)));
          std::vector<const float*> rows;
          std::vector<float*> outs;
          for (int64_t r = 0; r < group; r++)
            rows.push_back(q.data() + r * head_dim), outs.push_back(out.data() + r * head_dim);
          const std::vector<int64_t> lo(static_cast<size_t>(group), 0),
              hi(static_cast<size_t>(group), AttentionProbe::kTokens);
          std::vector<int32_t> pages(kPages);
          for (int32_t p = 0; p < kPages; p++) pages[static_cast<size_t>(p)] = p;
          const auto* k = reinterpret_cast<const uint8_t*>(kv);
          kernels->attention({.n_rows = group,
                              .q = rows.data(),
                              .out = outs.data(),
                              .lo = lo.data(),
                              .hi = hi.data(),
                              .k_kind = kind,
                              .v_kind = kind,
                              .k = k,
                              .v = k + kPages * page_bytes,
                              .k_page_bytes = page_bytes,
                              .v_page_bytes = page_bytes,
                              .pages = pages.data(),
                              .page_tokens = kPage,
                              .head_dim = head_dim,
                              .scale = 0.125f,
                              .scratch = scratch.data()});
          Keep(out[0]);
        };
        probes.push_back(std::move(probe));
      }
    }
  }
  return probes;
}

}  // namespace ridge::backend
