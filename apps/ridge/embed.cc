// ridge embed: a vector for each text.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "model_options.h"
#include "service/embedder.h"
#include "text_input.h"

namespace ridge::app {
namespace {

constexpr int64_t kTokensAround = 16;  // BOS, EOS, CLS, SEP and the space that SentencePiece puts first

struct Options {
  ModelOptions model;
  TextInput input;
  std::string pooling;
  bool lines = false, raw = false;
};

std::vector<std::string> Texts(const std::string& text, bool lines) {
  if (!lines) return {text};
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) texts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return texts;
}

Status Embed(const Options& o, Output& out) {
  service::EmbedderOptions options{.pooling = std::nullopt, .normalize = !o.raw};
  if (!o.pooling.empty()) {
    RIDGE_ASSIGN_OR_RETURN(options.pooling, service::ParsePooling(o.pooling));
  }
  RIDGE_ASSIGN_OR_RETURN(const std::string text, o.input.Read());
  const std::vector<std::string> texts = Texts(text, o.lines);
  if (texts.empty())
    return Fail(Code::kInvalidArgument, "the file holds no text").Where("--lines").Found("empty lines only");
  // KV for the longest text, not for the context: a token spells a byte at least, but for those that stand around a text.
  size_t longest = 0;
  for (const std::string& t : texts) longest = std::max(longest, t.size());
  RIDGE_ASSIGN_OR_RETURN(auto runtime, o.model.Load({.embeddings = true,
                                                     .context_tokens = 0,
                                                     .most_tokens = static_cast<int64_t>(longest) + kTokensAround}));
  RIDGE_ASSIGN_OR_RETURN(const auto embedder, service::Embedder::Create(std::move(runtime), options));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<service::Embedding> embeddings, embedder->Embed(texts));
  if (out.json) {
    Json rows = Json::array();
    for (const service::Embedding& e : embeddings) rows.push_back({{"tokens", e.tokens}, {"embedding", e.values}});
    return out.Document({{"embeddings", std::move(rows)},
                         {"width", embedder->width()},
                         {"pooling", service::Name(embedder->pooling())},
                         {"normalized", options.normalize},
                         {"config", ConfigJson(embedder->runtime())}});
  }
  for (const service::Embedding& e : embeddings) {
    std::string line;
    for (const float v : e.values) line += fmt::format("{}{}", line.empty() ? "" : " ", v);
    RIDGE_RETURN_IF_ERROR(out.Write(line + "\n"));
  }
  return {};
}

}  // namespace

void AddEmbed(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "embed", "a vector for each text, of an encoder or of a decoder's hidden state",
                                "ridge embed -m all-minilm.gguf -p \"A cat sits on the mat\"");
  o->model.Add(app);
  o->input.AddTo(app);
  app->add_flag("--lines", o->lines, "each line that is not empty is a text of its own");
  app->add_option("--pooling", o->pooling,
                  "mean, cls or last (what the file says; else mean of an encoder, last of a decoder)");
  app->add_flag("--no-normalize", o->raw, "leave the vectors as long as they are; else their length is 1");
  invocation.Bind(app, [o](Output& out) { return Embed(*o, out); });
}

}  // namespace ridge::app
