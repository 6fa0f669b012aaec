// Rooflines on disk, one file per fingerprint: $XDG_CACHE_HOME/ridge/roofline-FINGERPRINT.json, or the same below ~/.cache.
//
//   RIDGE_ASSIGN_OR_RETURN(RooflineCache cache, RooflineCache::Default());
//   Result<std::optional<Roofline>> known = cache.Load(fingerprint);
//
// Guarantees: files are written whole or not at all; what was measured on a machine that was not quiet, or in a hurry, is refused. A damaged file is an
// error that names it, so that the caller can say so and measure again.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "lab/roofline/roofline.h"

namespace ridge::lab {

class RooflineCache {
 public:
  static Result<RooflineCache> Default();  // kNotFound where neither XDG_CACHE_HOME nor HOME is set
  explicit RooflineCache(std::string folder) : folder_(std::move(folder)) {}

  // nullopt: none yet. Errors: kInvalidData, kPermissionDenied.
  Result<std::optional<Roofline>> Load(const std::string& fingerprint) const;
  // Errors: kInvalidArgument (not quiet or short), those of AtomicFile.
  Status Store(const Roofline& roofline) const;
  const std::string& folder() const { return folder_; }
  std::string PathOf(const std::string& fingerprint) const { return folder_ + "/roofline-" + fingerprint + ".json"; }

 private:
  std::string folder_;
};

}  // namespace ridge::lab
