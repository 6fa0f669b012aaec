// All samples of an experiment as one SQLite database, for whoever wants to ask it other questions.
//
//   RIDGE_ASSIGN_OR_RETURN(std::string bytes, DatabaseOf(evidence));      // a file that sqlite3 opens
//   RIDGE_ASSIGN_OR_RETURN(std::string text, DatabaseText(bytes));        // its tables as text, to compare
//
// Tables: about, environment, runs, resolved, samples, spans, monitor, phases, findings. Guarantees: it follows from the evidence alone; two databases of the same
// evidence have the same text, whatever SQLite wrote them. DatabaseText of bytes from anyone ends: with an error where they are no database, or one that never would.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "lab/evidence/evidence.h"

namespace ridge::lab {

Result<std::string> DatabaseOf(const BundleEvidence& evidence);
Result<std::string> DatabaseText(std::string_view bytes);

}  // namespace ridge::lab
