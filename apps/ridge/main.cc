#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "command_line.h"
#include "commands.h"
#include "file_fault.h"
#include "option_names.h"

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

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed stdout is status 1, not a signal
  std::signal(SIGXFSZ, SIG_IGN);  // so is a limit on file size
  CLI::App root{"Ridge runs GGUF language models at the limit of the machine, and says how near it came.", "ridge"};
  root.set_version_flag("--version", std::string("ridge " RIDGE_VERSION));
  root.require_subcommand(1);
  root.formatter(HelpFormat());  // of its commands too
  Invocation invocation;
  for (AddCommand add : kCommands) {
    add(root, invocation);
  }
  CommandLine line(root, argc, argv);
  if (Status good = line.Check(); !good) return Report(good.error(), line.json());
  try {
    root.parse(line.ForParser());
  } catch (const CLI::Success& request) {  // --help, --version
    root.exit(request);
    Output out;
    const Status shown = out.Flush();
    return shown ? 0 : Report(shown.error(), false);
  } catch (const CLI::ParseError& wrong) {
    return Report(line.FromParser(wrong), line.json());
  }
  Output out;
  out.json = invocation.json;
  TellFileFaults(out);
  Status done;
  try {
    done = invocation.function(out);
  } catch (const std::bad_alloc&) {
    done = Fail(Code::kResourceExhausted, "out of memory").Remedy("give it more memory, or ask for less at once");
  } catch (const std::exception& fault) {  // nothing should come this far
    done = Fail(Code::kInternal, "internal fault").Found(fault.what()).Remedy("please report it");
  }
  if (done) done = out.Flush();
  return done ? 0 : Report(line.AsTyped(std::move(done).error()), out.json && !out.documented);
}

}  // namespace
}  // namespace ridge::app

int main(int argc, char** argv) { return ridge::app::Main(argc, argv); }
