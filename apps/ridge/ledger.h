// The time ledger: where the time of a run went, as a document and as a table.
//
//   Ledger ledger{.load_ms = ..., .receipt = stream->receipt()};
//   ledger.total_ms = MsSinceStart();
//   const Ceilings ceilings = Ceilings::Cached();
//   document.update(LedgerJson(ledger, runtime, ceilings));   std::fputs(LedgerTable(ledger, runtime, ceilings).c_str(), stderr);
//
// Guarantees: the parts sum to the total; what was not measured is null (a dash in the table), never 0.
#pragma once

#include <string>

#include "ceilings.h"
#include "command.h"
#include "service/receipt.h"
#include "service/runtime.h"

namespace ridge::app {

struct Ledger {
  double load_ms = 0;        // file, weights, KV pages, vocabulary
  double vocabulary_ms = 0;  // of it: vocabulary, template, KV pages
  double input_ms = 0;       // waiting for a person, in a chat
  double total_ms = 0;       // since the process began
  service::Receipt receipt;
  std::vector<service::Receipt> turns;  // of a chat; receipt is their sum
};

double MsSinceStart();  // of the process

// Adds the counts and times of one more turn.
void AddTurn(Ledger& ledger, const service::Receipt& receipt);

// load_ms … bound, finish_reason, parts_ms, phases.
Json LedgerJson(const Ledger& ledger, const service::Runtime& runtime, const Ceilings& ceilings);
std::string LedgerTable(const Ledger& ledger, const service::Runtime& runtime, const Ceilings& ceilings);

}  // namespace ridge::app
