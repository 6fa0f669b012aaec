// Binds names to slots. jinja2 compiles a template to nested Python functions; which variable a name means, and what it holds when a
// scope is entered, follows from that compilation (its module idtracking). The same analysis here gives the same answers, for
// example that a `set` inside a loop is gone after it, or that a macro sees later changes of a variable around it.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "text/jinja/parser.h"
#include "text/jinja/stack_check.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {
namespace {

struct Var {
  FunctionInfo* function = nullptr;
  int slot = -1;
};

struct Entry {  // what a variable holds when its scope is entered
  Load::Kind kind = Load::Kind::kUndefined;
  std::string name;
  Var source;
};

// The symbols of one scope. Copies, made for the branches of `if`, share the slots: a name is one variable per scope.
struct Symbols {
  Symbols* parent = nullptr;
  FunctionInfo* function = nullptr;
  std::shared_ptr<std::map<std::string, int, std::less<>>> slots =
      std::make_shared<std::map<std::string, int, std::less<>>>();
  std::map<std::string, Var, std::less<>> refs;
  std::map<int, Entry> loads;  // by slot
  std::set<std::string, std::less<>> stores;

  Symbols(Symbols* around, FunctionInfo* f) : parent(around), function(f) {}

  Var Define(const std::string& name, Entry entry) {
    const auto [it, fresh] = slots->emplace(name, function->slots);
    if (fresh) ++function->slots;
    const Var var{function, it->second};
    refs[name] = var;
    loads[var.slot] = std::move(entry);
    return var;
  }
  const Var* Find(const std::string& name) const {
    for (const Symbols* s = this; s != nullptr; s = s->parent) {
      if (const auto it = s->refs.find(name); it != s->refs.end()) return &it->second;
    }
    return nullptr;
  }
  void Store(const std::string& name) {
    stores.insert(name);
    if (refs.contains(name)) return;
    if (const Var* outer = parent != nullptr ? parent->Find(name) : nullptr) {
      Define(name, {Load::Kind::kAlias, {}, *outer});
    } else {
      Define(name, {Load::Kind::kUndefined, {}, {}});
    }
  }
  Var Parameter(const std::string& name) {
    stores.insert(name);
    return Define(name, {Load::Kind::kParameter, {}, {}});
  }
  void LoadName(const std::string& name) {
    if (Find(name) == nullptr) Define(name, {Load::Kind::kResolve, name, {}});
  }
};

// Which of `names` the nodes read before they store them; as jinja2's find_undeclared it looks into nested macros too.
class Undeclared {
 public:
  explicit Undeclared(std::set<std::string, std::less<>> names) : names_(std::move(names)) {}
  std::set<std::string, std::less<>> found;

  void Visit(const Body& body) {
    for (const StmtPtr& s : body) VisitStmt(*s);
  }

 private:
  void VisitExpr(const Expr* e) {
    if (e == nullptr || names_.empty()) return;
    if (e->kind == ExprKind::kName) {
      if (e->context != NameContext::kLoad) {
        names_.erase(e->text);
      } else if (names_.contains(e->text)) {
        found.insert(e->text);
      }
    }
    for (const ExprPtr& kid : e->kids) VisitExpr(kid.get());
    VisitExpr(e->star_args.get());
    VisitExpr(e->star_kwargs.get());
  }
  void VisitStmt(const Stmt& s) {
    if (s.kind == StmtKind::kBlock) return;
    for (const ExprPtr& e : s.exprs) {
      if (s.kind != StmtKind::kFor || &e != &s.exprs.back()) VisitExpr(e.get());
    }
    for (const ExprPtr& e : s.params) VisitExpr(e.get());
    for (const ExprPtr& e : s.defaults) VisitExpr(e.get());
    Visit(s.body);
    for (const StmtPtr& branch : s.elifs) VisitStmt(*branch);
    Visit(s.otherwise);
    if (s.kind == StmtKind::kFor) VisitExpr(s.exprs.back().get());
  }
  std::set<std::string, std::less<>> names_;
};

// Fills one scope's symbols from the statements of its body; inner scopes are left to their own turn.
class Analyzer {
 public:
  Analyzer(Symbols* symbols, int64_t& work_left, const StackCheck& stack)
      : s_(symbols), work_left_(work_left), stack_(stack) {}

