// The TOML of an experiment.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <fmt/format.h>

// Hostile text breaks what the library asserts; without that it is an error as any other.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>
#include <algorithm>
#include <set>

#include "lab/experiments/experiment.h"
#include "lab/subjects/subject.h"

namespace ridge::lab {
namespace {

constexpr int64_t kMostBlocks = 1000, kMostValues = 64;

Fail Bad(const toml::source_region& at, std::string what) {
  return Fail(Code::kInvalidData, std::move(what)).Where(fmt::format("line {}", at.begin.line));
}

// The keys of a table in the order of the file.
std::vector<std::pair<std::string, const toml::node*>> InOrder(const toml::table& table) {
  std::vector<std::pair<std::string, const toml::node*>> out;
  for (auto&& [key, node] : table) out.emplace_back(std::string(key.str()), &node);
  std::ranges::stable_sort(out, [](const auto& a, const auto& b) {
    const auto &x = a.second->source().begin, &y = b.second->source().begin;
    return x.line != y.line ? x.line < y.line : x.column < y.column;
  });
  return out;
}

// A scalar as a command line spells it.
Result<std::string> Text(const toml::node& node, std::string_view key) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* i = node.as_integer()) return std::to_string(i->get());
  if (const auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  if (const auto* b = node.as_boolean()) return std::string(b->get() ? "true" : "false");
  return Bad(node.source(), fmt::format("{} takes one value: a string, a number, true or false", key));
}

Result<int64_t> Whole(const toml::node& node, std::string_view key, int64_t most) {
  const auto* i = node.as_integer();
  if (i == nullptr || i->get() < 1 || i->get() > most)
    return Bad(node.source(), fmt::format("{} is a whole number from 1 to {}", key, most));
  return i->get();
}

// Command lines end at a NUL, so what is run would not be what is written.
Status CheckNoNul(const toml::node& node) {
  const auto has = [](std::string_view text) { return text.find('\0') != std::string_view::npos; };
  if (const auto* text = node.as_string(); text != nullptr && has(text->get()))
    return Bad(node.source(), "a text holds a NUL character");
  if (const auto* table = node.as_table()) {
    for (auto&& [key, value] : *table) {
      if (has(key.str())) return Bad(value.source(), "a key holds a NUL character");
      RIDGE_RETURN_IF_ERROR(CheckNoNul(value));
    }
  }
  if (const auto* array = node.as_array()) {
    for (const toml::node& value : *array) RIDGE_RETURN_IF_ERROR(CheckNoNul(value));
  }
  return {};
}

// Of ASCII, and those of U+0080 to U+009F.
bool HasControls(std::string_view text) {
  for (size_t i = 0; i < text.size(); i++) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) return true;
    if (c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return true;
  }
  return false;
}

std::string Undashed(std::string name) { return name.substr(std::min(name.find_first_not_of('-'), name.size())); }

Status ReadHead(const toml::table& table, Experiment& e) {
  for (const auto& [key, node] : InOrder(table)) {
    std::string* text = key == "name"       ? &e.name
                        : key == "question" ? &e.question
                        : key == "program"  ? &e.program
                        : key == "url"      ? &e.url
                        : key == "model"    ? &e.url_model
                        : key == "subject"  ? &e.subject
                                            : nullptr;
    int64_t* number = key == "blocks" ? &e.blocks : key == "repeats" ? &e.repeats : key == "seed" ? &e.seed : nullptr;
    if (text != nullptr) {
      RIDGE_ASSIGN_OR_RETURN(*text, Text(*node, key));
      if ((key == "name" || key == "question") && HasControls(*text))
        return Bad(node->source(), fmt::format("{} holds a control character; it is one line of text", key));
    } else if (number != nullptr) {
      RIDGE_ASSIGN_OR_RETURN(*number, Whole(*node, key, key == "seed" ? int64_t{1} << 50 : kMostBlocks));
    } else {
      return Bad(node->source(), fmt::format("an unknown key: {}; [experiment] has name, question, subject, program, "
                                             "url, model, blocks, repeats and seed",
                                             key));
    }
    if (key == "subject") {
      if (e.subject == "ridge") e.subject = "bench";
      if (FindSubject(e.subject) == nullptr)
        return Bad(node->source(), fmt::format("an unknown subject: {}; there are {}", e.subject, SubjectNames()));
    }
  }
  return {};
}

Status ReadWork(const toml::table& table, Workload& work) {
  for (const auto& [key, node] : InOrder(table)) {
    int64_t* number = key == "max_tokens"     ? &work.max_tokens
                      : key == "requests"     ? &work.requests
                      : key == "concurrency"  ? &work.concurrency
                      : key == "prefix_words" ? &work.prefix_words
                      : key == "prompts"      ? &work.take
                                              : nullptr;
    if (const toml::array* texts = node->as_array(); key == "prompts" && texts != nullptr) {
      for (const toml::node& text : *texts) {
        RIDGE_ASSIGN_OR_RETURN(std::string prompt, Text(text, "each of the prompts"));
        work.prompts.push_back(std::move(prompt));
      }
      if (work.prompts.empty()) return Bad(node->source(), "prompts is empty");
    } else if (number != nullptr) {
      RIDGE_ASSIGN_OR_RETURN(*number, Whole(*node, key, key == "prompts" ? 10 : 100000));
    } else if ((key == "ignore_eos" || key == "chat") && node->is_boolean()) {
      (key == "chat" ? work.chat : work.ignore_eos) = node->as_boolean()->get();
    } else {
      return Bad(node->source(),
                 fmt::format("an unknown key: {}; [work] has prompts (how many of the fixed ones, or texts), "
                             "max_tokens, requests, concurrency, prefix_words, ignore_eos and chat",
                             key));
    }
  }
  return {};
}

