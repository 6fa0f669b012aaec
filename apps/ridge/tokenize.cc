// ridge tokenize: text to token ids and back, with the vocabulary of a GGUF file and nothing else of it.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <vector>

#include "base/json_text.h"
#include "commands.h"
#include "gguf/gguf.h"
#include "hub/hub.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text_input.h"

namespace ridge::app {
namespace {

using text::TokenId;
using text::Tokenizer;

struct Options {
  std::string model, ids;
  TextInput input;
  bool has_ids = false;
  bool no_bos = false, parse_special = false, lines = false, decode = false;
};

Status CheckUsage(const Options& options) {
  const auto usage = [](std::string what) -> Status {
    return Fail(Code::kUsage, std::move(what)).Remedy("see ridge tokenize --help");
  };
  const int inputs = options.input.given() + options.has_ids + options.lines;
  if (inputs > 1) return usage("-p, -f, --ids and --lines exclude one another");
  if (options.has_ids && !options.decode) return usage("--ids needs --decode");
  if (options.decode && !options.has_ids && !options.lines) return usage("--decode needs --ids or --lines");
  if (inputs == 0) return usage("nothing to tokenize: give -p, -f or --lines");
  return {};
}

// One stdin line in, one stdout line out.
Result<std::string> TransformLine(const std::string& line, const std::string& where, const Options& options,
                                  const Tokenizer& tokenizer) {
  RIDGE_RETURN_IF_ERROR(CheckUtf8(line, where));
  const Json value = ParseJsonText<Json>(line);
  if (options.decode) {
    std::vector<TokenId> ids;
    bool good = value.is_array();
    for (size_t i = 0; good && i < value.size(); ++i) {
      good = value[i].is_number_integer();
      if (!good) break;
      const auto id = value[i].get<int64_t>();
      RIDGE_RETURN_IF_ERROR(CheckId(id, tokenizer.vocab_size(), where));
      ids.push_back(static_cast<TokenId>(id));
    }
    if (!good) return Fail(Code::kInvalidArgument, "not a JSON array of token ids").Where(where);
    return Json(text::ReplaceInvalidUtf8(tokenizer.Decode(ids, options.parse_special))).dump();
  }
  if (!value.is_string()) return Fail(Code::kInvalidArgument, "not a JSON string").Where(where);
  RIDGE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer.Encode(value.get_ref<const std::string&>(),
                                                                          {!options.no_bos, options.parse_special}));
  return fmt::format("[{}]", fmt::join(ids, ", "));
}

Status TransformLines(const Options& options, const Tokenizer& tokenizer, Output& out) {
  std::string line;
  for (size_t number = 1; std::getline(std::cin, line); ++number) {
    RIDGE_ASSIGN_OR_RETURN(const std::string answer,
                           TransformLine(line, fmt::format("stdin, line {}", number), options, tokenizer));
    RIDGE_RETURN_IF_ERROR(out.Write(answer + "\n"));
  }
  return {};
}

Status Tokenize(const Options& options, Output& out) {
  RIDGE_RETURN_IF_ERROR(CheckUsage(options));
  std::string prompt;
  if (options.input.given()) {
    RIDGE_ASSIGN_OR_RETURN(prompt, options.input.Read());
  }
  RIDGE_ASSIGN_OR_RETURN(const std::string path, hub::ResolveModel(options.model));
  RIDGE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::Open(path));
  auto tokenizer = Tokenizer::FromMetadata(file.metadata());
  if (!tokenizer) {
    tokenizer.error().where = path + (tokenizer.error().where.empty() ? "" : ": " + tokenizer.error().where);
    return std::unexpected(std::move(tokenizer).error());
  }
  if (options.lines) return TransformLines(options, **tokenizer, out);
  if (options.decode) {
    RIDGE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ParseIds(options.ids, (*tokenizer)->vocab_size()));
    const std::string decoded = (*tokenizer)->Decode(ids, options.parse_special);
    return out.json ? out.Document({{"text", text::ReplaceInvalidUtf8(decoded)}}) : out.Write(decoded);
  }
  RIDGE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                         (*tokenizer)->Encode(prompt, {!options.no_bos, options.parse_special}));
  Json pieces = Json::array();
  for (const TokenId id : ids) pieces.push_back(text::ReplaceInvalidUtf8((*tokenizer)->Piece(id)));
  if (out.json) return out.Document({{"ids", ids}, {"pieces", std::move(pieces)}});
  std::string table;
  for (size_t i = 0; i < ids.size(); ++i) table += fmt::format("{:>7}  {}\n", ids[i], pieces[i].dump());
  return out.Write(table);
}

}  // namespace

void AddTokenize(CLI::App& root, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "tokenize", "text to token ids and back",
                                "ridge tokenize -m model.gguf -p \"Hello world\"\n"
                                "  ridge tokenize -m model.gguf --decode --ids 9906,1917");
  app->add_option("-m,--model", options->model, "a GGUF file (its vocabulary is enough) or a name in the store")
      ->required();
  options->input.AddTo(app);
  CLI::Option* ids = app->add_option("--ids", options->ids, "token ids with commas between, for --decode");
  app->add_flag("--lines", options->lines,
                "each line of stdin is a JSON string (with --decode: an array of ids), each line of stdout its answer");
  app->add_flag("--decode", options->decode, "ids to text");
  app->add_flag("--no-bos", options->no_bos, "add no special token at either end");
  app->add_flag("--parse-special", options->parse_special,
                "text that spells a special token becomes that token; with --decode, print special tokens too");
  invocation.Bind(app, [=](Output& out) {
    options->has_ids = ids->count() > 0;
    return Tokenize(*options, out);
  });
}

}  // namespace ridge::app
