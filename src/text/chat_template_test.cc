#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/test_cpu_time.h"

namespace ridge::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kNow = 1785585845;  // as in tests/python/template_test.py

struct Snippets {
  Json variables;
  std::vector<Json> cases;
};

// tests/golden/template_snippets.jsonl: templates with the answers of jinja2 (written by template_test.py --update).
const Snippets& Golden() {
  static const Snippets snippets = [] {
    Snippets s;
    std::ifstream in("tests/golden/template_snippets.jsonl");
    std::string line;
    for (bool first = true; std::getline(in, line); first = false) {
      Json json = Json::parse(line);
      if (first) {
        s.variables = json.at("variables");
      } else {
        s.cases.push_back(std::move(json));
      }
    }
    return s;
  }();
  return snippets;
}

Result<std::string> Render(const std::string& source, const Json& kwargs, const Json& messages = Json::array(),
                           const TemplateLimits& limits = {}) {
  RIDGE_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Parse(source, limits));
  TemplateInput input;
  input.messages = &messages;
  input.kwargs = &kwargs;
  input.now_unix_seconds = kNow;
  return chat.Render(input);
}

std::string Text(const std::string& source, const Json& kwargs = Json::object(), const Json& messages = Json::array()) {
  const auto text = Render(source, kwargs, messages);
  return text ? *text : "error: " + text.error().Message();
}

TEST(ChatTemplate, AnswersAsJinja2) {
  ASSERT_GT(Golden().cases.size(), 1000U);
  size_t texts = 0;
  for (const Json& c : Golden().cases) {
    const auto source = c.at("template").get<std::string>();
    SCOPED_TRACE(source);
    const Json& want = c.contains("why") ? c.at("ridge") : c;
    const auto got = Render(source, Golden().variables);
    if (!want.contains("text")) {
      EXPECT_FALSE(got.has_value()) << *got;
      continue;
    }
    ++texts;
    ASSERT_TRUE(got.has_value()) << got.error().Message();
    EXPECT_EQ(*got, want.at("text").get<std::string>());
  }
  EXPECT_GT(texts, 700U);
}

TEST(ChatTemplate, VariablesThatAreNotGiven) {
  EXPECT_EQ(Text("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ bos_token is defined }}"),
            "TrueTrueFalseFalse");
  const auto chat =
      ChatTemplate::Parse("{{ messages is defined }}{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}");
  ASSERT_TRUE(chat);
  TemplateInput input;
  input.bos_token = "<s>";
  input.eos_token = "";
  input.add_generation_prompt = true;
  EXPECT_EQ(chat->Render(input).value(), "False<s>True");
}

TEST(ChatTemplate, KwargsReplaceVariables) {
  EXPECT_EQ(Text("{{ tools }}{{ enable_thinking }}", Json{{"tools", Json::array({1})}, {"enable_thinking", false}}),
            "[1]False");
}

TEST(ChatTemplate, ErrorsCarryTheTemplatesTextAndLine) {
  auto raised = Render("\n\n{% if true %}{{ raise_exception('roles must alternate') }}{% endif %}", Json::object());
  ASSERT_FALSE(raised);
  EXPECT_EQ(raised.error().code, Code::kInvalidArgument);
  EXPECT_EQ(raised.error().what, "roles must alternate");
  EXPECT_NE(raised.error().where.find("line 3"), std::string::npos) << raised.error().where;

  raised = Render("{% macro m(x) %}\n{{ x.y.z }}\n{% endmacro %}\n\n{{ m({}) }}", Json::object());
  ASSERT_FALSE(raised);
  EXPECT_EQ(raised.error().what, "'dict object' has no attribute 'y'");
  EXPECT_NE(raised.error().where.find("line 2"), std::string::npos) << raised.error().where;

  const auto broken = ChatTemplate::Parse("a\n{% if x %}\nb");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Code::kInvalidData);
  EXPECT_NE(broken.error().where.find("line 3"), std::string::npos) << broken.error().where;

  const auto bytes = ChatTemplate::Parse("caf\xE9");
  ASSERT_FALSE(bytes);
  EXPECT_NE(bytes.error().where.find("byte 3"), std::string::npos) << bytes.error().where;
}

