// Short names and where to get them: `smollm2:135m` is one model in several places.
//
//   const CatalogueEntry* entry = FindInCatalogue("smollm2");   // smollm2:135m
//   for (const CatalogueSource& source : entry->sources) ...    // in order of preference
//
// Guarantees: every name and reference here parses (a test walks the table). A source that is pinned must give exactly
// that SHA-256. Immutable, thread-safe.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace ridge::hub {

struct CatalogueSource {
  std::string_view reference;
  std::string_view
      sha256;  // of the file, where known: whoever serves it, it is the same model bit for bit. Empty: not pinned
};

struct CatalogueEntry {
  std::string_view name;  // NAME:TAG
  std::string_view about;
  std::vector<CatalogueSource> sources;
};

std::span<const CatalogueEntry> Catalogue();

// NAME without a tag means the first entry of that family. nullptr: not in the catalogue.
const CatalogueEntry* FindInCatalogue(std::string_view name);

}  // namespace ridge::hub
