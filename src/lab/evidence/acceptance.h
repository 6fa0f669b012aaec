// The acceptance table of the course that the lab grew from: is the record complete, and does it explain?
//
//   for (const Accepted& a : Acceptance(evidences)) a.ok ? … : a.lacks[…]
//
// The bar is no speed: the matrix covers offload, context and format; each run has its raw log; monitoring is there; the conclusion names a bottleneck; quality was
// judged. Guarantee: what is missing is named, by experiment and run; "cannot run here" counts as covered only where its reason is recorded.
#pragma once

#include <string>
#include <vector>

#include "lab/evidence/evidence.h"
#include "lab/evidence/words.h"

namespace ridge::lab {

struct Bilingual {
  std::string english, chinese;
  std::string In(const Wording& w) const { return w(english, chinese); }
};

struct Accepted {
  std::string id;  // "matrix", "raw_logs", "monitoring", "bottleneck", "quality"
  Bilingual title;
  bool ok = false;
  std::vector<Bilingual> have, lacks;
};

// All evidence of one course or project together.
std::vector<Accepted> Acceptance(const std::vector<BundleEvidence>& evidences);

}  // namespace ridge::lab