TEST(ChatTemplate, BadInputIsAnError) {
  const auto chat = ChatTemplate::Parse("{{ messages }}");
  ASSERT_TRUE(chat);
  const auto fails = [&](const Json& messages, Code code) {
    TemplateInput input;
    input.messages = &messages;
    const auto text = chat->Render(input);
    ASSERT_FALSE(text) << *text;
    EXPECT_EQ(text.error().code, code);
  };
  fails(Json("\xFF"), Code::kInvalidArgument);
  fails(Json{{"\xC3", 1}}, Code::kInvalidArgument);
  fails(Json(std::numeric_limits<uint64_t>::max()), Code::kUnsupported);
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  fails(deep, Code::kOutOfRange);
  TemplateInput input;
  const Json list = Json::array();
  input.kwargs = &list;
  EXPECT_FALSE(chat->Render(input));
}

TEST(ChatTemplate, LimitsEndHostileTemplates) {
  const auto limited = [](const std::string& source, TemplateLimits limits = {}) {
    const auto text = Render(source, Json::object(), Json::array(), limits);
    ASSERT_FALSE(text) << source.substr(0, 100);
    EXPECT_EQ(text.error().code, Code::kOutOfRange) << text.error().Message();
  };
  limited(std::string(5 << 20, 'x'));
  limited("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}");
  std::string sum = "1", filters = "x", attributes = "x", blocks, inverse;
  for (int i = 0; i < 20000; ++i) {
    sum += "+1";
    filters += "|trim";
    attributes += ".a";
    blocks += "{% if 1 %}";
    inverse += "not ";
  }
  for (const std::string& e : {sum, filters, attributes, inverse + "1"}) limited("{{ " + e + " }}");
  limited(blocks);
  limited("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}");
  limited("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  limited("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  limited("{% for a in range(100000) %}{{ 'x' * 100000 }}{% endfor %}");
  limited("{% set ns = namespace(x='ab') %}{% for a in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}");
  limited("{% set ns = namespace(x=[]) %}{% for a in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}");
  limited("{% set ns = namespace(x=[1]) %}{% for a in range(100000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}");
  for (const char* e :
       {"[0] * 10000000000", "'a'.center(10000000000)", "'%10000000000d' % 1", "'{:10000000000}'.format(1)",
        "'a'|center(10000000000)", "('a' * 100000).replace('a', 'a' * 100000)", "[1]|batch(10000000000, 0)|list",
        "'a'|indent(10000000000)", "{'a': 1}|tojson(indent=10000000000)", "'%.100000f' % 1", "'a'.zfill(10000000000)",
        "'\\t'.expandtabs(10000000000)"}) {
    SCOPED_TRACE(e);
    limited(std::string("{{ ") + e + " }}");
  }
  limited("{{ 'abcdefghij' * 10 }}", {.output_bytes = 99});
  limited("{{ range(1000)|list|length }}", {.steps = 100});
  limited("{{ range(1000)|list|length }}", {.memory_bytes = 10000});
}

TEST(ChatTemplate, CyclesAndMutationLeaveNothingBehind) {  // the leak checker watches
  EXPECT_EQ(Text("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = [b] %}{{ a.b[0].a == a }}"),
            "True");
  EXPECT_EQ(Text("{% set n = namespace() %}{% set n.g = [n, n]|map(attribute='deep') %}{% set n.deep = [n.g] %}{{ "
                 "n.g|first|length }}"),
            "1");
  EXPECT_EQ(Text("{% set n = namespace(deep=1) %}{% for x in [n, n]|map(attribute='deep') %}{% set n.deep = [loop] "
                 "%}{{ loop.index }}{% endfor %}"),
            "12");
  EXPECT_EQ(Text("{% set n = namespace() %}{% macro m() %}{% macro i() %}{{ n.x }}{% endmacro %}{% set n.i = i %}{% "
                 "endmacro %}{{ m() }}{% set n.x = 3 %}{{ n.i() }}"),
            "3");
  EXPECT_EQ(
      Text("{% set n = namespace() %}{% set n.g = [n]|map(attribute='g')|map('list') %}{{ n.g|list }}").substr(0, 6),
      "error:");
}

TEST(ChatTemplate, OneTemplateRendersOnManyThreads) {
  const auto chat = ChatTemplate::Parse("{% for m in messages %}{{ 'role: ' ~ m.role|upper }}{% endfor %}");
  ASSERT_TRUE(chat);
  const Json messages = Json::parse(R"([{"role":"user"},{"role":"tool"}])");
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      TemplateInput input;
      input.messages = &messages;
      for (int i = 0; i < 50; ++i) right += chat->Render(input).value_or("") == "role: USERrole: TOOL";
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right, 200);
}

