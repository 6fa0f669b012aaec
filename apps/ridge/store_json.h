// How the commands of the model store print an entry.
//
//   document["models"].push_back(EntryJson(store, entry));
//
// Guarantees: the field names are stable: name source digest size_bytes fetched files path.
#pragma once

#include "command.h"
#include "hub/store.h"

namespace ridge::app {

Json EntryJson(const hub::Store& store, const hub::Entry& entry);
std::string UtcText(int64_t unix_seconds);         // "2026-11-29T16:40:00Z"
std::string ShortDigest(const hub::Entry& entry);  // 12 digits; of the first file of a split model
Result<hub::Store> DefaultStore();

}  // namespace ridge::app
