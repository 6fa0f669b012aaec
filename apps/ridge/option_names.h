// Names, types and ranges of options as people read them, in --help and in errors.
//
//   ShownName(*option);    // "-np" for an option declared as --np,--parallel; "-c" for -c,--ctx-size; "MODEL" for a positional
//   app.formatter(HelpFormat());
//
// Guarantees: --help and errors name an option the same way. llama.cpp's flags of several letters with one dash are declared with two, as CLI11 needs
// it, and shown with one.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::app {

// Every name that begins with a dash, as it is shown: -c --ctx-size, -np --parallel.
std::vector<std::string> ShownNames(const CLI::Option& option);
// The first of them, or the positional's name.
std::string ShownName(const CLI::Option& option);

enum class ValueKind { kText, kWhole, kNatural, kReal };  // kNatural: whole, 0 or more
ValueKind KindOf(const CLI::Option& option);
// "1 to 1024"; empty: not bounded by the command line itself.
std::string RangeOf(CLI::Option& option);

// An empty value means something to this option; of all others it is refused before the command sees it.
void AllowEmpty(CLI::Option* option);
bool MayBeEmpty(CLI::Option& option);

std::shared_ptr<CLI::Formatter> HelpFormat();

}  // namespace ridge::app