// ---------------------------------------------------------------------------------------------------------- mutations

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string Next() {
    const auto& cases = Golden().cases;
    std::string s = Pick();
    if (Below(3) == 0) s += Pick();  // several templates in one reach more states
    for (size_t n = 1 + Below(4); n > 0; --n) Mutate(s);
    return cases.empty() ? std::string() : s;
  }

 private:
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }
  std::string Pick() { return Golden().cases[Below(Golden().cases.size())].at("template").get<std::string>(); }

  void Mutate(std::string& s) {
    static const std::vector<std::string> kPieces = {"{{",
                                                     "}}",
                                                     "{%",
                                                     "%}",
                                                     "{#",
                                                     "#}",
                                                     "-%}",
                                                     "{%-",
                                                     "{% for x in lst recursive %}",
                                                     "{% endfor %}",
                                                     "{% if n %}",
                                                     "{% endif %}",
                                                     "{% raw %}",
                                                     "{% macro m(a, b=1) %}",
                                                     "{% endmacro %}",
                                                     "{% set ns.x = [ns, x, lst] %}",
                                                     "{% set x %}",
                                                     "{% endset %}",
                                                     "{% call m() %}",
                                                     "{% endcall %}",
                                                     "loop",
                                                     "ns",
                                                     "namespace(x=1)",
                                                     "loop(x)",
                                                     "caller()",
                                                     "|map('list')",
                                                     "|list",
                                                     "|tojson(indent=2)",
                                                     "|sort",
                                                     "|groupby('age')",
                                                     "|length",
                                                     "[",
                                                     "]",
                                                     "(",
                                                     ")",
                                                     "{",
                                                     "}",
                                                     "'",
                                                     "\"",
                                                     "\\",
                                                     "-",
                                                     "*",
                                                     "**",
                                                     "//",
                                                     "%",
                                                     "~",
                                                     "|",
                                                     ".",
                                                     ",",
                                                     ":",
                                                     "=",
                                                     "==",
                                                     "in",
                                                     "not",
                                                     "is",
                                                     "and",
                                                     "or",
                                                     "9223372036854775807",
                                                     "-9223372036854775808",
                                                     "1e308",
                                                     "0",
                                                     "[-1]",
                                                     "[::-1]",
                                                     "'%s%d' %",
                                                     ".format(1)",
                                                     "\xF0\x9F\x98\x80",
                                                     "\xC3",
                                                     "\0"};
    const size_t at = Below(s.size() + 1);
    switch (Below(6)) {
      case 0: s.insert(at, kPieces[Below(kPieces.size())]); break;
      case 1: s.erase(at, 1 + Below(8)); break;
      case 2:
        if (!s.empty()) s[Below(s.size())] = static_cast<char>(random_());
        break;
      case 3: s.insert(at, s.substr(Below(s.size() + 1), Below(40))); break;
      case 4: s = s.substr(0, at) + Pick(); break;
      default: {
        const std::string other = Pick();
        s.insert(at, other.substr(Below(other.size() + 1), Below(30)));
      }
    }
  }

  std::mt19937_64 random_;
};

// Any text parses and renders to text or to an error: no crash, no leak, no hang. RIDGE_TEMPLATE_MUTATIONS sets how many.
TEST(ChatTemplate, MutatedTemplatesEnd) {
  const char* count = std::getenv("RIDGE_TEMPLATE_MUTATIONS");
  const int n = count != nullptr ? std::atoi(count) : 1000;
  Mutator mutator(7);
  const Json messages = Json::parse(
      R"([{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{}}}]}])");
  int rendered = 0;
  for (int i = 0; i < n; ++i) {
    const std::string source = mutator.Next();
    const double start = ridge::test::ThreadCpuSeconds();
    const auto text = Render(source, Golden().variables, messages);
    rendered += text.has_value();
    ASSERT_LT(ridge::test::ThreadCpuSeconds() - start, 5.0) << source;
  }
  EXPECT_GT(rendered, n / 20);
  EXPECT_LT(rendered, n);
}

}  // namespace
}  // namespace ridge::text
