#include "option_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge::app {
namespace {

// llama.cpp's flags of several letters with one dash.
constexpr std::string_view kOneDash[] = {"cnv", "ctk", "ctv", "fa", "md", "ngl", "no-cnv", "np",
                                         "npl", "npp", "ntg", "pg", "st", "sys", "ub"};

// The mark is a check that everything passes: CLI11 gives an option no other place to keep one.
const std::string kMayBeEmpty = "may be empty";

// CLI11 describes its own checks: "INT in [1 - 1024]", "POSITIVE", "{a,b}".
std::string RangeText(const std::string& description) {
  if (description == "POSITIVE") return "above 0";
  if (const size_t at = description.find(" in ["); at != std::string::npos) {
    std::string range = description.substr(at + 5, description.size() - at - 6);
    if (const size_t dash = range.find(" - "); dash != std::string::npos) range.replace(dash, 3, " to ");
    return range;
  }
  if (description.starts_with('{')) return "one of " + description.substr(1, description.size() - 2);
  return description;
}

class Format : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    return is_positional ? option->get_name(true, false) : fmt::format("{}", fmt::join(ShownNames(*option), ","));
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string left = make_option_name(option, is_positional);
    if (option->get_type_size() != 0) {
      if (const std::string type = Type(*option); !type.empty()) left += " " + type;
      if (const std::string value = option->get_default_str(); !value.empty()) left += "=" + value;
      if (option->get_expected_max() == CLI::detail::expected_max_vector_size) left += " ...";
      // One that may stand in either way is asked for once.
      if (option->get_required() && (is_positional || !option->get_positional())) left += " REQUIRED";
    }
    if (!option->get_envname().empty()) left += " (Env:" + option->get_envname() + ")";
    left += Others(" Needs:", option->get_needs()) + Others(" Excludes:", option->get_excludes());
    std::string description = option->get_description();
    if (!is_positional && option->get_positional()) description = "the same as " + option->get_name(true, false);
    const std::string range =
        RangeOf(const_cast<CLI::Option&>(*option));  // CLI11 finds validators of an option that may be changed only
    if (!range.empty()) description += " (" + range + ")";
    std::stringstream out;
    CLI::detail::format_help(out, left, description, column_width_);
    return out.str();
  }

 private:
  static std::string Type(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    return type.substr(0, type.find(':'));
  }
  static std::string Others(const char* label, const std::set<CLI::Option*>& options) {
    std::vector<std::string> names;
    for (const CLI::Option* option : options) names.push_back(ShownName(*option));
    std::ranges::sort(names);  // a set of addresses has no order that means anything
    return names.empty() ? "" : fmt::format("{} {}", label, fmt::join(names, " "));
  }
};

}  // namespace

std::vector<std::string> ShownNames(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) {
    const bool one = std::ranges::find(kOneDash, name) != std::end(kOneDash);
    names.push_back((one ? "-" : "--") + name);
  }
  return names;
}

std::string ShownName(const CLI::Option& option) {
  const std::vector<std::string> names = ShownNames(option);
  return names.empty() ? option.get_name(true, false) : names.front();
}

ValueKind KindOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.starts_with("INT")) return ValueKind::kWhole;
  if (type.starts_with("UINT")) return ValueKind::kNatural;
  return type.starts_with("FLOAT") ? ValueKind::kReal : ValueKind::kText;
}

std::string RangeOf(CLI::Option& option) {
  std::string out;
  try {
    for (int i = 0;; i++) {
      const std::string text = RangeText(option.get_validator(i)->get_description());
      if (!text.empty()) out += (out.empty() ? "" : " and ") + text;
    }
  } catch (const CLI::OptionNotFound&) {  // the one behind the last: how CLI11 says how many there are
    return out;
  }
}

void AllowEmpty(CLI::Option* option) {
  option->check(CLI::Validator([](std::string&) { return std::string(); }, "", kMayBeEmpty));
}

bool MayBeEmpty(CLI::Option& option) {
  try {
    return option.get_validator(kMayBeEmpty) != nullptr;
  } catch (const CLI::OptionNotFound&) {
    return false;
  }
}

std::shared_ptr<CLI::Formatter> HelpFormat() { return std::make_shared<Format>(); }

}  // namespace ridge::app
