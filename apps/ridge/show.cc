// ridge show: where a model came from, its digest, and what kind of model it is.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "commands.h"
#include "gguf/gguf.h"
#include "hub/hub.h"
#include "pull_progress.h"
#include "store_json.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  std::string model;
  bool verify = false;
};

// A number under the architecture's prefix ("llama.context_length"), or null: an odd or missing key is no reason to show nothing.
Json ArchitectureNumber(const gguf::File& file, const std::string& architecture, const std::string& key) {
  const gguf::Value* value = file.metadata().Find(architecture + "." + key);
  if (value == nullptr) return nullptr;
  if (const auto* number = std::get_if<uint64_t>(&value->data)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value->data)) return *number;
  return nullptr;
}

Json TextValue(const gguf::File& file, const std::string& key) {
  const gguf::Value* value = file.metadata().Find(key);
  if (value == nullptr) return nullptr;
  const auto* text = std::get_if<std::string>(&value->data);
  return text == nullptr ? Json(nullptr) : Json(*text);
}

Json Facts(const gguf::File& file) {
  uint64_t parameters = 0;
  std::map<std::string, uint64_t> bytes_by_type;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    parameters += tensor.elements();
    bytes_by_type[tensor.type == nullptr ? fmt::format("unknown({})", tensor.type_id)
                                         : std::string(tensor.type->name)] += tensor.size_bytes;
  }
  Json types = Json::object();
  for (const auto& [name, bytes] : bytes_by_type) types[name] = bytes;
  const Json architecture = TextValue(file, "general.architecture");
  const std::string prefix = architecture.is_string() ? architecture.get<std::string>() : "";
  const auto tokens = file.metadata().Strings("tokenizer.ggml.tokens");
  return {{"architecture", architecture},
          {"model_name", TextValue(file, "general.name")},
          {"license", TextValue(file, "general.license")},
          {"parameters", parameters},
          {"tensors", file.tensors().size()},
          {"bytes_by_type", std::move(types)},
          {"layers", ArchitectureNumber(file, prefix, "block_count")},
          {"embedding_length", ArchitectureNumber(file, prefix, "embedding_length")},
          {"context_length_tokens", ArchitectureNumber(file, prefix, "context_length")},
          {"vocabulary_tokens", tokens ? Json((*tokens)->size()) : Json(nullptr)},
          {"tokenizer", TextValue(file, "tokenizer.ggml.model")},
          {"chat_template", file.metadata().Find("tokenizer.chat_template") != nullptr},
          {"gguf_version", file.version()}};
}

std::string CellText(const Json& value, size_t most_columns = SIZE_MAX) {
  if (value.is_null()) return "-";
  if (value.is_string()) return Printable(value.get<std::string>(), most_columns);
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_object()) return value.dump();
  std::string text;  // bytes by type
  for (const auto& [type, bytes] : value.items())
    text += (text.empty() ? "" : ", ") + type + " " + SizeText(bytes.get<uint64_t>());
  return Printable(text, most_columns);
}

Status Show(const Options& options, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const std::string path, hub::ResolveModel(options.model));
  Json document = {{"name", nullptr},    {"source", nullptr}, {"digest", nullptr},     {"size_bytes", nullptr},
                   {"fetched", nullptr}, {"path", path},      {"files", Json::array()}};
  const bool stored = path != options.model;  // ResolveModel returns an existing path as it is
  if (stored) {
    RIDGE_ASSIGN_OR_RETURN(const hub::Store store, DefaultStore());
    RIDGE_ASSIGN_OR_RETURN(const hub::Entry entry, hub::FindInStore(store, options.model));
    if (options.verify) RIDGE_RETURN_IF_ERROR(store.Verify(entry));
    document = EntryJson(store, entry);
  } else if (options.verify) {
    return Fail(Code::kInvalidArgument, "only a model of the store has a digest to verify").Where(path);
  }
  RIDGE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::Open(path));
  if (!stored) document["size_bytes"] = file.size_bytes();
  if (options.verify) document["verified"] = true;
  document["gguf"] = Facts(file);
  if (out.json) return out.Document(document);
  TextTable table({{""}, {""}});
  // Whole, whatever the terminal's width: half a path leads nowhere.
  for (const char* key : {"name", "source", "fetched", "path", "digest"}) table.Row({key, CellText(document[key])});
  if (document["files"].size() > 1) table.Row({"files", CellText(document["files"].size())});
  table.Row({"size", SizeText(document["size_bytes"].get<uint64_t>())});
  if (options.verify) table.Row({"verified", "yes"});
  const std::pair<const char*, const char*> facts[] = {{"model", "model_name"},
                                                       {"architecture", "architecture"},
                                                       {"parameters", "parameters"},
                                                       {"tensor types", "bytes_by_type"},
                                                       {"layers", "layers"},
                                                       {"embedding", "embedding_length"},
                                                       {"context", "context_length_tokens"},
                                                       {"vocabulary", "vocabulary_tokens"},
                                                       {"tokenizer", "tokenizer"},
                                                       {"chat template", "chat_template"},
                                                       {"license", "license"}};
  for (const auto& [title, key] : facts) table.Row({title, CellText(document["gguf"][key], TerminalColumns(100))});
  std::string text = table.Text();
  return out.Write(text.substr(text.find_first_not_of('\n')));  // the header row is empty
}

}  // namespace

void AddShow(CLI::App& root, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* app =
      AddSubcommand(root, "show", "where a model came from, its digest and what kind it is", "ridge show smollm2:135m");
  app->add_option("MODEL", options->model, "a name in the store, or a file")->required();
  app->add_flag("--verify", options->verify, "hash the stored file and compare it with its digest");
  invocation.Bind(app, [options](Output& out) { return Show(*options, out); });
}

}  // namespace ridge::app