  void VisitExpr(const Expr* e, bool as_parameter = false) {
    if (e == nullptr) return;
    if (e->kind == ExprKind::kName) {
      if (as_parameter || e->context == NameContext::kParam) {
        s_->Parameter(e->text);
      } else if (e->context == NameContext::kStore) {
        s_->Store(e->text);
      } else {
        s_->LoadName(e->text);
      }
    }
    if (e->kind == ExprKind::kNamespaceRef) s_->LoadName(e->text);
    for (const ExprPtr& kid : e->kids) VisitExpr(kid.get(), as_parameter);
    VisitExpr(e->star_args.get());
    VisitExpr(e->star_kwargs.get());
  }

  void Visit(const Body& body) {
    for (const StmtPtr& s : body) VisitStmt(*s);
  }

  void VisitStmt(const Stmt& s) {
    stack_.Check();
    switch (s.kind) {
      case StmtKind::kOutput:
      case StmtKind::kUnsupported:
      case StmtKind::kCallBlock:
      case StmtKind::kFilterBlock:
        for (const ExprPtr& e : s.exprs) VisitExpr(e.get());
        break;
      case StmtKind::kIf: If(s); break;
      case StmtKind::kFor: VisitExpr(s.exprs[1].get()); break;
      case StmtKind::kSet:
        VisitExpr(s.exprs[1].get());
        VisitExpr(s.exprs[0].get());
        break;
      case StmtKind::kSetBlock: VisitExpr(s.exprs[0].get()); break;
      case StmtKind::kMacro: s_->Store(s.name); break;
      case StmtKind::kWith:
        for (size_t i = s.exprs.size() / 2; i < s.exprs.size(); ++i) VisitExpr(s.exprs[i].get());
        break;
      case StmtKind::kGeneration:
      case StmtKind::kScope:
      case StmtKind::kBlock:
      case StmtKind::kBreak:
      case StmtKind::kContinue: break;
    }
  }

 private:
  void If(const Stmt& s) {
    VisitExpr(s.exprs[0].get());
    Symbols* const original = s_;
    std::vector<Symbols> branches;
    branches.reserve(3);
    const auto copy = [&] {
      work_left_ -= 1 + static_cast<int64_t>(original->refs.size() + original->loads.size() + original->stores.size());
      if (work_left_ < 0) Throw(Err::kLimit, "the template has too many variables and branches", s.line);
      s_ = &branches.emplace_back(*original);
    };
    copy();
    Visit(s.body);
    copy();
    for (const StmtPtr& branch : s.elifs) VisitStmt(*branch);
    copy();
    Visit(s.otherwise);
    s_ = original;
    Merge(branches);
  }

  // A name that only some branch stores keeps its outer value elsewhere.
  void Merge(std::vector<Symbols>& branches) {
    std::set<std::string> stores;
    for (Symbols& branch : branches) stores.insert(branch.stores.begin(), branch.stores.end());
    for (const std::string& name : s_->stores) stores.erase(name);
    for (Symbols& branch : branches) {
      for (auto& [name, var] : branch.refs) s_->refs[name] = var;
      for (auto& [slot, entry] : branch.loads) s_->loads[slot] = entry;
      s_->stores.insert(branch.stores.begin(), branch.stores.end());
    }
    for (const std::string& name : stores) {
      const Var* target = s_->Find(name);
      const Var* outer = s_->parent != nullptr ? s_->parent->Find(name) : nullptr;
      s_->loads[target->slot] =
          outer != nullptr ? Entry{Load::Kind::kAlias, {}, *outer} : Entry{Load::Kind::kResolve, name, {}};
    }
  }

