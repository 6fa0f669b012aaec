#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "commands.h"

namespace ridge::app {
namespace {

// Reports an error the way CLI.md fixes it: one line on stderr that begins "error: ", and the document on stdout with --json.
int Report(const Error& error, bool json) {
  std::fprintf(stderr, "error: %s\n", error.Message().c_str());
  if (json) {
    Output out;
    (void)out.Document({{"error",
                         {{"code", std::string(Name(error.code))},
                          {"what", error.what},
                          {"where", error.where},
                          {"found", error.found},
                          {"expected", error.expected},
                          {"remedy", error.remedy}}}});
  }
  return ExitStatus(error.code);
}

// llama.cpp's users type -ngl 99 and -ctk q8_0: flags of several letters with one dash become --ngl, --ctk where the command knows them.
std::vector<std::string> Normalize(CLI::App& root, int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  CLI::App* command = nullptr;
  for (CLI::App* candidate : root.get_subcommands({})) {
    if (!args.empty() && candidate->get_name() == args[0]) command = candidate;
  }
  for (std::string& arg : args) {
    if (command == nullptr || arg.size() < 3 || arg[0] != '-' || arg[1] == '-') continue;
    const std::string name = arg.substr(0, arg.find('='));
    const bool letters =
        std::all_of(name.begin() + 1, name.end(), [](unsigned char c) { return std::isalpha(c) || c == '-'; });
    if (letters && command->get_option_no_throw("-" + name) != nullptr) arg = "-" + arg;
  }
  std::reverse(args.begin(), args.end());  // CLI11 takes its arguments from the back
  return args;
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed stdout is status 1, not a signal
  std::signal(SIGXFSZ, SIG_IGN);  // so is a limit on file size
  CLI::App root{"Ridge runs GGUF language models at the limit of the machine, and says how near it came.", "ridge"};
  root.set_version_flag("--version", std::string("ridge " RIDGE_VERSION));
  root.require_subcommand(1);
  Invocation invocation;
  for (AddCommand add : kCommands) {
    if (add != nullptr) add(root, invocation);
  }
  std::vector<std::string> args = Normalize(root, argc, argv);
  const bool json_asked = std::find(args.begin(), args.end(), "--json") != args.end();
  try {
    root.parse(std::move(args));
  } catch (const CLI::Success& request) {  // --help, --version
    root.exit(request);
    Output out;
    return out.Flush() ? 0 : 1;
  } catch (const CLI::ParseError& wrong) {
    return Report(Error{Code::kUsage, wrong.what(), "", "", "", "see ridge --help"}, json_asked);
  }
  Output out;
  out.json = invocation.json;
  Status done = invocation.function(out);
  if (done) done = out.Flush();
  return done ? 0 : Report(done.error(), out.json && !out.documented);
}

}  // namespace
}  // namespace ridge::app

int main(int argc, char** argv) { return ridge::app::Main(argc, argv); }
