// What every subcommand shares: how it registers its flags, prints its document and reports failure.
//
//   void AddInspect(CLI::App& root, Invocation& invocation) {
//     auto options = std::make_shared<InspectOptions>();
//     CLI::App* app = AddSubcommand(root, "inspect", "list metadata and tensors of a GGUF file", "ridge inspect model.gguf");
//     app->add_option("MODEL", options->model)->required();
//     invocation.Bind(app, [options](Output& out) { return Inspect(*options, out); });
//   }
//
// Rules: stdout is the product (text, or one JSON document with --json); all else goes to stderr. The command returns a Status;
// main prints the error and chooses the exit status. Flags of several letters with one dash (-ngl, -ctk) are declared as --ngl, --ctk:
// main accepts both spellings.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ridge::app {

using Json = nlohmann::ordered_json;

// stdout of one command. Write and Document fail (kUnavailable) where stdout is closed, full or broken.
class Output {
 public:
  bool json = false;        // --json was given
  bool documented = false;  // a document was written: an error after it adds none
  Status Write(std::string_view text);
  Status Document(const Json& document);  // one JSON document and a newline; broken UTF-8 is replaced
  Status Flush();
};

class Invocation {
 public:
  using Function = std::function<Status(Output&)>;
  // Adds --json to the subcommand and remembers what to call once the command line is parsed.
  void Bind(CLI::App* app, Function function);
  Function function;
  bool json = false;
};

CLI::App* AddSubcommand(CLI::App& root, const std::string& name, const std::string& summary,
                        const std::string& example);

}  // namespace ridge::app
