// The command line as it was typed, checked before CLI11 reads it.
//
//   CommandLine line(root, argc, argv);
//   if (const Status good = line.Check(); !good) return Report(good.error());
//   root.parse(line.ForParser());                           // finds what Check has let through
//   return Report(line.AsTyped(std::move(error)));          // names options as they were typed: -np, not --parallel
//
// Guarantees: every error says what, where, found, expected and the remedy. What is unknown is named before what is missing, with the name that is
// nearest. Options of several letters may have one dash or two, their values may follow behind = or a space; whole numbers are decimal (010 is ten).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"

namespace ridge::app {

class CommandLine {
 public:
  CommandLine(CLI::App& root, int argc, const char* const* argv);

  Status Check();
  std::vector<std::string> ForParser() const;  // CLI11 takes them from the back
  Error FromParser(const CLI::ParseError& wrong) const;
  Error AsTyped(Error error) const;
  bool json() const { return json_; }  // --json stands there, whatever else is wrong

 private:
  struct Given {
    CLI::Option* option = nullptr;
    std::string spelling;
    std::vector<std::string> values;
  };
  // An argument taken apart: the option that it names, how, and the value that hangs on it.
  struct Named {
    CLI::Option* option = nullptr;
    std::string spelling;
    std::optional<std::string> value;
  };

  Status Walk();
  Status TakeOption(const Named& named, size_t& at);
  Status TakePositional(const std::string& text);
  Status CheckTogether() const;
  Named TakeApart(const std::string& argument) const;
  bool IsForOthers(const std::string& name, const CLI::Option& short_option) const;
  Error Unknown(const std::string& spelling) const;
  Error UnknownCommand() const;
  const Given* FindGiven(const CLI::Option* option) const;
  std::string Spelling(const CLI::Option& option) const;  // as typed, else as --help shows it
  std::string Where() const;                              // "ridge run"
  std::string Help() const;                               // "see ridge run --help"
  CLI::Option* FindOption(const CLI::App& app, const std::string& name) const;

  CLI::App& root_;
  CLI::App* command_ = nullptr;
  std::vector<std::string> typed_, parsed_;
  std::vector<Given> given_;
  size_t positionals_ = 0;      // that the command's own positionals take
  bool open_ = false;           // the latest option may take more values
  bool taken_by_open_ = false;  // such a one took some: CLI11 knows better who gets which
  bool help_ = false, json_ = false;
};

}  // namespace ridge::app
