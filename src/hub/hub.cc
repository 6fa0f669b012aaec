#include "hub/hub.h"

#include <sys/stat.h>

#include <charconv>
#include <cstdlib>

#include "hub/catalogue.h"
#include "hub/reference.h"

namespace ridge::hub {
namespace {

void FromVariable(const char* name, std::string& value) {
  if (const char* text = std::getenv(name); text != nullptr && *text != '\0') value = text;
}

void FromVariable(const char* name, int& value) {
  std::string text;
  FromVariable(name, text);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!text.empty() && error == std::errc() && end == text.data() + text.size() && number > 0) value = number;
}

bool Exists(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0;
}

// Text that can only be meant as a path: so the error speaks of a file, not of a model name.
bool LooksLikePath(const std::string& text) {
  if (HasScheme(text) || text.empty()) return false;
  return text.find('/') != std::string::npos || text.ends_with(".gguf") || !ParseReference(text);
}

}  // namespace

Network Network::FromEnvironment() {
  Network network;
  FromVariable("HF_ENDPOINT", network.hf_endpoint);
  FromVariable("HF_TOKEN", network.hf_token);
  FromVariable("RIDGE_OLLAMA_REGISTRY", network.ollama_registry);
  FromVariable("RIDGE_PIP", network.pip);
  FromVariable("RIDGE_CONNECT_TIMEOUT", network.connect_seconds);
  FromVariable("RIDGE_STALL_TIMEOUT", network.stall_seconds);
  FromVariable("RIDGE_RETRIES", network.retries);
  return network;
}

Result<Entry> FindInStore(const Store& store, const std::string& model) {
  RIDGE_ASSIGN_OR_RETURN(const Reference reference, ParseReference(model));
  Result<Entry> found = store.Find(reference.Canonical());
  if (found || found.error().code != Code::kNotFound || reference.scheme != Scheme::kName) return found;
  const CatalogueEntry* known = FindInCatalogue(reference.Canonical());
  if (known != nullptr && known->name != reference.Canonical()) return store.Find(std::string(known->name));
  return found;
}

Result<std::string> ResolveModel(const std::string& model, const ResolveOptions& options) {
  if (Exists(model)) return model;
  if (LooksLikePath(model)) {
    return Fail(Code::kNotFound, "no such model file")
        .Where(model)
        .Remedy("check the path, or see ridge list for models in the store");
  }
  RIDGE_ASSIGN_OR_RETURN(const Reference reference, ParseReference(model));
  std::string root = options.options.store_root;
  if (root.empty()) {
    RIDGE_ASSIGN_OR_RETURN(root, DefaultStoreRoot());
  }
  const Store store(root);
  const Result<Entry> found = FindInStore(store, model);
  if (found) return store.ModelPath(*found);
  if (found.error().code != Code::kNotFound) return std::unexpected(found.error());
  const bool known = reference.scheme != Scheme::kName || FindInCatalogue(reference.Canonical()) != nullptr;
  if (!known) {
    return Fail(Code::kNotFound, "no such file, and no model of this name in the store or the catalogue")
        .Where(model)
        .Remedy(
            "ridge list shows the store, ridge list --catalogue what can be pulled; or give hf:OWNER/REPO, ollama:NAME "
            "or pypi:PACKAGE");
  }
  if (!options.pull) {
    return Fail(Code::kNotFound, "model is not in the store").Where(model).Remedy("ridge pull " + model);
  }
  RIDGE_ASSIGN_OR_RETURN(const Entry entry, Pull(model, options.options));
  return store.ModelPath(entry);
}

}  // namespace ridge::hub
