// ridge inspect: what a GGUF file holds, read from the container alone, so that files of unknown architectures and
// tensor types are listed too. With --graph: what is computed with it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/atomic_file.h"
#include "base/quantity.h"
#include "base/thread_pool.h"
#include "base/topology.h"
#include "commands.h"
#include "gguf/gguf.h"
#include "gguf/parse.h"
#include "graph_report.h"
#include "hub/hub.h"
#include "memory_report.h"
#include "model/model.h"
#include "model_options.h"
#include "option_help.h"
#include "speculation_options.h"
#include "text_table.h"

namespace ridge::app {
namespace {

using gguf::TensorInfo;
using gguf::Value;
using gguf::ValueType;

constexpr size_t kLongArray = 128;  // longer ones (vocabularies, merges) are summarized; per-layer arrays are not
constexpr size_t kFirstItems = 8;
constexpr size_t kTextColumns = 96;  // of a string value in the table

struct Options {
  std::string model;
  std::optional<std::string> tensor, dump;
  bool graph = false, memory = false;
  service::RuntimeOptions plan{.sequences = kServeParallel};  // what --memory is asked for
  std::string k_type = "f16", v_type = "f16", kv_memory;
  SpeculationOptions speculation{"auto"};  // as ridge serve, whose plan it is
  std::string fusion = "on";
};

std::string TypeName(const TensorInfo& tensor) {
  return tensor.type != nullptr ? std::string(tensor.type->name) : fmt::format("unknown({})", tensor.type_id);
}

// The shortest decimal that is the same float: 1e-05, not 9.999999747378752e-06.
double Shortest(double value, ValueType type) {
  if (type != ValueType::kF32) return value;
  return std::strtod(fmt::format("{}", static_cast<float>(value)).c_str(), nullptr);
}

template <class Item>
Json ItemJson(const Item& item, ValueType type) {
  if constexpr (std::is_same_v<Item, double>) return Shortest(item, type);
  if constexpr (std::is_same_v<Item, uint8_t>) {
    if (type == ValueType::kBool) return item != 0;
  }
  return item;
}

// A scalar, a short array, or {"type", "length", "first"} of a long one.
Json ValueJson(const Value& value, size_t long_array) {
  return std::visit(
      [&](const auto& held) -> Json {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_arithmetic_v<Held> || std::is_same_v<Held, std::string>) {
          return ItemJson(held, value.type);
        } else {
          const bool all = held.size() <= long_array;
          Json items = Json::array();
          for (size_t i = 0; i < (all ? held.size() : std::min(kFirstItems, held.size())); ++i) {
            items.push_back(ItemJson(held[i], value.item_type));
          }
          if (all) return items;
          return {{"type", value.TypeName()}, {"length", held.size()}, {"first", std::move(items)}};
        }
      },
      value.data);
}

Json TensorJson(const TensorInfo& tensor, bool split) {
  Json entry = {{"name", tensor.name},
                {"type", TypeName(tensor)},
                {"type_id", tensor.type_id},
                {"shape", tensor.shape},
                {"offset", tensor.offset_bytes}};
  entry["size_bytes"] = tensor.type != nullptr ? Json(tensor.size_bytes) : Json(nullptr);
  if (split) entry["shard"] = tensor.shard;
  return entry;
}

Json FileJson(const gguf::File& file, const std::vector<const TensorInfo*>& tensors) {
  Json document = {{"path", file.path()},
                   {"version", file.version()},
                   {"alignment", file.alignment()},
                   {"size_bytes", file.size_bytes()}};
  const std::vector<std::string> shards = file.shard_paths();
  if (shards.size() > 1) document["shards"] = shards;
  Json& metadata = document["metadata"] = Json::object();
  for (const auto& [key, value] : file.metadata().entries()) metadata[key] = ValueJson(value, kLongArray);
  Json& list = document["tensors"] = Json::array();
  for (const TensorInfo* tensor : tensors) list.push_back(TensorJson(*tensor, shards.size() > 1));
  return document;
}

std::string ValueText(const Value& value) {
  if (value.type == ValueType::kString)
    return Printable(std::get<std::string>(value.data), TerminalColumns(kTextColumns));
  const Json json = ValueJson(value, kFirstItems);
  if (!json.is_object())
    return Printable(json.dump(-1, ' ', false, Json::error_handler_t::replace), TerminalColumns(kTextColumns));
  const std::string items = json["first"].dump(-1, ' ', false, Json::error_handler_t::replace);
  return Printable(fmt::format("{}: {}", Count(value.length(), "item"), items), TerminalColumns(kTextColumns));
}

std::string FileText(const gguf::File& file, const std::vector<const TensorInfo*>& tensors) {
  std::string out = fmt::format("{}\n", Printable(file.path()));
  uint64_t elements = 0;
  struct Sum {
    uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::map<std::string, Sum> by_type;
  for (const TensorInfo* tensor : tensors) {
    Sum& sum = by_type[TypeName(*tensor)];
    sum.tensors += 1;
    sum.elements += tensor->elements();
    sum.bytes += tensor->size_bytes;
    elements += tensor->elements();
  }
  const size_t shards = file.shard_paths().size();
  out += fmt::format("GGUF version {}, {}{}, alignment {}, {} with {}\n", file.version(),
                     Count(file.size_bytes(), "byte"), shards > 1 ? fmt::format(" in {}", Count(shards, "shard")) : "",
                     file.alignment(), Count(tensors.size(), "tensor"), Count(elements, "element"));

  TextTable metadata({{"metadata"}, {"type"}, {"value"}});
  for (const auto& [key, value] : file.metadata().entries())
    metadata.Row({Printable(key), value.TypeName(), ValueText(value)});
  out += "\n" + metadata.Text();

  TextTable list({{"tensor"}, {"type"}, {"shape"}, {"offset", true}, {"bytes", true}});
  for (const TensorInfo* tensor : tensors) {
    list.Row({Printable(tensor->name), TypeName(*tensor), fmt::format("[{}]", fmt::join(tensor->shape, ", ")),
              fmt::format("{}", tensor->offset_bytes),
              tensor->type != nullptr ? fmt::format("{}", tensor->size_bytes) : "?"});
  }
  out += "\n" + list.Text();

  if (tensors.size() > 1) {
    TextTable types({{"type"}, {"tensors", true}, {"elements", true}, {"bytes", true}});
    for (const auto& [name, sum] : by_type) {
      types.Row({name, fmt::format("{}", sum.tensors), fmt::format("{}", sum.elements),
                 sum.bytes > 0 ? fmt::format("{}", sum.bytes) : "?"});
    }
    out += "\n" + types.Text();
  }
  return out;
}

Result<const TensorInfo*> FindTensor(const gguf::File& file, const std::string& name) {
  const TensorInfo* tensor = file.FindTensor(name);
  if (tensor != nullptr) return tensor;
  return Fail(Code::kNotFound, "no such tensor")
      .Where(file.path())
      .Found(gguf::Quoted(name))
      .Expected(fmt::format("one of its {}", Count(file.tensors().size(), "tensor")))
      .Remedy("ridge inspect lists them");
}

Status CheckDecodable(const gguf::File& file, const TensorInfo& tensor) {
  const std::string where = fmt::format("{}: tensor {}", file.path(), gguf::Quoted(tensor.name));
  if (tensor.type == nullptr) {
    std::string known;
    for (const quant::Type& type : quant::Types()) {
      known += fmt::format("{}{}", known.empty() ? "" : " ", static_cast<uint32_t>(type.id));
    }
    return Fail(Code::kUnsupported, "tensor type is not known to this build")
        .Where(where)
        .Found(fmt::format("type {}", tensor.type_id))
        .Expected("one of " + known);
  }
  if (tensor.type->decode == nullptr) {
    return Fail(Code::kUnsupported, "tensor type cannot be decoded")
        .Where(where)
        .Found(std::string(tensor.type->name))
        .Expected("a type of weights");
  }
  return {};
}

// Writes the tensor as float32, little endian. Memory: one piece per thread, whatever the tensor's size.
Status Dump(const gguf::File& file, const TensorInfo& tensor, const std::string& path) {
  RIDGE_RETURN_IF_ERROR(CheckDecodable(file, tensor));
  for (const std::string& shard : file.shard_paths()) {
    if (!IsSameFile(shard, path)) continue;
    return Fail(Code::kInvalidArgument, "output is the model itself")
        .Where(path)
        .Found(shard)
        .Remedy("choose another path");
  }
  const quant::Type& type = *tensor.type;
  const std::span<const std::byte> blocks = file.Data(tensor);
  const size_t n_blocks = blocks.size() / type.block_bytes;
  constexpr size_t kPieceElements = 1 << 20;
  const size_t piece_blocks = std::max<size_t>(1, kPieceElements / type.block_elements);
  const size_t n_pieces = (n_blocks + piece_blocks - 1) / piece_blocks;

  RIDGE_ASSIGN_OR_RETURN(AtomicFile out, AtomicFile::Create(path));
  RIDGE_RETURN_IF_ERROR(out.Reserve(tensor.elements() * sizeof(float)));
  RIDGE_ASSIGN_OR_RETURN(
      const std::unique_ptr<ThreadPool> pool,
      ThreadPool::Create(static_cast<int>(std::min<size_t>(ResolveThreads(std::nullopt).threads, n_pieces))));
  const size_t n_at_once = static_cast<size_t>(pool->size());
  std::vector<float> decoded(std::min(n_blocks, n_at_once * piece_blocks) * type.block_elements);
  for (size_t begin = 0; begin < n_blocks; begin += n_at_once * piece_blocks) {
    const size_t count = std::min(n_blocks - begin, n_at_once * piece_blocks);
    pool->ParallelFor(count, piece_blocks, [&](size_t from, size_t to, int) {
      type.decode(blocks.data() + (begin + from) * type.block_bytes, decoded.data() + from * type.block_elements,
                  to - from);
    });
    RIDGE_RETURN_IF_ERROR(out.Write(std::as_bytes(std::span(decoded).first(count * type.block_elements))));
  }
  return out.Commit();
}

Status Memory(const Options& options, const std::string& path, Output& out) {
  service::RuntimeOptions asked = options.plan;
  asked.path = path;
  RIDGE_ASSIGN_OR_RETURN(asked.k_type, KvTypeOf("-ctk", options.k_type));
  RIDGE_ASSIGN_OR_RETURN(asked.v_type, KvTypeOf("-ctv", options.v_type));
  if (!options.kv_memory.empty()) {
    RIDGE_ASSIGN_OR_RETURN(asked.kv_bytes, ParseBytes("--kv-memory", options.kv_memory));
  }
  RIDGE_ASSIGN_OR_RETURN(const SpeculationOptions::Loaded planned, options.speculation.Plan(asked));
  const auto& runtime = planned.model;
  for (const std::string& note : runtime->notes()) Note(note);
  if (!out.json) return out.Write(MemoryText(*runtime));
  return out.Document({{"path", path}, {"memory", MemoryJson(*runtime)}, {"config", ConfigJson(*runtime)}});
}

Status Inspect(const Options& options, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const std::string path, hub::ResolveModel(options.model));
  if (options.memory) return Memory(options, path, out);
  RIDGE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::Open(path));
  if (options.graph) {
    RIDGE_ASSIGN_OR_RETURN(const graph::PassSet passes, FusionOf(options.fusion));
    RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<model::Model> model, model::Model::Load(std::move(file)));
    const graph::Schedule schedule = graph::Compose(model->graph(), passes);
    if (!out.json) return out.Write(GraphText(model->graph(), schedule));
    Json document = {{"path", path}, {"architecture", model->config().architecture}};
    document.update(GraphJson(model->graph(), schedule));
    return out.Document(document);
  }
  std::vector<const TensorInfo*> tensors;
  if (!options.tensor) {
    for (const TensorInfo& tensor : file.tensors()) tensors.push_back(&tensor);
  } else {
    RIDGE_ASSIGN_OR_RETURN(const TensorInfo* tensor, FindTensor(file, *options.tensor));
    tensors.push_back(tensor);
  }
  if (options.dump) {
    const TensorInfo& tensor = *tensors[0];  // --dump needs --tensor
    RIDGE_RETURN_IF_ERROR(Dump(file, tensor, *options.dump));
    if (out.json) {
      Json document = TensorJson(tensor, file.shard_paths().size() > 1);
      document["dump"] = {
          {"path", *options.dump}, {"elements", tensor.elements()}, {"size_bytes", tensor.elements() * sizeof(float)}};
      return out.Document(document);
    }
    std::fprintf(stderr, "%s: %llu float32 values\n", Printable(*options.dump).c_str(),
                 static_cast<unsigned long long>(tensor.elements()));
    return {};
  }
  return out.json ? out.Document(FileJson(file, tensors)) : out.Write(FileText(file, tensors));
}

}  // namespace

