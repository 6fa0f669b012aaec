#include "ceilings.h"

#include "lab/roofline/roofline_cache.h"
#include "revision.h"

namespace ridge::app {

std::string BuildName() { return std::string(RIDGE_VERSION) + (*RIDGE_REVISION == '\0' ? "" : " " RIDGE_REVISION); }

Ceilings Ceilings::Cached() {
  Ceilings ceilings;
  const Result<lab::RooflineCache> cache = lab::RooflineCache::Default();
  if (!cache) {
    ceilings.reason_ = cache.error().Message();
    return ceilings;
  }
  Result<std::optional<lab::Roofline>> known = cache->Load(lab::Fingerprint(lab::ReadMachine(), BuildName()));
  if (!known)
    ceilings.reason_ = known.error().Message() + "; run ridge roofline";
  else if (!*known)
    ceilings.reason_ = "no roofline of this machine and build is cached; run ridge roofline";
  else
    ceilings.roofline_ = std::move(*known);
  return ceilings;
}

std::optional<double> Ceilings::ReadGbps(int n_threads) const {
  return roofline_ ? roofline_->ReadGbps(n_threads) : std::nullopt;
}

std::string Ceilings::WhyUnknown(const service::Runtime& runtime) const {
  if (!roofline_) return reason_;
  if (roofline_->isa != runtime.program().isa())
    return "the kernels were measured for " + roofline_->isa + ", not for " + runtime.program().isa();
  for (const backend::PlanEntry& entry : runtime.program().plan()) {
    if (entry.fallback) return "no rate is known of " + entry.op + ", which has no kernel of its own";
  }
  return "";
}

std::optional<lab::Floors> Ceilings::FloorsOf(const lab::Work& work, const service::Runtime& runtime,
                                              bool decode) const {
  if (!roofline_) return std::nullopt;
  return lab::FloorsOf(work, *roofline_,
                       {.threads = runtime.program().n_threads(), .isa = runtime.program().isa(), .decode = decode});
}

std::optional<lab::Bound> Ceilings::BoundOf(const lab::Work& work, const service::Runtime& runtime, bool decode,
                                            double seconds) const {
  const std::optional<lab::Floors> floors = FloorsOf(work, runtime, decode);
  return floors ? lab::BoundOf(*floors, seconds) : std::nullopt;
}

}  // namespace ridge::app