  Symbols* s_;
  int64_t& work_left_;
  const StackCheck& stack_;
};

struct Frame {
  Symbols* symbols = nullptr;
  bool soft = false;  // inside `if`: an unknown filter is an error only once it runs
  bool toplevel = false;
  int loops = 0;  // loops around, within the function: `break` needs one

  Frame Inner(Symbols* inner) const { return {inner, false, false, loops}; }
};

class Resolver {
 public:
  Resolver(Template& tree, const ParseLimits& limits) : tree_(tree), stack_(limits.stack_bytes) {}

  void Run() {
    Symbols root(nullptr, &tree_.root);
    Analyzer(&root, work_left_, stack_).Visit(tree_.body);
    Walk(tree_.body, {&root, false, true, 0});
    tree_.scope = Loads(root);
  }

 private:
  // ---- expressions
  static Ref RefTo(const Var& var, const Symbols& from) {
    return {from.function->level - var.function->level, var.slot};
  }

  Ref Find(const std::string& name, const Symbols& symbols, int line) {
    const Var* var = symbols.Find(name);
    if (var == nullptr) Throw(Err::kSyntax, "the name '" + name + "' cannot be used here", line);
    return RefTo(*var, symbols);
  }

  void Bind(Expr* e, const Frame& frame) {
    if (e == nullptr) return;
    const bool names_variable = e->kind == ExprKind::kName || e->kind == ExprKind::kNamespaceRef;
    if (names_variable) e->ref = Find(e->text, *frame.symbols, e->line);
    if (!frame.soft && e->kind == ExprKind::kFilter && !IsFilter(e->text))
      Throw(Err::kSyntax, "No filter named '" + e->text + "'.", e->line);
    if (!frame.soft && e->kind == ExprKind::kTest && !IsTest(e->text))
      Throw(Err::kSyntax, "No test named '" + e->text + "'.", e->line);
    Frame inner = frame;
    inner.soft = frame.soft || e->kind == ExprKind::kCond;
    for (ExprPtr& kid : e->kids) Bind(kid.get(), inner);
    Bind(e->star_args.get(), inner);
    Bind(e->star_kwargs.get(), inner);
  }

  ScopeInfo Loads(const Symbols& symbols) {
    ScopeInfo info;
    for (const auto& [slot, entry] : symbols.loads) {
      Load load;
      load.kind = entry.kind;
      load.target = {0, slot};
      load.name = entry.name;
      if (entry.kind == Load::Kind::kAlias) load.source = RefTo(entry.source, symbols);
      info.loads.push_back(std::move(load));
    }
    return info;
  }

  // ---- statements
  void Walk(Body& body, const Frame& frame) {
    for (StmtPtr& s : body) WalkStmt(*s, frame);
  }

