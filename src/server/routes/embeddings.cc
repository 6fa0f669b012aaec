// POST /v1/embeddings: a vector for each text. It computes on the thread that calls it, and looks between steps whether the client is still there.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "server/api_error.h"
#include "server/fields.h"
#include "server/generation.h"
#include "server/prompts.h"
#include "server/routes.h"

namespace ridge::server {
namespace {

constexpr size_t kMaxInputs = 2048;  // OpenAI's

struct Asked {
  std::vector<Prompt> inputs;
  bool base64 = false;
};

Result<Asked> Read(const Context& context, const Request& request) {
  RIDGE_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body));
  Fields fields(body);
  Asked asked;
  ReadModel(fields, context);
  ReadPrompts(fields, "input", context, kMaxInputs, asked.inputs);
  std::string format = "float", user;
  fields.Text("encoding_format", format);
  if (format != "float" && format != "base64") fields.Refuse("encoding_format", Shown(Json(format)), "float or base64");
  asked.base64 = format == "base64";
  const int64_t width = context.runtime().model().config().width;
  int64_t dimensions = width;
  fields.Integer("dimensions", dimensions, width, width);
  fields.Text("user", user);
  RIDGE_RETURN_IF_ERROR(fields.Done());
  return asked;
}

// The bytes of little-endian float32, as OpenAI's clients ask for them.
std::string Base64(const std::vector<float>& values) {
  static_assert(std::endian::native == std::endian::little);
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; j++) group = group << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; j++) out += j <= n ? kLetters[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

Result<std::vector<service::Embedding>> Compute(service::Embedder& embedder, const Request& request,
                                                std::vector<Prompt>& inputs) {
  const service::Embedder::Gone gone = [&request] { return request.gone && *request.gone; };
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> lists;
  for (Prompt& input : inputs) {
    if (input.ids.empty()) {
      texts.push_back(std::move(input.text));
    } else {
      lists.push_back(std::move(input.ids));
    }
  }
  return lists.empty() ? embedder.Embed(texts, gone) : embedder.EmbedIds(lists, gone);  // all of one kind: ReadPrompts
}

Result<Reply> Run(const Context& context, const Request& request) {
  RIDGE_ASSIGN_OR_RETURN(Asked asked, Read(context, request));
  if (context.embedder == nullptr) {
    return Fail(Code::kUnsupported,
                fmt::format("the model '{}' gives no embeddings here: it is served for text", context.model_id))
        .Where("model")
        .Remedy("start the server with --embeddings");
  }
  RIDGE_ASSIGN_OR_RETURN(const std::vector<service::Embedding> embeddings,
                         Compute(*context.embedder, request, asked.inputs));
  Json data = Json::array();
  int64_t tokens = 0;
  for (size_t i = 0; i < embeddings.size(); i++) {
    const service::Embedding& e = embeddings[i];
    tokens += e.tokens;
    data.push_back(
        {{"object", "embedding"}, {"index", i}, {"embedding", asked.base64 ? Json(Base64(e.values)) : Json(e.values)}});
  }
  return JsonReply({{"object", "list"},
                    {"data", std::move(data)},
                    {"model", context.model_id},
                    {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
}

}  // namespace

Reply Embeddings(const Context& context, const Request& request) {
  Result<Reply> reply = Run(context, request);
  return reply ? std::move(*reply) : ErrorReply(ToApi(reply.error(), "input"));
}

}  // namespace ridge::server
