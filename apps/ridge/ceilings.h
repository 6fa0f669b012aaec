// The roofline that `run` and `bench` compare themselves with: the one that `ridge roofline` left for this machine and build.
//
//   const Ceilings ceilings = Ceilings::Cached();
//   row.bound = ceilings.BoundOf(work, seconds, circumstances);
//
// Guarantee: where there is none, every figure is absent and reason() says why in one sentence; nothing is ever assumed.
#pragma once

#include <optional>
#include <string>

#include "command.h"
#include "lab/roofline/roofline.h"
#include "lab/roofline/work.h"
#include "service/runtime.h"

namespace ridge::app {

class Ceilings {
 public:
  static Ceilings Cached();
  explicit Ceilings(lab::Roofline roofline) : roofline_(std::move(roofline)) {}

  const std::optional<lab::Roofline>& roofline() const { return roofline_; }
  const std::string& reason() const { return reason_; }  // empty where there is a roofline

  std::optional<double> ReadGbps(int n_threads) const;
  // Why a bound of this run is not known; empty where nothing stands in its way.
  std::string WhyUnknown(const service::Runtime& runtime) const;
  std::optional<lab::Floors> FloorsOf(const lab::Work& work, const service::Runtime& runtime, bool decode) const;
  std::optional<lab::Bound> BoundOf(const lab::Work& work, const service::Runtime& runtime, bool decode,
                                    double seconds) const;

 private:
  Ceilings() = default;
  std::optional<lab::Roofline> roofline_;
  std::string reason_;
};

// What tells one build of the kernels from another.
std::string BuildName();

}  // namespace ridge::app
