#include "lab/roofline/roofline.h"

#include <algorithm>
#include <cstdlib>

namespace ridge::lab {
namespace {

std::optional<double> Scaled(const std::optional<double>& all, int n_threads, int of) {
  if (!all) return std::nullopt;
  return *all * std::min(n_threads, of) / of;
}

const PeakRow* FindPeak(const Roofline& roofline, const std::string& isa) {
  for (const PeakRow& row : roofline.peaks) {
    if (row.isa == isa) return &row;
  }
  return nullptr;
}

}  // namespace

std::optional<double> Roofline::ReadGbps(int n_threads) const {
  std::optional<double> gbps;
  for (const ReadRow& row : read) {
    if (row.threads <= n_threads) gbps = row.gbps;
  }
  return gbps;
}

std::optional<double> Roofline::Int8Gops(const std::string& name, int n_threads) const {
  const PeakRow* row = FindPeak(*this, name);
  return row == nullptr ? std::nullopt : Scaled(row->int8_gops, n_threads, threads);
}

std::optional<double> Roofline::Fp32Gflops(const std::string& name, int n_threads) const {
  const PeakRow* row = FindPeak(*this, name);
  return row == nullptr ? std::nullopt : Scaled(row->fp32_gflops, n_threads, threads);
}

std::optional<double> Roofline::AttentionSeconds(const std::string& kv_type, int64_t head_dim, double group) const {
  int64_t dim = 0;
  for (const AttentionRow& row : attention) {
    if (row.kv_type == kv_type && (dim == 0 || std::abs(row.head_dim - head_dim) < std::abs(dim - head_dim)))
      dim = row.head_dim;
  }
  const AttentionRow *below = nullptr, *above = nullptr;
  for (const AttentionRow& row : attention) {
    if (row.kv_type != kv_type || row.head_dim != dim) continue;
    const double g = static_cast<double>(row.group);
    if (g <= group && (below == nullptr || row.group > below->group)) below = &row;
    if (g >= group && (above == nullptr || row.group < above->group)) above = &row;
  }
  if (below == nullptr) return std::nullopt;  // groups begin at 1
  const double scale = static_cast<double>(head_dim) / static_cast<double>(dim), at = static_cast<double>(below->group);
  if (above == nullptr) return scale * group / at / below->tokens_per_s;  // as many tiles of the largest
  if (above == below) return scale / below->tokens_per_s;
  const double part = (group - at) / static_cast<double>(above->group - below->group);
  return scale * ((1 - part) / below->tokens_per_s + part / above->tokens_per_s);
}

const FormatRow* Roofline::Format(const std::string& type) const {
  for (const FormatRow& row : formats) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

}  // namespace ridge::lab
