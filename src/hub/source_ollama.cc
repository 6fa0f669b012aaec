#include <fmt/format.h>

#include "hub/json_fields.h"
#include "hub/source.h"

namespace ridge::hub {
namespace {

// Media types of the layers in a manifest: https://github.com/ollama/ollama/blob/main/docs (Modelfile and registry).
constexpr std::string_view kManifestType = "application/vnd.docker.distribution.manifest.v2+json";
constexpr std::string_view kModelType = "application/vnd.ollama.image.model";
constexpr std::string_view kAdapterType = "application/vnd.ollama.image.adapter";
constexpr size_t kMaxManifestBytes = 4 << 20;

}  // namespace

Result<std::vector<RemoteFile>> AskOllama(const Reference& reference, const Network& network, Downloader& downloader) {
  std::string registry = network.ollama_registry;
  while (registry.ends_with('/')) registry.pop_back();
  const std::string base = registry + "/v2/" + UrlEncode(reference.owner) + "/" + UrlEncode(reference.repo);
  const std::string url = base + "/manifests/" + UrlEncode(reference.tag);
  RIDGE_ASSIGN_OR_RETURN(const std::string text,
                         downloader.GetText({url, std::string(kManifestType), ""}, kMaxManifestBytes));
  const Json root = ParseJson(text);
  const Json* layers = Field(root, "layers");
  if (layers == nullptr || !layers->is_array()) {
    return Fail(Code::kInvalidData, "server's answer is not a manifest")
        .Where(url)
        .Expected("a JSON object with \"layers\"");
  }
  std::vector<RemoteFile> files;
  for (const Json& layer : *layers) {
    const std::string type = TextField(layer, "mediaType");
    if (type == kAdapterType) {
      return Fail(Code::kUnsupported, "model is an adapter on top of another model").Where(reference.Canonical());
    }
    if (type != kModelType) continue;
    Result<Digest> digest = ParseDigest(TextField(layer, "digest"));
    if (!digest) {
      Error error = std::move(digest).error();
      error.where = url;
      return std::unexpected(std::move(error));
    }
    const std::optional<uint64_t> size = SizeField(layer, "size");
    if (!size) return Fail(Code::kInvalidData, "manifest gives no size for the model").Where(url);
    files.push_back(
        {base + "/blobs/" + digest->Text(), "", CleanLabel(reference.repo + ":" + reference.tag), *digest, size});
  }
  if (files.size() != 1) {
    return Fail(Code::kUnsupported, "model is not one GGUF file")
        .Where(url)
        .Found(fmt::format("{} model layers", files.size()))
        .Expected("1");
  }
  return files;
}

}  // namespace ridge::hub
