// ridge rm: remove models from the local store.
#include <fmt/format.h>

#include <memory>
#include <set>
#include <vector>

#include "commands.h"
#include "hub/catalogue.h"
#include "hub/hub.h"
#include "hub/reference.h"
#include "pull_progress.h"
#include "store_json.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  std::vector<std::string> names;
  bool partial = false;
};

// The name under which the store keeps what the user typed. A damaged entry has one too.
Result<std::string> StoredName(const hub::Store& store, const std::string& typed) {
  RIDGE_ASSIGN_OR_RETURN(const hub::Reference reference, hub::ParseReference(typed));
  std::string name = reference.Canonical();
  const Result<hub::Entry> found = store.Find(name);
  if (found || found.error().code != Code::kNotFound) return name;
  const hub::CatalogueEntry* known = hub::FindInCatalogue(name);
  if (known != nullptr && known->name != name) {
    const Result<hub::Entry> other = store.Find(std::string(known->name));
    if (other || other.error().code != Code::kNotFound) return std::string(known->name);
  }
  return std::unexpected(found.error());
}

Status Remove(const Options& options, Output& out) {
  if (options.names.empty() && !options.partial)
    return Fail(Code::kUsage, "nothing to remove").Expected("a name, or --partial").Remedy("see ridge rm --help");
  RIDGE_ASSIGN_OR_RETURN(const hub::Store store, DefaultStore());
  std::set<std::string> names;  // all are looked up before one is removed
  for (const std::string& typed : options.names) {
    RIDGE_ASSIGN_OR_RETURN(std::string name, StoredName(store, typed));
    names.insert(std::move(name));
  }
  Json removed = Json::array();
  std::string text;
  for (const std::string& name : names) {
    RIDGE_ASSIGN_OR_RETURN(const hub::Removal removal, store.Remove(name));
    removed.push_back({{"name", name}, {"freed_bytes", removal.freed_bytes}});
    text += fmt::format("removed {}, {} freed\n", Printable(name), SizeText(removal.freed_bytes));
  }
  Json document = {{"removed", std::move(removed)}};
  if (options.partial) {
    RIDGE_ASSIGN_OR_RETURN(const uint64_t freed_bytes, store.RemovePartials());
    document["partial_freed_bytes"] = freed_bytes;
    text += fmt::format("removed unfinished downloads, {} freed\n", SizeText(freed_bytes));
  }
  return out.json ? out.Document(document) : out.Write(text);
}

}  // namespace

void AddRm(CLI::App& root, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "rm", "remove models from the local store", "ridge rm smollm2:135m");
  app->add_option("NAME", options->names, "names as ridge list shows them");
  app->add_flag("--partial", options->partial, "also what unfinished downloads have left");
  invocation.Bind(app, [options](Output& out) { return Remove(*options, out); });
}

}  // namespace ridge::app