void AddInspect(CLI::App& root, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(
      root, "inspect",
      "list the metadata and tensors of a GGUF file, decode one tensor, show the graph or the memory plan",
      "ridge inspect model.gguf\n  ridge inspect model.gguf --tensor output_norm.weight --dump norm.f32\n"
      "  ridge inspect model.gguf --graph --fusion no-qkv\n  ridge inspect model.gguf --memory -c 8192 -np 16");
  app->add_option("MODEL,-m,--model", options->model,
                  "a file, any shard of a split file, a folder that holds one, or a model of the store; or as -m MODEL")
      ->required();
  CLI::Option* tensor = app->add_option("--tensor", options->tensor, "only this tensor");
  app->add_option("--dump", options->dump, "write the tensor here as float32, little endian, row by row")
      ->needs(tensor);
  CLI::Option* graph =
      app->add_flag("--graph", options->graph,
                    "the model's ops as they are run: fusion passes, shapes, costs; needs a known architecture")
          ->excludes(tensor);
  CLI::Option* memory = app->add_flag("--memory", options->memory,
                                      "what the model takes in memory as ridge serve loads it at these settings, and "
                                      "what fits, before a weight is read")
                            ->excludes(tensor)
                            ->excludes(graph);
  app->add_option("-c,--ctx-size", options->plan.context_tokens, help::kContext)->needs(memory);
  app->add_option("--np,--parallel", options->plan.sequences, help::kParallel)
      ->check(CLI::Range(1, 1024))
      ->needs(memory)
      ->capture_default_str();
  app->add_option("-t,--threads", options->plan.threads, help::kThreads)->needs(memory);
  app->add_option("--ub,--ubatch-size", options->plan.chunk_tokens, help::kChunk)
      ->needs(memory)
      ->default_str(help::kChunkDefault);
  app->add_option("--kv-page", options->plan.page_tokens, help::kKvPage)->needs(memory)->capture_default_str();
  app->add_option("--ctk,--cache-type-k", options->k_type, help::kKType)->needs(memory)->capture_default_str();
  app->add_option("--ctv,--cache-type-v", options->v_type, help::kVType)->needs(memory)->capture_default_str();
  app->add_option("--kv-memory", options->kv_memory, help::kKvMemory)->needs(memory);
  for (CLI::Option* option : options->speculation.Add(app)) option->needs(memory);
  app->add_option("--fusion", options->fusion, FusionHelp())->needs(graph)->capture_default_str();
  invocation.Bind(app, [options](Output& out) { return Inspect(*options, out); });
}

}  // namespace ridge::app
