#include "text/jinja/parser.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "text/jinja/lexer.h"
#include "text/jinja/stack_check.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {
namespace {

using Names = std::vector<std::string_view>;

class Parser {
 public:
  Parser(std::string_view source, const ParseLimits& limits)
      : tokens_(Lex(source)), limits_(limits), stack_(limits.stack_bytes) {}

  Template Run() {
    tree_.body = Subparse({});
    return std::move(tree_);
  }

 private:
  // ---- tokens
  const Token& Current() const { return tokens_[at_]; }
  const Token& Look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Next() {
    Token token = Current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  [[noreturn]] void Fail(std::string message, int line = 0) {
    Throw(Err::kSyntax, std::move(message), line == 0 ? Current().line : line);
  }
  bool IsOp(std::string_view op) const { return Current().IsOperator(op); }
  bool IsName(std::string_view name) const { return Current().IsName(name); }
  bool SkipOp(std::string_view op) { return IsOp(op) && (Next(), true); }
  bool SkipName(std::string_view name) { return IsName(name) && (Next(), true); }
  [[noreturn]] void Unexpected(std::string_view wanted) {
    if (Current().type == Tok::kEof) Fail("unexpected end of template, expected '" + std::string(wanted) + "'");
    Fail("expected token '" + std::string(wanted) + "', got '" + Describe(Current()) + "'");
  }
  void ExpectOp(std::string_view op) {
    if (!SkipOp(op)) Unexpected(op);
  }
  Token Expect(Tok type, std::string_view wanted) {
    if (Current().type != type) Unexpected(wanted);
    return Next();
  }
  Token ExpectName(std::string_view name) {
    if (!IsName(name)) Unexpected(name);
    return Next();
  }

  // ---- building
  ExprPtr Make(ExprKind kind, int line) { return std::make_unique<Expr>(kind, line); }
  void Adopt(Expr& parent, ExprPtr kid) {
    if (kid) {
      parent.depth = std::max(parent.depth, kid->depth + 1);
      if (parent.depth > limits_.depth) Throw(Err::kLimit, "the expression is nested too deep", parent.line);
    }
    parent.kids.push_back(std::move(kid));
  }
  ExprPtr Binary(ExprKind kind, int line, ExprPtr left, ExprPtr right) {
    ExprPtr e = Make(kind, line);
    Adopt(*e, std::move(left));
    Adopt(*e, std::move(right));
    return e;
  }
  ExprPtr Constant(ExprKind kind, int line, std::string text) {
    ExprPtr e = Make(kind, line);
    const auto [it, fresh] = constants_.emplace(text, static_cast<int>(tree_.constants.size()));
    if (fresh) tree_.constants.push_back(text);
    e->constant = it->second;
    e->text = std::move(text);
    return e;
  }
  ExprPtr Name(const Token& token, NameContext context) {
    ExprPtr e = Make(ExprKind::kName, token.line);
    e->text = token.text;
    e->context = context;
    return e;
  }
  static bool IsReserved(std::string_view name) {
    return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None";
  }

  // ---- statements
  bool AtAny(const Names& names) const {
    return Current().type == Tok::kName && std::find(names.begin(), names.end(), Current().text) != names.end();
  }

  Body Subparse(const Names& end) {
    Body body;
    StmtPtr output;
    const auto part = [&](ExprPtr e, int line) {
      if (!output) output = std::make_unique<Stmt>(StmtKind::kOutput, line);
      output->exprs.push_back(std::move(e));
    };
    while (Current().type != Tok::kEof) {
      const int line = Current().line;
      if (Current().type == Tok::kData) {
        part(Constant(ExprKind::kData, line, Next().text), line);
      } else if (Current().type == Tok::kVariableBegin) {
        Next();
        part(Tuple(true, {}, false), line);
        Expect(Tok::kVariableEnd, "end of print statement");
      } else {
        if (output) body.push_back(std::move(output));
        Expect(Tok::kBlockBegin, "begin of statement block");
        if (!end.empty() && AtAny(end)) return body;
        body.push_back(Statement());
        Expect(Tok::kBlockEnd, "end of statement block");
      }
    }
    if (output) body.push_back(std::move(output));
    return body;
  }

  // The body of a tag up to one of the end tags, which stays current unless `drop`.
  Body Statements(const Names& end, bool drop) {
    SkipOp(":");
    Expect(Tok::kBlockEnd, "end of statement block");
    stack_.Check();
    if (++blocks_ > limits_.depth / 2) Throw(Err::kLimit, "blocks are nested too deep", Current().line);
    Body body = Subparse(end);
    --blocks_;
    if (Current().type == Tok::kEof) {
      Fail("Unexpected end of template. Jinja was looking for '" + std::string(end.back()) + "'.");
    }
    if (drop) Next();
    return body;
  }

  StmtPtr Statement() {
    if (Current().type != Tok::kName) Fail("tag name expected");
    const std::string tag = Current().text;
    if (tag == "for") return For();
    if (tag == "if") return If();
    if (tag == "set") return Set();
    if (tag == "macro") return Macro();
    if (tag == "call") return CallBlock();
    if (tag == "filter") return FilterBlock();
    if (tag == "with") return With();
    if (tag == "block") return Block();
    if (tag == "print") return Print();
    if (tag == "autoescape") return Autoescape();
    if (tag == "generation") return Generation();
    if (tag == "break" || tag == "continue") {
      return std::make_unique<Stmt>(tag == "break" ? StmtKind::kBreak : StmtKind::kContinue, Next().line);
    }
    if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") return OtherTemplate(tag);
    Fail("Encountered unknown tag '" + tag + "'.");
  }

  StmtPtr For() {
    auto s = std::make_unique<Stmt>(StmtKind::kFor, Next().line);
    s->exprs.push_back(Target(false, {"in"}));
    ExpectName("in");
    s->exprs.push_back(Tuple(false, {"recursive"}, false));
    s->exprs.push_back(SkipName("if") ? Expression(true) : nullptr);
    s->recursive = SkipName("recursive");
    s->body = Statements({"else", "endfor"}, false);
    if (Next().text != "endfor") s->otherwise = Statements({"endfor"}, true);
    return s;
  }

  StmtPtr If() {
    auto s = std::make_unique<Stmt>(StmtKind::kIf, Next().line);
    Stmt* branch = s.get();
    while (true) {
      branch->exprs.push_back(Tuple(false, {}, false));
      branch->body = Statements({"elif", "else", "endif"}, false);
      const Token token = Next();
      if (token.text == "elif") {
        s->elifs.push_back(std::make_unique<Stmt>(StmtKind::kIf, Current().line));
        branch = s->elifs.back().get();
        continue;
      }
      if (token.text == "else") s->otherwise = Statements({"endif"}, true);
      return s;
    }
  }

  StmtPtr Set() {
    const int line = Next().line;
    ExprPtr target = Target(true, {});
    auto s = std::make_unique<Stmt>(SkipOp("=") ? StmtKind::kSet : StmtKind::kSetBlock, line);
    s->exprs.push_back(std::move(target));
    if (s->kind == StmtKind::kSet) {
      s->exprs.push_back(Tuple(true, {}, false));
    } else {
      s->exprs.push_back(Filters(nullptr, false));
      s->body = Statements({"endset"}, true);
    }
    return s;
  }

  void Signature(Stmt& s) {
    ExpectOp("(");
    while (!IsOp(")")) {
      if (!s.params.empty()) ExpectOp(",");
      const Token token = Expect(Tok::kName, "name");
      if (IsReserved(token.text)) Fail("can't assign to '" + token.text + "'", token.line);
      for (const ExprPtr& other : s.params) {
        if (other->text == token.text) Fail("duplicate argument '" + token.text + "'", token.line);
      }
      if (SkipOp("=")) {
        s.defaults.push_back(Expression(true));
      } else if (!s.defaults.empty()) {
        Fail("non-default argument follows default argument");
      }
      s.params.push_back(Name(token, NameContext::kParam));
    }
    ExpectOp(")");
  }

  StmtPtr Macro() {
    auto s = std::make_unique<Stmt>(StmtKind::kMacro, Next().line);
    const Token name = Expect(Tok::kName, "name");
    if (IsReserved(name.text)) Fail("can't assign to '" + name.text + "'", name.line);
    s->name = name.text;
    Signature(*s);
    s->body = Statements({"endmacro"}, true);
    return s;
  }

  StmtPtr CallBlock() {
    auto s = std::make_unique<Stmt>(StmtKind::kCallBlock, Next().line);
    if (IsOp("(")) Signature(*s);
    ExprPtr call = Expression(true);
    if (call->kind != ExprKind::kCall) Fail("expected call", s->line);
    s->exprs.push_back(std::move(call));
    s->body = Statements({"endcall"}, true);
    return s;
  }

  StmtPtr Generation() {
    auto s = std::make_unique<Stmt>(StmtKind::kGeneration, Next().line);
    s->body = Statements({"endgeneration"}, true);
    return s;
  }

  StmtPtr FilterBlock() {
    auto s = std::make_unique<Stmt>(StmtKind::kFilterBlock, Next().line);
    s->exprs.push_back(Filters(nullptr, true));
    s->body = Statements({"endfilter"}, true);
    return s;
  }

  StmtPtr With() {
    auto s = std::make_unique<Stmt>(StmtKind::kWith, Next().line);
    std::vector<ExprPtr> values;
    while (Current().type != Tok::kBlockEnd) {
      if (!values.empty()) ExpectOp(",");
      ExprPtr target = Target(false, {});
      SetContext(*target, NameContext::kParam);
      s->exprs.push_back(std::move(target));
      ExpectOp("=");
      values.push_back(Expression(true));
    }
    for (ExprPtr& value : values) s->exprs.push_back(std::move(value));
    s->body = Statements({"endwith"}, true);
    return s;
  }

  StmtPtr Block() {
    auto s = std::make_unique<Stmt>(StmtKind::kBlock, Next().line);
    s->name = Expect(Tok::kName, "name").text;
    for (const std::string& other : blocks_seen_) {
      if (other == s->name) Fail("block '" + s->name + "' defined twice", s->line);
    }
    blocks_seen_.push_back(s->name);
    tree_.has_blocks = true;
    if (IsName("scoped") || IsName("required"))
      Throw(Err::kUnsupported, "scoped and required blocks are not supported", s->line);
    s->body = Statements({"endblock"}, true);
    SkipName(s->name);
    return s;
  }

  StmtPtr Print() {
    auto s = std::make_unique<Stmt>(StmtKind::kOutput, Next().line);
    while (Current().type != Tok::kBlockEnd) {
      if (!s->exprs.empty()) ExpectOp(",");
      s->exprs.push_back(Expression(true));
    }
    return s;
  }

  StmtPtr Autoescape() {
    auto s = std::make_unique<Stmt>(StmtKind::kScope, Next().line);
    const ExprPtr value = Expression(true);
    const bool off = value->kind == ExprKind::kBool && value->integer == 0;
    if (!off) Throw(Err::kUnsupported, "autoescape is not supported: chat templates render plain text", s->line);
    s->body = Statements({"endautoescape"}, true);
    return s;
  }

  // include, import, from, extends: a chat template is alone. As in jinja2 without a loader, the error comes when the tag is reached.
  StmtPtr OtherTemplate(const std::string& tag) {
    auto s = std::make_unique<Stmt>(StmtKind::kUnsupported, Next().line);
    s->name = "'" + tag + "' needs another template, but a chat template is alone";
    s->exprs.push_back(Expression(true));
    const auto name = [&] {
      const Token token = Expect(Tok::kName, "name");
      if (IsReserved(token.text)) Fail("can't assign to '" + token.text + "'", token.line);
      return token;
    };
    if (tag == "extends") return s;
    if (tag == "include" && IsName("ignore") && Look().IsName("missing")) {
      Next();
      Next();
    }
    if (tag == "import") {
      ExpectName("as");
      name();
    }
    if (tag == "from") {
      ExpectName("import");
      for (bool first = true;; first = false) {
        if (!first) ExpectOp(",");
        if (Current().type != Tok::kName || AtContext()) break;
        if (name().text.starts_with('_')) Fail("names starting with an underline can not be imported");
        if (SkipName("as")) name();
        if (AtContext() || !IsOp(",")) break;
      }
    }
    if (AtContext()) {
      Next();
      Next();
    }
    return s;
  }
  bool AtContext() const { return (IsName("with") || IsName("without")) && Look().IsName("context"); }

  // ---- targets
  static bool CanAssign(const Expr& e) {
    if (e.kind == ExprKind::kTuple) {
      return std::all_of(e.kids.begin(), e.kids.end(), [](const ExprPtr& kid) { return CanAssign(*kid); });
    }
    return e.kind == ExprKind::kNamespaceRef || (e.kind == ExprKind::kName && !IsReserved(e.text));
  }
  static void SetContext(Expr& e, NameContext context) {
    e.context = context;
    for (ExprPtr& kid : e.kids) SetContext(*kid, context);
  }
  ExprPtr Target(bool with_namespace, const Names& end) {
    ExprPtr target = Tuple(true, end, false, true, with_namespace);
    if (!CanAssign(*target)) Fail("can't assign to this expression", target->line);
    SetContext(*target, NameContext::kStore);
    return target;
  }

  // ---- expressions
  // with_condition: `a if b` may follow; simplified: only names and literals.
  ExprPtr Tuple(bool with_condition, const Names& end, bool parentheses, bool simplified = false,
                bool with_namespace = false) {
    int line = Current().line;
    std::vector<ExprPtr> items;
    bool is_tuple = false;
    while (true) {
      if (!items.empty()) ExpectOp(",");
      const Tok type = Current().type;
      if (type == Tok::kVariableEnd || type == Tok::kBlockEnd || IsOp(")") || AtAny(end)) break;
      items.push_back(simplified ? Primary(with_namespace) : Expression(with_condition));
      if (!IsOp(",")) break;
      is_tuple = true;
      line = Current().line;
    }
    if (!is_tuple) {
      if (!items.empty()) return std::move(items[0]);
      if (!parentheses) Fail("Expected an expression, got '" + Describe(Current()) + "'");
    }
    ExprPtr e = Make(ExprKind::kTuple, line);
    for (ExprPtr& item : items) Adopt(*e, std::move(item));
    return e;
  }

  ExprPtr Expression(bool with_condition) {
    stack_.Check();
    return with_condition ? Condition() : Or();
  }

  ExprPtr Condition() {
    stack_.Check();
    int line = Current().line;
    ExprPtr then = Or();
    while (SkipName("if")) {
      ExprPtr e = Make(ExprKind::kCond, line);
      Adopt(*e, Or());
      Adopt(*e, std::move(then));
      if (SkipName("else")) Adopt(*e, Condition());
      then = std::move(e);
      line = Current().line;
    }
    return then;
  }

  ExprPtr Or() {
    ExprPtr left = And();
    while (IsName("or")) {
      const int line = Next().line;
      left = Binary(ExprKind::kOr, line, std::move(left), And());
    }
    return left;
  }

  ExprPtr And() {
    ExprPtr left = Not();
    while (IsName("and")) {
      const int line = Next().line;
      left = Binary(ExprKind::kAnd, line, std::move(left), Not());
    }
    return left;
  }

  ExprPtr Not() {
    if (!IsName("not")) return Compare();
    stack_.Check();
    ExprPtr e = Make(ExprKind::kNot, Next().line);
    Adopt(*e, Not());
    return e;
  }

  bool CompareOperator(CompareOp* op) {
    static constexpr std::pair<std::string_view, CompareOp> kOps[] = {{"==", CompareOp::kEq}, {"!=", CompareOp::kNe},
                                                                      {"<", CompareOp::kLt},  {"<=", CompareOp::kLe},
                                                                      {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
    for (const auto& [text, value] : kOps) {
      if (SkipOp(text)) return *op = value, true;
    }
    if (SkipName("in")) return *op = CompareOp::kIn, true;
    if (IsName("not") && Look().IsName("in")) {
      Next();
      Next();
      return *op = CompareOp::kNotIn, true;
    }
    return false;
  }

  ExprPtr Compare() {
    const int line = Current().line;
    ExprPtr first = Sum();
    CompareOp op{};
    if (!CompareOperator(&op)) return first;
    ExprPtr e = Make(ExprKind::kCompare, line);
    Adopt(*e, std::move(first));
    do {
      e->ops.push_back(op);
      Adopt(*e, Sum());
    } while (CompareOperator(&op));
    return e;
  }

  ExprPtr Sum() {
    ExprPtr left = Concat();
    while (IsOp("+") || IsOp("-")) {
      const Token op = Next();
      left = Binary(op.text == "+" ? ExprKind::kAdd : ExprKind::kSub, op.line, std::move(left), Concat());
    }
    return left;
  }

  ExprPtr Concat() {
    const int line = Current().line;
    ExprPtr first = Product();
    if (!IsOp("~")) return first;
    ExprPtr e = Make(ExprKind::kConcat, line);
    Adopt(*e, std::move(first));
    while (SkipOp("~")) Adopt(*e, Product());
    return e;
  }

  ExprPtr Product() {
    ExprPtr left = Power();
    while (IsOp("*") || IsOp("/") || IsOp("//") || IsOp("%")) {
      const Token op = Next();
      const ExprKind kind = op.text == "*"   ? ExprKind::kMul
                            : op.text == "/" ? ExprKind::kDiv
                            : op.text == "%" ? ExprKind::kMod
                                             : ExprKind::kFloorDiv;
      left = Binary(kind, op.line, std::move(left), Power());
    }
    return left;
  }

  // jinja2 groups powers from the left in its tree but prints parentheses, so the left grouping is what runs.
  ExprPtr Power() {
    ExprPtr left = Unary(true);
    while (IsOp("**")) {
      const int line = Next().line;
      left = Binary(ExprKind::kPow, line, std::move(left), Unary(true));
    }
    return left;
  }

  ExprPtr Unary(bool with_filter) {
    stack_.Check();
    ExprPtr e;
    if (IsOp("-") || IsOp("+")) {
      const Token op = Next();
      e = Make(op.text == "-" ? ExprKind::kNeg : ExprKind::kPos, op.line);
      Adopt(*e, Unary(false));
    } else {
      e = Primary(false);
    }
    e = Postfix(std::move(e));
    return with_filter ? FilterExpr(std::move(e)) : std::move(e);
  }

  ExprPtr Primary(bool with_namespace) {
    stack_.Check();
    const Token token = Current();
    switch (token.type) {
      case Tok::kName: {
        Next();
        if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
          ExprPtr e = Make(ExprKind::kBool, token.line);
          e->integer = token.text[0] == 't' || token.text[0] == 'T';
          return e;
        }
        if (token.text == "none" || token.text == "None") return Make(ExprKind::kNone, token.line);
        if (with_namespace && SkipOp(".")) {
          ExprPtr e = Make(ExprKind::kNamespaceRef, token.line);
          e->text = token.text;
          e->attribute = Expect(Tok::kName, "name").text;
          return e;
        }
        return Name(token, NameContext::kLoad);
      }
      case Tok::kString: {
        std::string text;
        while (Current().type == Tok::kString) text += Next().text;
        return Constant(ExprKind::kString, token.line, std::move(text));
      }
      case Tok::kInteger: {
        ExprPtr e = Make(ExprKind::kInt, token.line);
        e->integer = Next().integer;
        return e;
      }
      case Tok::kFloat: {
        ExprPtr e = Make(ExprKind::kFloat, token.line);
        e->floating = Next().floating;
        return e;
      }
      case Tok::kOperator:
        if (token.text == "(") {
          Next();
          ExprPtr e = Tuple(true, {}, true);
          ExpectOp(")");
          return e;
        }
        if (token.text == "[") return ListLiteral();
        if (token.text == "{") return DictLiteral();
        break;
      case Tok::kData:
      case Tok::kVariableBegin:
      case Tok::kVariableEnd:
      case Tok::kBlockBegin:
      case Tok::kBlockEnd:
      case Tok::kEof: break;
    }
    Fail("unexpected '" + Describe(token) + "'", token.line);
  }

  ExprPtr ListLiteral() {
    ExprPtr e = Make(ExprKind::kList, Next().line);
    while (!IsOp("]")) {
      if (!e->kids.empty()) ExpectOp(",");
      if (IsOp("]")) break;
      Adopt(*e, Expression(true));
    }
    ExpectOp("]");
    return e;
  }

  ExprPtr DictLiteral() {
    ExprPtr e = Make(ExprKind::kDict, Next().line);
    while (!IsOp("}")) {
      if (!e->kids.empty()) ExpectOp(",");
      if (IsOp("}")) break;
      Adopt(*e, Expression(true));
      ExpectOp(":");
      Adopt(*e, Expression(true));
    }
    ExpectOp("}");
    return e;
  }

  ExprPtr Postfix(ExprPtr e) {
    while (true) {
      if (IsOp(".") || IsOp("[")) {
        e = Subscript(std::move(e));
      } else if (IsOp("(")) {
        e = Call(std::move(e));
      } else {
        return e;
      }
    }
  }

  ExprPtr FilterExpr(ExprPtr e) {
    while (true) {
      if (IsOp("|")) {
        e = Filters(std::move(e), false);
      } else if (IsName("is")) {
        e = Test(std::move(e));
      } else if (IsOp("(")) {
        e = Call(std::move(e));
      } else {
        return e;
      }
    }
  }

  ExprPtr Subscript(ExprPtr object) {
    const Token token = Next();
    if (token.text == ".") {
      const Token attribute = Next();
      if (attribute.type == Tok::kName) {
        ExprPtr e = Make(ExprKind::kGetattr, token.line);
        Adopt(*e, std::move(object));
        ExprPtr name = Constant(ExprKind::kString, attribute.line, attribute.text);
        e->text = attribute.text;
        e->constant = name->constant;
        return e;
      }
      if (attribute.type != Tok::kInteger) Fail("expected name or number", attribute.line);
      ExprPtr index = Make(ExprKind::kInt, attribute.line);
      index->integer = attribute.integer;
      return Binary(ExprKind::kGetitem, token.line, std::move(object), std::move(index));
    }
    std::vector<ExprPtr> args;
    while (!IsOp("]")) {
      if (!args.empty()) ExpectOp(",");
      args.push_back(Subscribed());
    }
    ExpectOp("]");
    if (args.size() == 1 && args[0]->kind == ExprKind::kSlice && args[0]->kids.size() == 3) {
      ExprPtr slice = std::move(args[0]);
      slice->kids.insert(slice->kids.begin(), nullptr);
      slice->depth = std::max(slice->depth, object->depth + 1);
      if (slice->depth > limits_.depth) Throw(Err::kLimit, "the expression is nested too deep", token.line);
      slice->kids[0] = std::move(object);
      return slice;
    }
    ExprPtr index;
    if (args.size() == 1) {
      index = std::move(args[0]);
    } else {
      index = Make(ExprKind::kTuple, token.line);
      for (ExprPtr& arg : args) {
        if (arg->kind == ExprKind::kSlice && arg->kids.size() == 3)
          Fail("a slice among several subscripts", token.line);
        Adopt(*index, std::move(arg));
      }
    }
    return Binary(ExprKind::kGetitem, token.line, std::move(object), std::move(index));
  }

  // An index, or a slice of three kids still without its object.
  ExprPtr Subscribed() {
    const int line = Current().line;
    ExprPtr start;
    if (!IsOp(":")) {
      start = Expression(true);
      if (!IsOp(":")) return start;
    }
    ExpectOp(":");
    const auto optional = [&]() -> ExprPtr {
      if (IsOp(":") || IsOp("]") || IsOp(",")) return nullptr;
      return Expression(true);
    };
    ExprPtr e = Make(ExprKind::kSlice, line);
    Adopt(*e, std::move(start));
    Adopt(*e, optional());
    Adopt(*e, SkipOp(":") && !IsOp(":") ? optional() : nullptr);
    return e;
  }

  void CallArgs(Expr& e) {
    const int line = Current().line;
    ExpectOp("(");
    const auto ensure = [&](bool ok) {
      if (!ok) Fail("invalid syntax for function call expression", line);
    };
    const auto star = [&](ExprPtr& into) {
      Next();
      into = Expression(true);
      e.depth = std::max(e.depth, into->depth + 1);
      if (e.depth > limits_.depth) Throw(Err::kLimit, "the expression is nested too deep", line);
    };
    bool comma = false;
    while (!IsOp(")")) {
      if (comma) {
        ExpectOp(",");
        if (IsOp(")")) break;
      }
      if (IsOp("*")) {
        ensure(!e.star_args && !e.star_kwargs);
        star(e.star_args);
      } else if (IsOp("**")) {
        ensure(!e.star_kwargs);
        star(e.star_kwargs);
      } else if (Current().type == Tok::kName && Look().IsOperator("=")) {
        ensure(!e.star_kwargs);
        const std::string key = Next().text;
        if (std::find(e.keywords.begin(), e.keywords.end(), key) != e.keywords.end())
          Fail("keyword argument repeated: " + key, line);
        Next();
        e.keywords.push_back(key);
        Adopt(e, Expression(true));
      } else {
        ensure(!e.star_args && !e.star_kwargs && e.keywords.empty());
        Adopt(e, Expression(true));
        ++e.n_args;
      }
      comma = true;
    }
    ExpectOp(")");
  }

  ExprPtr Call(ExprPtr callee) {
    ExprPtr e = Make(ExprKind::kCall, Current().line);
    Adopt(*e, std::move(callee));
    CallArgs(*e);
    return e;
  }

  std::string DottedName() {
    std::string name = Expect(Tok::kName, "name").text;
    while (SkipOp(".")) name += "." + Expect(Tok::kName, "name").text;
    return name;
  }

  ExprPtr Filters(ExprPtr e, bool start_inline) {
    while (IsOp("|") || start_inline) {
      if (!start_inline) Next();
      start_inline = false;
      ExprPtr filter = Make(ExprKind::kFilter, Current().line);
      Adopt(*filter, std::move(e));
      filter->text = DottedName();
      if (IsOp("(")) CallArgs(*filter);
      e = std::move(filter);
    }
    return e;
  }

  ExprPtr Test(ExprPtr object) {
    const int line = Next().line;
    const bool negated = SkipName("not");
    ExprPtr e = Make(ExprKind::kTest, line);
    Adopt(*e, std::move(object));
    e->text = DottedName();
    const Tok type = Current().type;
    const bool literal = type == Tok::kString || type == Tok::kInteger || type == Tok::kFloat || IsOp("[") || IsOp("{");
    if (IsOp("(")) {
      CallArgs(*e);
    } else if (literal || (type == Tok::kName && !IsName("else") && !IsName("or") && !IsName("and"))) {
      if (IsName("is")) Fail("You cannot chain multiple tests with is");
      Adopt(*e, Postfix(Primary(false)));
      e->n_args = 1;
    }
    if (!negated) return e;
    ExprPtr inverse = Make(ExprKind::kNot, line);
    Adopt(*inverse, std::move(e));
    return inverse;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  ParseLimits limits_;
  StackCheck stack_;
  int blocks_ = 0;
  std::vector<std::string> blocks_seen_;
  std::unordered_map<std::string, int> constants_;
  Template tree_;
};

}  // namespace

Template Parse(std::string_view source, const ParseLimits& limits) {
  Template tree = Parser(source, limits).Run();
  Resolve(tree, limits);
  return tree;
}

}  // namespace ridge::text::jinja
