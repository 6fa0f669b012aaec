#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <utility>
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
  // A value of a flag that can never work is a wrong command line, wherever it was found out.
  const bool value = error.code == Code::kInvalidArgument || error.code == Code::kOutOfRange;
  const bool flag = value && error.where.starts_with('-') && error.where.find_first_of(" ,") == std::string::npos;
  return flag ? ExitStatus(Code::kUsage) : ExitStatus(error.code);
}

// llama.cpp's users type -ngl 99 and -ctk q8_0: flags of several letters with one dash become --ngl, --ctk where the command knows them.
std::vector<std::string> Normalize(CLI::App& root, int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  CLI::App* command = nullptr;
  for (CLI::App* candidate : root.get_subcommands({})) {
    if (!args.empty() && candidate->get_name() == args[0]) command = candidate;
  }
  bool value = false;  // the argument is what the option before it asked for: not to be touched
  for (std::string& arg : args) {
    if (command == nullptr) break;
    if (std::exchange(value, false) || arg.size() < 2 || arg[0] != '-') continue;
    const std::string name = arg.substr(0, arg.find('='));
    const bool letters =
        std::all_of(name.begin() + 1, name.end(), [](unsigned char c) { return std::isalpha(c) || c == '-'; });
    if (arg.size() > 2 && arg[1] != '-' && letters && command->get_option_no_throw("-" + name) != nullptr) {
      arg = "-" + arg;
    }
    const CLI::Option* option = command->get_option_no_throw(arg);
    value = option != nullptr && option->get_items_expected_max() > 0;
  }
  std::reverse(args.begin(), args.end());  // CLI11 takes its arguments from the back
  return args;
}

// CLI11's own reading, with its base of 0, but looking at what it does not look at.
bool Fits(const std::string& type, const std::string& text) {
  errno = 0;
  if (type.starts_with("INT")) {
    (void)std::strtoll(text.c_str(), nullptr, 0);
  } else if (type.starts_with("UINT")) {
    (void)std::strtoull(text.c_str(), nullptr, 0);
    if (text.find('-') != std::string::npos) return false;
  } else if (type.starts_with("FLOAT")) {
    const double number = std::strtod(text.c_str(), nullptr);
    return errno != ERANGE || !std::isinf(number);  // one too small is zero
  }
  return errno != ERANGE;
}

// Numbers as they were typed fit their types: CLI11 clamps those that are too large, and wraps those below zero where none may be.
Status CheckNumbers(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& text : option->results()) {
      if (Fits(option->get_type_name(), text)) continue;
      return Fail(Code::kUsage, "a number out of range")
          .Where(option->get_name())
          .Found(text)
          .Remedy("see ridge " + app.get_name() + " --help");
    }
  }
  return {};
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed stdout is status 1, not a signal
  std::signal(SIGXFSZ, SIG_IGN);  // so is a limit on file size
  CLI::App root{"Ridge runs GGUF language models at the limit of the machine, and says how near it came.", "ridge"};
  root.set_version_flag("--version", std::string("ridge " RIDGE_VERSION));
  root.require_subcommand(1);
  Invocation invocation;
  for (AddCommand add : kCommands) {
    add(root, invocation);
  }
  std::vector<std::string> args = Normalize(root, argc, argv);
  const bool json_asked =
      std::any_of(args.begin(), args.end(), [](const std::string& arg) { return arg.starts_with("--json"); });
  const std::string first = args.empty() ? "" : args.back();
  const CLI::App* command = nullptr;
  for (const CLI::App* candidate : root.get_subcommands({})) {
    if (candidate->get_name() == first) command = candidate;
  }
  if (command == nullptr && !first.empty() && first[0] != '-') {
    return Report(Error{Code::kUsage, "unknown command", "", first, "", "see ridge --help"}, json_asked);
  }
  try {
    root.parse(std::move(args));
  } catch (const CLI::Success& request) {  // --help, --version
    root.exit(request);
    Output out;
    const Status shown = out.Flush();
    return shown ? 0 : Report(shown.error(), false);
  } catch (const CLI::ParseError& wrong) {
    const std::string help = command == nullptr ? "see ridge --help" : "see ridge " + command->get_name() + " --help";
    return Report(Error{Code::kUsage, wrong.what(), "", "", "", help}, json_asked);
  }
  Output out;
  out.json = invocation.json;
  Status done;
  for (const CLI::App* used = &root; used != nullptr && done;) {
    done = CheckNumbers(*used);
    used = used->get_subcommands().empty() ? nullptr : used->get_subcommands().front();
  }
  if (!done) return Report(done.error(), out.json);
  try {
    done = invocation.function(out);
  } catch (const std::bad_alloc&) {
    done = Fail(Code::kResourceExhausted, "out of memory").Remedy("give it more memory, or ask for less at once");
  } catch (const std::exception& fault) {  // nothing should come this far
    done = Fail(Code::kInternal, "internal fault").Found(fault.what()).Remedy("please report it");
  }
  if (done) done = out.Flush();
  return done ? 0 : Report(done.error(), out.json && !out.documented);
}

}  // namespace
}  // namespace ridge::app

int main(int argc, char** argv) { return ridge::app::Main(argc, argv); }
