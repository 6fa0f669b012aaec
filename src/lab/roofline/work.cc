#include "lab/roofline/work.h"

#include <algorithm>

#include "backend/probe.h"
#include "quant/quant.h"

namespace ridge::lab {
namespace {

constexpr double kExplains = 0.5;  // of the time, the least that a floor must be to bound it

bool IsInteger(const std::string& type, const Roofline& roofline) {
  const FormatRow* row = roofline.Format(type);
  return row != nullptr && row->integer;
}

}  // namespace

Work& Work::Add(const Work& more, double times) {
  for (const auto& [type, w] : more.matmul) {
    matmul[type].bytes += times * w.bytes;
    matmul[type].flops += times * w.flops;
  }
  other_bytes += times * more.other_bytes;
  other_flops += times * more.other_flops;
  return *this;
}

Work WorkOf(const graph::Graph& graph, const graph::Load& load) {
  Work work;
  for (const graph::Op& op : graph.ops()) {
    const graph::Cost cost = graph::CostOf(graph, op, load);
    if (op.kind != graph::OpKind::kMatMul && op.kind != graph::OpKind::kExperts) {
      work.other_bytes += cost.bytes_read;
      work.other_flops += cost.flops;
      continue;
    }
    // The parts of an expert op may be of different types: its cost is divided by their sizes.
    double elements = 0, bytes = 0;
    for (graph::WeightId id : op.weights) {
      const graph::Weight& w = graph.weight(id);
      elements += static_cast<double>(w.k() * w.n());
      bytes += static_cast<double>(w.data.size());
    }
    for (graph::WeightId id : op.weights) {
      const graph::Weight& w = graph.weight(id);
      Work::Weights& part = work.matmul[std::string(quant::Get(w.type).name)];
      if (bytes > 0) part.bytes += cost.bytes_read * static_cast<double>(w.data.size()) / bytes;
      if (elements > 0) part.flops += cost.flops * static_cast<double>(w.k() * w.n()) / elements;
    }
  }
  return work;
}

std::optional<double> Floors::largest() const {
  if (!memory_s || !unpack_s || !arithmetic_s) return std::nullopt;
  return std::max({*memory_s, *unpack_s, *arithmetic_s});
}

double LayoutBytes(const Work& work) {
  double bytes = work.other_bytes;
  const auto formats = backend::CpuFormats("", 256);
  for (const auto& [type, w] : work.matmul) {
    double ratio = 1;  // a type without a kernel keeps its rows as they are
    for (const backend::FormatProbe& format : *formats) {
      if (format.type == type) ratio = format.layout_ratio;
    }
    bytes += ratio * w.bytes;
  }
  return bytes;
}

double Flops(const Work& work) {
  double flops = work.other_flops;
  for (const auto& [type, w] : work.matmul) flops += w.flops;
  return flops;
}

Floors FloorsOf(const Work& work, const Roofline& roofline, const Circumstances& at) {
  Floors floors;
  double integer_flops = 0, float_flops = work.other_flops;
  double unpack_s = 0, kernels_s = 0;
  bool formats_known = roofline.isa == at.isa;
  // Kernels were measured at all threads; in caches they scale with the threads.
  const double part = static_cast<double>(std::min(at.threads, roofline.threads)) / roofline.threads;
  floors.bytes = work.other_bytes;
  for (const auto& [type, w] : work.matmul) {
    const FormatRow* format = roofline.Format(type);
    const double bytes = w.bytes * (format == nullptr ? 1 : format->layout_ratio);
    floors.bytes += bytes;
    (IsInteger(type, roofline) ? integer_flops : float_flops) += w.flops;
    if (format == nullptr) {  // decoded to float32 each time: no rate of that was measured
      formats_known = false;
      continue;
    }
    unpack_s += bytes / (format->gbps_l2 * part * 1e9);
    kernels_s += bytes / (format->gbps_memory * 1e9);
  }
  const std::optional<double> read = roofline.ReadGbps(at.threads), int8 = roofline.Int8Gops(at.isa, at.threads),
                              fp32 = roofline.Fp32Gflops(at.isa, at.threads);
  if (read) floors.memory_s = floors.bytes / (*read * 1e9);
  if (int8 && fp32) floors.arithmetic_s = integer_flops / (*int8 * 1e9) + float_flops / (*fp32 * 1e9);
  if (!at.decode)
    floors.unpack_s = 0;
  else if (formats_known)
    floors.unpack_s = unpack_s;
  if (formats_known && read && at.threads >= roofline.threads)
    floors.kernels_s = kernels_s + work.other_bytes / (*read * 1e9);
  return floors;
}

std::string_view Name(Limit limit) {
  switch (limit) {
    case Limit::kMemory: return "memory";
    case Limit::kUnpack: return "unpack";
    case Limit::kArithmetic: return "arithmetic";
    case Limit::kOverhead: return "overhead";
  }
  return "?";
}

std::optional<Bound> BoundOf(const Floors& floors, double measured_s) {
  const std::optional<double> largest = floors.largest();
  if (!largest || measured_s <= 0) return std::nullopt;
  const double share = *largest / measured_s;
  if (share < kExplains) return Bound{Limit::kOverhead, share};
  if (*largest == *floors.memory_s) return Bound{Limit::kMemory, share};
  return Bound{*largest == *floors.unpack_s ? Limit::kUnpack : Limit::kArithmetic, share};
}

}  // namespace ridge::lab
