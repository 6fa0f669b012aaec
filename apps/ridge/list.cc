// ridge list: what is in the local store, or in the catalogue of short names.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "commands.h"
#include "hub/catalogue.h"
#include "hub/hub.h"
#include "pull_progress.h"
#include "store_json.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  bool catalogue = false;
};

Status ListStore(Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const hub::Store store, DefaultStore());
  RIDGE_ASSIGN_OR_RETURN(const hub::Listing listing, store.List());
  for (const Error& damage : listing.damaged) std::fprintf(stderr, "ridge: %s\n", Printable(damage.Message()).c_str());
  if (out.json) {
    Json models = Json::array();
    for (const hub::Entry& entry : listing.entries) models.push_back(EntryJson(store, entry));
    Json damaged = Json::array();
    for (const Error& damage : listing.damaged)
      damaged.push_back({{"what", damage.what}, {"where", damage.where}, {"remedy", damage.remedy}});
    return out.Document({{"store", store.root()}, {"models", std::move(models)}, {"damaged", std::move(damaged)}});
  }
  if (listing.entries.empty()) {
    std::fprintf(stderr, "ridge: no models in %s; ridge list --catalogue shows what can be pulled\n",
                 Printable(store.root()).c_str());
    return {};
  }
  TextTable table({{"name"}, {"size", true}, {"digest"}, {"source"}, {"fetched"}});
  for (const hub::Entry& entry : listing.entries) {
    table.Row({Printable(entry.name), SizeText(entry.size_bytes()), ShortDigest(entry), Printable(entry.source),
               UtcText(entry.fetched_unix_s)});
  }
  return out.Write(table.Text());
}

Status ListCatalogue(Output& out) {
  if (out.json) {
    Json models = Json::array();
    for (const hub::CatalogueEntry& entry : hub::Catalogue()) {
      Json sources = Json::array();
      for (const hub::CatalogueSource& source : entry.sources) {
        sources.push_back(
            {{"reference", source.reference}, {"sha256", source.sha256.empty() ? Json(nullptr) : Json(source.sha256)}});
      }
      models.push_back({{"name", entry.name}, {"about", entry.about}, {"sources", std::move(sources)}});
    }
    return out.Document({{"catalogue", std::move(models)}});
  }
  TextTable table({{"name"}, {"model"}, {"first source"}});
  for (const hub::CatalogueEntry& entry : hub::Catalogue()) {
    table.Row({std::string(entry.name), std::string(entry.about), std::string(entry.sources[0].reference)});
  }
  return out.Write(table.Text());
}

}  // namespace

void AddList(CLI::App& root, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "list", "models in the local store", "ridge list");
  app->add_flag("--catalogue", options->catalogue, "the short names that ridge pull knows, instead");
  invocation.Bind(app, [options](Output& out) { return options->catalogue ? ListCatalogue(out) : ListStore(out); });
}

}  // namespace ridge::app
