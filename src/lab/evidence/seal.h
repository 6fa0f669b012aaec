// Closing a folder of evidence, and finding out whether it is still as it was closed.
//
//   RIDGE_RETURN_IF_ERROR(SealBundle(bundle));
//   RIDGE_ASSIGN_OR_RETURN(Checked checked, CheckBundle("threads.lab", {.rederive = true}));   // checked.problems is empty: it holds
//
// Derived from the raw files: runs/NNNN.resolved.json (the settings as the subject resolved them), samples.csv, samples.sqlite, trace.json, report.md, report.html.
// MANIFEST names every file with its length and checksum (XXH3-64), and ends with its own. A checksum finds damage and carelessness; it is no signature.
// Guarantees: any byte changed, any file missing, added or replaced by a link is found. With `rederive` all derived files are made again from the raw ones and must
// be the same, bit for bit (samples.sqlite: its content, since the file names the SQLite that wrote it).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/evidence/bundle.h"
#include "lab/evidence/evidence.h"

namespace ridge::lab {

// Name -> content of everything that is derived.
Result<std::map<std::string, std::string>> Derive(const BundleEvidence& evidence);

Status SealBundle(const Bundle& bundle);

struct CheckOptions {
  bool rederive = false;  // else samples.csv alone
};
struct Checked {
  std::vector<std::string> problems;
  size_t files = 0, derived = 0;  // compared
};
// Errors: kNotFound where there is no sealed folder. Whatever is wrong inside is a problem, no error.
Result<Checked> CheckBundle(const std::string& folder, const CheckOptions& options);

}  // namespace ridge::lab
