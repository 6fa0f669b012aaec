#include "lab/roofline/roofline.h"

#include <algorithm>

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

const FormatRow* Roofline::Format(const std::string& type) const {
  for (const FormatRow& row : formats) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

}  // namespace ridge::lab