Status ReadVariable(const toml::table& table, Experiment& e) {
  for (const auto& [key, node] : InOrder(table)) {
    if (key == "flag") {
      RIDGE_ASSIGN_OR_RETURN(std::string flag, Text(*node, key));
      e.flag = Undashed(std::move(flag));
    } else if (key == "values") {
      const toml::array* values = node->as_array();
      if (values == nullptr) return Bad(node->source(), "values is an array: [1, 2]");
      for (const toml::node& value : *values) {
        RIDGE_ASSIGN_OR_RETURN(std::string text, Text(value, "each of the values"));
        e.values.push_back(std::move(text));
      }
    } else {
      return Bad(node->source(), fmt::format("an unknown key: {}; [variable] has flag and values", key));
    }
  }
  return {};
}

// What the tables must say together.
Status Check(const Experiment& e) {
  if (e.name.empty() || e.flag.empty())
    return Fail(Code::kInvalidData, "the experiment lacks a name or a variable")
        .Expected("[experiment] name, [variable] flag and values");
  std::set<std::string> different;
  for (const std::string& value : e.values) {
    if (!different.insert(value).second)
      return Fail(Code::kInvalidData, "values repeat")
          .Where("[variable] values")
          .Found(value + " twice")
          .Expected("two different values at least; the first is run twice by itself (A/A)");
  }
  if (e.values.size() > kMostValues)
    return Fail(Code::kInvalidData, "too many values")
        .Where("[variable] values")
        .Found(std::to_string(e.values.size()))
        .Expected(fmt::format("{} at most", kMostValues));
  if (e.values.size() < 2 && e.not_run.empty())
    return Fail(Code::kInvalidData, "a variable takes two different values at least")
        .Where("[variable] values")
        .Found(std::to_string(e.values.size()));
  for (const auto& [key, value] : e.base) {
    if (key == e.flag)
      return Fail(Code::kInvalidData, "the variable stands in [base] too").Where(key).Remedy("take it out of [base]");
    if (key == "o" || key == "output" || key == "r" || key == "repetitions" || key == "json")
      return Fail(Code::kInvalidData, "the lab sets this flag itself").Where(key).Remedy("see [experiment] repeats");
  }
  for (size_t arm = 0; arm < Arms(e); arm++) {
    const Subject* subject = FindSubject(SubjectNameOf(e, arm));
    if (subject == nullptr)
      return Fail(Code::kInvalidData, "an unknown subject")
          .Where("[variable] values")
          .Found(SubjectNameOf(e, arm))
          .Expected(SubjectNames());
    RIDGE_RETURN_IF_ERROR(subject->Check(e));
    if (e.flag == "observer") {
      const std::string& value = ValueOf(e, arm);
      if (value != "off" && value != "on")
        return Fail(Code::kInvalidData, "observing is off or on").Where("[variable] values").Found(value);
      if ((subject->name() != "bench" && subject->name() != "run") || !e.program.empty())
        return Fail(Code::kInvalidData, "this subject's ops cannot be traced")
            .Where("observer")
            .Found(std::string(subject->name()))
            .Expected("bench or run of this program");
    }
    if (e.flag == "concurrency" || e.flag == "max_tokens") {
      const std::string& value = ValueOf(e, arm);
      if (value.find_first_not_of("0123456789") != std::string::npos || value.size() > 5 || value == "0")
        return Fail(Code::kInvalidData, "no whole number from 1 to 99999").Where("[variable] values").Found(value);
      if (AskedBy(subject->name()) != subject->name())
        return Fail(Code::kInvalidData, "this subject answers no requests")
            .Where(e.flag)
            .Found(std::string(subject->name()))
            .Expected("run, serve, llama-cli, llama-server, url or openvino");
    }
  }
  return {};
}

}  // namespace

Result<Experiment> ParseExperiment(std::string_view text) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) return Bad(parsed.error().source(), std::string(parsed.error().description()));
  RIDGE_RETURN_IF_ERROR(CheckNoNul(parsed.table()));
  Experiment e;
  for (const auto& [name, node] : InOrder(parsed.table())) {
    const toml::table* table = node->as_table();
    if (table == nullptr ||
        (name != "experiment" && name != "base" && name != "variable" && name != "work" && name != "not_run"))
      return Bad(
          node->source(),
          fmt::format("an unknown table or key: {}; there are [experiment], [base], [work], [variable] and [not_run]",
                      name));
    if (name == "experiment") {
      RIDGE_RETURN_IF_ERROR(ReadHead(*table, e));
    } else if (name == "variable") {
      RIDGE_RETURN_IF_ERROR(ReadVariable(*table, e));
    } else if (name == "work") {
      RIDGE_RETURN_IF_ERROR(ReadWork(*table, e.work.emplace()));
    } else if (name == "not_run") {
      for (const auto& [key, value] : InOrder(*table)) {
        RIDGE_ASSIGN_OR_RETURN(e.not_run[key], Text(*value, key));
      }
    } else {
      for (const auto& [key, value] : InOrder(*table)) {
        RIDGE_ASSIGN_OR_RETURN(std::string setting, Text(*value, key));
        e.base.emplace_back(Undashed(key), std::move(setting));
      }
    }
  }
  std::erase_if(e.values, [&](const std::string& v) { return e.not_run.contains(v); });
  RIDGE_RETURN_IF_ERROR(Check(e));
  return e;
}

}  // namespace ridge::lab