  void WalkStmt(Stmt& s, const Frame& frame) {
    stack_.Check();
    switch (s.kind) {
      case StmtKind::kOutput:
      case StmtKind::kUnsupported:
        for (ExprPtr& e : s.exprs) {
          if (s.kind == StmtKind::kOutput) Bind(e.get(), frame);
        }
        break;
      case StmtKind::kIf: If(s, frame); break;
      case StmtKind::kFor: For(s, frame); break;
      case StmtKind::kSet:
        s.exported = frame.toplevel;
        Bind(s.exprs[0].get(), frame);
        Bind(s.exprs[1].get(), frame);
        break;
      case StmtKind::kSetBlock: {
        s.exported = frame.toplevel;
        Bind(s.exprs[0].get(), frame);
        Symbols inner(frame.symbols, frame.symbols->function);
        Analyzer(&inner, work_left_, stack_).Visit(s.body);
        const Frame body = frame.Inner(&inner);
        Walk(s.body, body);
        Bind(s.exprs[1].get(), body);
        s.scope = Loads(inner);
        break;
      }
      case StmtKind::kFilterBlock: {
        Symbols inner(frame.symbols, frame.symbols->function);
        Analyzer analyzer(&inner, work_left_, stack_);
        analyzer.Visit(s.body);
        analyzer.VisitExpr(s.exprs[0].get());
        const Frame body = frame.Inner(&inner);
        Walk(s.body, body);
        Bind(s.exprs[0].get(), body);
        s.scope = Loads(inner);
        break;
      }
      case StmtKind::kMacro:
        s.exported = frame.toplevel;
        s.target = Find(s.name, *frame.symbols, s.line);
        Function(s, frame);
        break;
      case StmtKind::kCallBlock:
      case StmtKind::kGeneration:
        for (ExprPtr& e : s.exprs) Bind(e.get(), frame);
        Function(s, frame);
        break;
      case StmtKind::kWith: With(s, frame); break;
      case StmtKind::kScope: {
        Symbols inner(frame.symbols, frame.symbols->function);
        Analyzer(&inner, work_left_, stack_).Visit(s.body);
        Walk(s.body, frame.Inner(&inner));
        s.scope = Loads(inner);
        break;
      }
      case StmtKind::kBlock: {
        s.function = std::make_unique<FunctionInfo>();
        Symbols inner(nullptr, s.function.get());
        Analyzer(&inner, work_left_, stack_).Visit(s.body);
        Walk(s.body, {&inner, false, false, 0});
        s.scope = Loads(inner);
        break;
      }
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        if (frame.loops == 0) Throw(Err::kSyntax, "break or continue outside a loop", s.line);
        break;
    }
  }

  void If(Stmt& s, const Frame& frame) {
    Frame soft = frame;
    soft.soft = true;
    Bind(s.exprs[0].get(), soft);
    Walk(s.body, soft);
    for (StmtPtr& branch : s.elifs) {
      Bind(branch->exprs[0].get(), soft);
      Walk(branch->body, soft);
    }
    Walk(s.otherwise, soft);
  }

  static std::unique_ptr<FunctionInfo> NewFunction(FunctionInfo& around) {
    around.captured = true;
    auto function = std::make_unique<FunctionInfo>();
    function->level = around.level + 1;
    return function;
  }

  static bool StoresLoop(const Expr& e) {
    if (e.kind == ExprKind::kName && e.context == NameContext::kStore && e.text == "loop") return true;
    return std::any_of(e.kids.begin(), e.kids.end(), [](const ExprPtr& kid) { return kid && StoresLoop(*kid); });
  }
  static bool StoresLoop(const Stmt& s) {
    const auto in = [](const Body& body) {
      return std::any_of(body.begin(), body.end(), [](const StmtPtr& b) { return StoresLoop(*b); });
    };
    return std::any_of(s.exprs.begin(), s.exprs.end(), [](const ExprPtr& e) { return e && StoresLoop(*e); }) ||
           in(s.body) || in(s.otherwise) || in(s.elifs);
  }

  void For(Stmt& s, const Frame& frame) {
    FunctionInfo* around = frame.symbols->function;
    if (s.recursive) {
      s.function = NewFunction(*around);
      around = s.function.get();
    }
    Undeclared undeclared({"loop"});
    undeclared.Visit(s.body);
    s.extended = s.recursive || !undeclared.found.empty();

    Symbols body(frame.symbols, around);
    if (s.extended) s.target = {0, body.Parameter("loop").slot};
    Analyzer analyzer(&body, work_left_, stack_);
    analyzer.VisitExpr(s.exprs[0].get(), true);
    analyzer.Visit(s.body);
    Symbols otherwise(frame.symbols, around);
    Analyzer(&otherwise, work_left_, stack_).Visit(s.otherwise);

    if (s.exprs[2]) {
      s.test_function = NewFunction(*around);
      Symbols test(frame.symbols, s.test_function.get());
      Analyzer test_analyzer(&test, work_left_, stack_);
      test_analyzer.VisitExpr(s.exprs[0].get(), true);
      test_analyzer.VisitExpr(s.exprs[2].get());
      Bind(s.exprs[2].get(), {&test, false, false, 0});
      s.test_scope = Loads(test);
      Bind(s.exprs[0].get(), {&test, false, false, 0});
      // The target is bound twice, once in each function: the same names in the same order, so the test's slots are kept beside it.
      TargetSlots(*s.exprs[0], s.params);
    }
    if (StoresLoop(s)) Throw(Err::kSyntax, "Can't assign to special loop variable in for-loop target", s.line);
    Bind(s.exprs[1].get(), frame);
    Frame inner = frame.Inner(&body);
    inner.loops = (s.recursive ? 0 : frame.loops) + 1;
    Bind(s.exprs[0].get(), inner);
    Walk(s.body, inner);
    Frame other = frame.Inner(&otherwise);
    if (s.recursive) other.loops = 0;
    Walk(s.otherwise, other);
    s.scope = Loads(body);
    s.else_scope = Loads(otherwise);
  }

