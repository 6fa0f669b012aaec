#include "command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ridge::app {
namespace {

Status StdoutBroken() {
  return Fail(Code::kUnavailable, "cannot write to stdout")
      .Found(std::strerror(errno))
      .Remedy("check the pipe or the disk behind it");
}

}  // namespace

Status Output::Write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) return StdoutBroken();
  return {};
}

Status Output::Document(const Json& document) {
  documented = true;
  RIDGE_RETURN_IF_ERROR(Write(document.dump(2, ' ', false, Json::error_handler_t::replace)));
  RIDGE_RETURN_IF_ERROR(Write("\n"));
  return Flush();
}

Status Output::Flush() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return StdoutBroken();
  return {};
}

void Invocation::Bind(CLI::App* app, Function bound) {
  app->add_flag("--json", json, "one JSON document on stdout, logs on stderr");
  app->callback([this, bound = std::move(bound)] { function = bound; });
}

CLI::App* AddSubcommand(CLI::App& root, const std::string& name, const std::string& summary,
                        const std::string& example) {
  CLI::App* app = root.add_subcommand(name, summary);
  app->footer("Example:\n  " + example);
  return app;
}

}  // namespace ridge::app
