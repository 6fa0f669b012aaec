#include "command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "option_names.h"

namespace ridge::app {
namespace {

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

bool IsShown(const CLI::Option& option, const std::string& name) {
  const std::vector<std::string> names = ShownNames(option);
  return std::ranges::find(names, name) != names.end();
}

// How many letters one is from the other.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); j++) row[j] = j;
  for (size_t i = 1; i <= a.size(); i++) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); j++) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string Bare(std::string_view name) {
  std::string out(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  for (char& c : out) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// The candidate that someone who typed `name` most likely meant; empty: none is near.
std::string Nearest(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string typed = Bare(name);
  std::string best;
  size_t least = typed.size() / 3 + 1;  // of letters that may differ, and one more
  for (const std::string& candidate : candidates) {
    const std::string known = Bare(candidate);
    if (known.size() < 2) continue;
    const bool begins = typed.size() >= 3 && known.starts_with(typed);
    const size_t distance = begins ? 0 : Distance(typed, known);
    if (distance >= least || distance >= typed.size()) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

// A number as a whole word of decimal digits, its needless zeros and plus sign taken off: CLI11 reads 010 as eight and 0x10 as sixteen.
Status ReadNumber(ValueKind kind, const std::string& where, std::string& text) {
  const bool real = kind == ValueKind::kReal;
  const std::string expected = real                        ? "a number, such as 0.5"
                               : kind == ValueKind::kWhole ? "a whole number, such as 4"
                                                           : "a whole number, 0 or more";
  const auto wrong = [&](const char* what) -> Status {
    return Fail(Code::kUsage, what).Where(where).Found(text).Expected(expected);
  };
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const auto digits = text.find_first_not_of("0123456789", sign);
  errno = 0;
  if (real) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (end != text.c_str() + text.size() || std::isspace(static_cast<unsigned char>(text[0])) != 0 ||
        text.find_first_of("xX") != std::string::npos)
      return wrong("not a decimal number");
    if (std::isnan(number)) return wrong("not a number");
    if (errno == ERANGE && std::isinf(number)) return wrong("a number out of range");  // one too small is zero
    return {};
  }
  if (text.size() == sign || digits != std::string::npos) return wrong("not a decimal number");
  if (kind == ValueKind::kNatural && text[0] == '-') return wrong("a number out of range");
  if (kind == ValueKind::kWhole) {
    (void)std::strtoll(text.c_str(), nullptr, 10);
  } else {
    (void)std::strtoull(text.c_str(), nullptr, 10);
  }
  if (errno == ERANGE) return wrong("a number out of range");
  const std::string minus = text[0] == '-' ? "-" : "";
  text = minus + text.substr(std::min(text.find_first_not_of('0', sign), text.size() - 1));
  return {};
}

// CLI11's own checks of one value: ranges and lists.
Status CheckRanges(CLI::Option& option, const std::string& where, const std::string& text) {
  std::string rest = text;
  const char delimiter = option.get_delimiter();
  while (true) {
    const size_t end = delimiter == '\0' ? std::string::npos : rest.find(delimiter);
    const std::string item = rest.substr(0, end);
    try {
      for (int i = 0;; i++) {
        if ((*option.get_validator(i))(item).empty()) continue;
        return Fail(Code::kUsage, "wrong value").Where(where).Found(item).Expected(RangeOf(option));
      }
    } catch (const CLI::OptionNotFound&) {  // no more of them
    }
    if (end == std::string::npos) return {};
    rest.erase(0, end + 1);
  }
}

}  // namespace

CommandLine::CommandLine(CLI::App& root, int argc, const char* const* argv)
    : root_(root), typed_(argv + std::min(argc, 1), argv + argc) {
  for (CLI::App* candidate : root.get_subcommands({})) {
    if (!typed_.empty() && candidate->get_name() == typed_[0]) command_ = candidate;
  }
  json_ = std::ranges::any_of(typed_, [](const std::string& text) { return text == "--json" || text == "-json"; });
}

std::string CommandLine::Where() const { return command_ == nullptr ? "ridge" : "ridge " + command_->get_name(); }
std::string CommandLine::Help() const { return "see " + Where() + " --help"; }

CLI::Option* CommandLine::FindOption(const CLI::App& app, const std::string& name) const {
  const CLI::Option* option = app.get_option_no_throw(name);
  if (option == nullptr && name.size() > 2 && name[1] != '-') option = app.get_option_no_throw("-" + name);
  return const_cast<CLI::Option*>(option);  // of root_, which is ours to change
}

const CommandLine::Given* CommandLine::FindGiven(const CLI::Option* option) const {
  const auto found = std::ranges::find(given_, option, &Given::option);
  return found == given_.end() ? nullptr : &*found;
}

std::string CommandLine::Spelling(const CLI::Option& option) const {
  const Given* given = FindGiven(&option);
  return given == nullptr ? ShownName(option) : given->spelling;
}

// -md x of a command that knows -m alone is not a model "d", and -np no number "p".
bool CommandLine::IsForOthers(const std::string& name, const CLI::Option& short_option) const {
  const char first = name[2];
  if (KindOf(short_option) != ValueKind::kText) return !IsDigit(first) && first != '-' && first != '+' && first != '.';
  return std::ranges::any_of(root_.get_subcommands({}), [&](const CLI::App* app) {
    const CLI::Option* option = app->get_option_no_throw("-" + name);
    return option != nullptr && IsShown(*option, name);
  });
}

CommandLine::Named CommandLine::TakeApart(const std::string& argument) const {
  const size_t equals = argument.find('=');
  Named named{.spelling = argument.substr(0, equals)};
  if (equals != std::string::npos) named.value = argument.substr(equals + 1);
  named.option = FindOption(*command_, named.spelling);
  if (named.option != nullptr || argument[1] == '-' || named.spelling.size() == 2) return named;
  CLI::Option* one = FindOption(*command_, argument.substr(0, 2));  // -t4
  if (one == nullptr || !TakesValue(*one) || IsForOthers(named.spelling, *one)) return named;
  return {one, argument.substr(0, 2), argument.substr(2)};
}

Error CommandLine::Unknown(const std::string& spelling) const {
  const std::string name = spelling.substr(0, spelling.find('='));
  std::vector<std::string> known;
  std::string other;
  for (const CLI::Option* option : (command_ == nullptr ? root_ : *command_).get_options()) {
    for (std::string& shown : ShownNames(*option)) known.push_back(std::move(shown));
  }
  for (const CLI::App* app : root_.get_subcommands({})) {
    if (!other.empty() || FindOption(*app, name) == nullptr) continue;
    other = command_ == nullptr ? fmt::format("a command before it: {} is an option of ridge {}", name, app->get_name())
                                : fmt::format("an option of {}: {} is one of ridge {}", Where(), name, app->get_name());
  }
  const std::string nearest = Nearest(name, known);
  std::string expected = !other.empty() ? other : "an option of " + Where();
  if (!nearest.empty()) expected = nearest + ", perhaps";
  return {Code::kUsage, "unknown option", Where(), name, expected, Help()};
}

Error CommandLine::UnknownCommand() const {
  std::vector<std::string> known;
  for (const CLI::App* app : root_.get_subcommands({})) known.push_back(app->get_name());
  const std::string nearest = typed_.empty() ? "" : Nearest(typed_[0], known);
  return {Code::kUsage,
          typed_.empty() ? "no command" : "unknown command",
          "",
          typed_.empty() ? "" : typed_[0],
          nearest.empty() ? fmt::format("{}", fmt::join(known, ", ")) : nearest + ", perhaps",
          "see ridge --help"};
}

Status CommandLine::TakePositional(const std::string& text) {
  parsed_.push_back(text);
  std::string where;
  if (open_) {
    taken_by_open_ = true;
    where = given_.back().spelling;
  } else {
    size_t room = 0;
    for (const CLI::Option* option : command_->get_options()) {
      if (!option->get_positional()) continue;
      if (positionals_ >= room) where = option->get_name(true, false);
      room += static_cast<size_t>(option->get_items_expected_max());
    }
    if (positionals_ >= room) {
      const bool model = room == 0 && command_->get_option_no_throw("--model") != nullptr;
      return Fail(Code::kUsage, "unexpected argument")
          .Where(Where())
          .Found(text.empty() ? "\"\"" : text)
          .Expected(room == 0 ? "options only" : fmt::format("{} before the options, and no more", room))
          .Remedy(model ? "a model is given with -m; " + Help() : Help());
    }
    ++positionals_;
  }
  if (text.empty()) return Fail(Code::kUsage, "the value is empty").Where(where).Found("\"\"").Expected("a value");
  return {};
}

Status CommandLine::TakeOption(const Named& named, size_t& at) {
  CLI::Option& option = *named.option;
  const std::string& where = named.spelling;
  // With the name that CLI11 knows it by.
  const std::string name = option.check_name(where) ? where : "-" + where;
  help_ = help_ || &option == command_->get_help_ptr();
  if (!TakesValue(option)) {
    open_ = false;
    given_.push_back({&option, where, {}});
    parsed_.push_back(named.value ? name + "=" + *named.value : name);
    return {};
  }
  if (const Given* before = FindGiven(&option); before != nullptr && option.get_items_expected_max() == 1) {
    return Fail(Code::kUsage, "the option is given twice")
        .Where(where)
        .Found(before->values.front() + " before it")
        .Expected("one value");
  }
  Given given{&option, where, {}};
  if (named.value) given.values.push_back(*named.value);
  // A switch for years, and so in every course: -fa with nothing behind it, or another flag, is -fa on.
  if (!named.value && option.check_lname("fa") && (at + 1 == typed_.size() || typed_[at + 1].starts_with('-')))
    given.values.emplace_back("on");
  const auto least = static_cast<size_t>(std::max(1, option.get_items_expected_min()));
  while (given.values.size() < least && at + 1 < typed_.size()) given.values.push_back(typed_[++at]);
  if (given.values.size() < least) {
    return Fail(Code::kUsage, "the option has no value")
        .Where(where)
        .Found("the end of the command line")
        .Expected("a value behind it")
        .Remedy(Help());
  }
  parsed_.push_back(name);
  for (std::string& value : given.values) {
    if (value.empty() && !MayBeEmpty(option)) {
      return Fail(Code::kUsage, "the value is empty")
          .Where(where)
          .Found("\"\"")
          .Expected("a value")
          .Remedy("give one, or leave the option out");
    }
    if (const ValueKind kind = KindOf(option); kind != ValueKind::kText)
      RIDGE_RETURN_IF_ERROR(ReadNumber(kind, where, value));
    RIDGE_RETURN_IF_ERROR(CheckRanges(option, where, value));
    parsed_.push_back(value);
  }
  open_ = option.get_allow_extra_args() || static_cast<size_t>(option.get_items_expected_max()) > given.values.size();
  given_.push_back(std::move(given));
  return {};
}

Status CommandLine::Walk() {
  parsed_.push_back(typed_[0]);
  Status first;  // wrong; --help behind it shows the help all the same
  bool options = true;
  for (size_t at = 1; at < typed_.size(); at++) {
    const std::string& text = typed_[at];
    Status taken;
    if (options && text == "--") {
      options = open_ = false;
      parsed_.push_back(text);
    } else if (!options || text.size() < 2 || text[0] != '-' || IsDigit(text[1]) || text[1] == '.') {
      taken = TakePositional(text);
    } else if (const Named named = TakeApart(text); named.option == nullptr) {
      taken = std::unexpected(Unknown(text));
    } else {
      taken = TakeOption(named, at);
    }
    if (first && !taken) first = std::move(taken);
  }
  return first;
}

// What goes with what, and what has to be there.
Status CommandLine::CheckTogether() const {
  for (const Given& given : given_) {
    for (const CLI::Option* needed : given.option->get_needs()) {
      if (FindGiven(needed) != nullptr) continue;
      return Fail(Code::kUsage, "the option goes with another one only")
          .Where(given.spelling)
          .Expected(ShownName(*needed) + " beside it")
          .Remedy(Help());
    }
    for (const CLI::Option* other : given.option->get_excludes()) {
      if (FindGiven(other) == nullptr) continue;
      return Fail(Code::kUsage, "two options exclude one another")
          .Where(given.spelling)
          .Found(Spelling(*other) + " beside it")
          .Expected("one of them")
          .Remedy(Help());
    }
  }
  size_t room = 0;
  for (const CLI::Option* option : command_->get_options()) {
    const bool positional = option->get_positional();
    const bool there = FindGiven(option) != nullptr || (positional && (positionals_ > room || taken_by_open_));
    if (positional) room += static_cast<size_t>(option->get_items_expected_max());
    if (!option->get_required() || there) continue;
    const std::string name = positional ? option->get_name(true, false) : ShownName(*option);
    const std::string or_so = positional && !ShownNames(*option).empty() ? " (or " + ShownName(*option) + ")" : "";
    return Fail(Code::kUsage, positional ? "an argument is missing" : "an option is missing")
        .Where(Where())
        .Expected(name + or_so + ": " + option->get_description())
        .Remedy(Help());
  }
  return {};
}

Status CommandLine::Check() {
  if (command_ == nullptr) {
    if (typed_.empty()) return std::unexpected(UnknownCommand());
    for (const std::string& text : typed_) parsed_.push_back(text);
    if (!typed_[0].starts_with('-')) return std::unexpected(UnknownCommand());
    if (FindOption(root_, typed_[0]) == nullptr) return std::unexpected(Unknown(typed_[0]));
    return {};
  }
  const Status walked = Walk();
  if (help_) {
    parsed_ = {typed_[0], "--help"};
    return {};
  }
  RIDGE_RETURN_IF_ERROR(walked);
  return CheckTogether();
}

std::vector<std::string> CommandLine::ForParser() const { return {parsed_.rbegin(), parsed_.rend()}; }

Error CommandLine::FromParser(const CLI::ParseError& wrong) const {
  Error error{Code::kUsage, wrong.what(), Where(), "", "", Help()};
  if (wrong.get_name() != "ConversionError") return error;
  // Its words name the option; what is left for CLI11 to find are numbers that its type does not hold.
  for (const Given& given : given_) {
    if (given.values.empty() || error.what.find(": " + given.option->get_name() + " = ") == std::string::npos) continue;
    return {Code::kUsage, "a number out of range", given.spelling, given.values.front(), "a smaller one", Help()};
  }
  return error;
}

Error CommandLine::AsTyped(Error error) const {
  if (command_ == nullptr || !error.where.starts_with('-')) return error;
  const size_t end = std::min(error.where.find_first_of(" ,:"), error.where.size());
  const CLI::Option* option = FindOption(*command_, error.where.substr(0, end));
  if (const Given* given = option == nullptr ? nullptr : FindGiven(option); given != nullptr)
    error.where.replace(0, end, given->spelling);
  return error;
}

}  // namespace ridge::app
