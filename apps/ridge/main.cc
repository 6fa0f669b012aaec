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
#include "file_fault.h"

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
  for (size_t i = 0; i < args.size(); i++) {
    std::string& arg = args[i];
    if (command == nullptr) break;
    if (std::exchange(value, false) || arg.size() < 2 || arg[0] != '-') continue;
    const std::string name = arg.substr(0, arg.find('='));
    const bool letters =
        std::all_of(name.begin() + 1, name.end(), [](unsigned char c) { return std::isalpha(c) || c == '-'; });
    if (arg.size() > 2 && arg[1] != '-' && letters && command->get_option_no_throw("-" + name) != nullptr) {
      arg = "-" + arg;
    }
    const CLI::Option* option = command->get_option_no_throw(arg);
    // A switch for years, and so in every course: -fa with nothing behind it, or another flag, is -fa on.
    if (option != nullptr && option->check_lname("fa") && (i + 1 == args.size() || args[i + 1].starts_with('-'))) {
      arg += "=on";
      continue;
    }
    value = option != nullptr && option->get_items_expected_max() > 0;
  }
  std::reverse(args.begin(), args.end());  // CLI11 takes its arguments from the back
  return args;
}

// CLI11 reads 010 as eight and 0x10 as sixteen. Here a whole number is decimal, as in every list of numbers: zeros before it go, other bases are refused.
std::string ReadDecimal(std::string& text) {
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  if (text.size() < sign + 2 || text[sign] != '0') return "";
  if (std::isdigit(static_cast<unsigned char>(text[sign + 1])) == 0) return "not a decimal number: " + text;
  text.erase(sign, std::min(text.find_first_not_of('0', sign), text.size() - 1) - sign);
  return "";
}

void ReadNumbersAsDecimal(CLI::App& root) {
  for (CLI::App* command : root.get_subcommands({})) {
    ReadNumbersAsDecimal(*command);
    for (CLI::Option* option : command->get_options()) {
      if (const std::string type = option->get_type_name(); type.starts_with("INT") || type.starts_with("UINT"))
        option->transform(CLI::Validator(ReadDecimal, ""));
    }
  }
}

// CLI11's own reading, but looking at what it does not look at.
bool Fits(const std::string& type, const std::string& text) {
  errno = 0;
  if (type.starts_with("INT")) {
    (void)std::strtoll(text.c_str(), nullptr, 10);
  } else if (type.starts_with("UINT")) {
    (void)std::strtoull(text.c_str(), nullptr, 10);
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
  ReadNumbersAsDecimal(root);
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
  TellFileFaults(out);
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