  // A copy of a for target with its slots: names and tuples only.
  static void TargetSlots(const Expr& target, std::vector<ExprPtr>& out) {
    auto copy = std::make_unique<Expr>(target.kind, target.line);
    copy->text = target.text;
    copy->context = target.context;
    copy->ref = target.ref;
    for (const ExprPtr& kid : target.kids) TargetSlots(*kid, copy->kids);
    out.push_back(std::move(copy));
  }

  void With(Stmt& s, const Frame& frame) {
    Symbols inner(frame.symbols, frame.symbols->function);
    Analyzer analyzer(&inner, work_left_, stack_);
    const size_t n = s.exprs.size() / 2;
    for (size_t i = 0; i < n; ++i) analyzer.VisitExpr(s.exprs[i].get());
    analyzer.Visit(s.body);
    const Frame body = frame.Inner(&inner);
    for (size_t i = 0; i < n; ++i) {
      Bind(s.exprs[i].get(), body);
      Bind(s.exprs[n + i].get(), frame);
    }
    Walk(s.body, body);
    s.scope = Loads(inner);
  }

  // Macros, call blocks, generation blocks.
  void Function(Stmt& s, const Frame& frame) {
    s.function = NewFunction(*frame.symbols->function);
    Symbols inner(frame.symbols, s.function.get());
    Analyzer analyzer(&inner, work_left_, stack_);
    for (ExprPtr& e : s.params) analyzer.VisitExpr(e.get());
    for (ExprPtr& e : s.defaults) analyzer.VisitExpr(e.get());
    analyzer.Visit(s.body);
    Undeclared undeclared({"caller", "kwargs", "varargs"});
    undeclared.Visit(s.body);
    const auto parameter = [&](const char* name) -> const Expr* {
      for (const ExprPtr& e : s.params) {
        if (e->text == name) return e.get();
      }
      return nullptr;
    };
    if (undeclared.found.contains("caller")) {
      s.reads_caller = true;
      if (parameter("caller") == nullptr) {
        s.caller = {0, inner.Parameter("caller").slot};
      } else {
        size_t index = 0;
        while (s.params[index]->text != "caller") ++index;
        if (s.params.size() - index > s.defaults.size()) {
          Throw(Err::kSyntax, "the special \"caller\" argument must be omitted or be given a default", s.line);
        }
      }
    }
    if (undeclared.found.contains("kwargs") && parameter("kwargs") == nullptr) {
      s.reads_kwargs = true;
      s.kwargs = {0, inner.Parameter("kwargs").slot};
    }
    if (undeclared.found.contains("varargs") && parameter("varargs") == nullptr) {
      s.reads_varargs = true;
      s.varargs = {0, inner.Parameter("varargs").slot};
    }
    const Frame body{&inner, false, false, 0};
    for (ExprPtr& e : s.params) Bind(e.get(), body);
    for (ExprPtr& e : s.defaults) Bind(e.get(), body);
    Walk(s.body, body);
    s.scope = Loads(inner);
  }

  Template& tree_;
  StackCheck stack_;
  int64_t work_left_ = 20'000'000;
};

}  // namespace

void Resolve(Template& tree, const ParseLimits& limits) { Resolver(tree, limits).Run(); }

}  // namespace ridge::text::jinja
