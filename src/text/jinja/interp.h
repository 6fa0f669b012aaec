// Executes a parsed template.
//
//   Interp in(tree, limits);
//   std::string text = in.Run(std::move(variables));
//
// Guarantees: throws JinjaError for what jinja2 raises and for every limit; its line() is then the template line. Single use.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja/ast.h"
#include "text/jinja/python.h"
#include "text/jinja/stack_check.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {

// The variables of one call of a FunctionInfo. Owned by the interpreter, so that macros which outlive the call may refer to it.
struct Activation {
  Activation* parent = nullptr;
  std::vector<Value> slots;
};

struct MacroObj : Object {
  using Object::Object;
  const Stmt* macro = nullptr;
  Activation* closure = nullptr;
};

struct LoopObj : Object {
  using Object::Object;
  Value iterable;
  Iter iterator;
  Value after, current, before;  // missing: none
  int64_t index0 = -1, length = -1;
  int depth0 = 0;
  Value changed;  // the last arguments of changed()
  const Stmt* recurse = nullptr;
  Activation* closure = nullptr;

  bool Advance(Interp& in);  // to the next item
  bool PeekNext();           // fills `after`
  int64_t Length(Interp& in);
};

// Text under construction, counted in the budget.
class OutBuffer {
 public:
  OutBuffer(Budget& budget, size_t limit) : budget_(budget), limit_(limit) {}
  OutBuffer(const OutBuffer&) = delete;
  OutBuffer& operator=(const OutBuffer&) = delete;
  ~OutBuffer() { budget_.Give(text_.size()); }
  void Append(std::string_view s) {
    if (s.size() > limit_ - text_.size()) Throw(Err::kLimit, "the output is too long");
    budget_.Take(s.size());
    text_ += s;
  }
  std::string Take() {
    budget_.Give(text_.size());
    std::string out = std::move(text_);
    text_.clear();
    return out;
  }

 private:
  Budget& budget_;
  size_t limit_;
  std::string text_;
};

class Interp {
 public:
  Interp(const Template& tree, const TemplateLimits& limits, std::optional<int64_t> now_unix_seconds);

  std::string Run(Table variables);
  int line() const { return line_; }

  // ---- for filters, tests and methods
  Heap& heap() { return heap_; }
  Budget& budget() { return budget_; }
  const StackCheck& stack() const { return stack_; }
  std::optional<int64_t> now() const { return now_; }
  size_t output_limit() const { return limits_.output_bytes; }

  Value Call(const Value& callee, Args& args);
  Value CallFilter(std::string_view name, const Value& value, Args& args);
  bool CallTest(std::string_view name, const Value& value, Args& args);

  Value Str(std::string s, bool markup = false) { return heap_.Str(std::move(s), markup); }
  Value MakeList(std::vector<Value> items) { return heap_.List(std::move(items)); }
  Value MakeUndefined(std::string message) { return heap_.Undefined(std::move(message)); }

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // ---- statements
  Flow Exec(const Body& body, Activation& frame, OutBuffer& out);
  Flow ExecStmt(const Stmt& s, Activation& frame, OutBuffer& out);
  Flow RunLoop(const Stmt& s, Activation& frame, const Value& iterable, int depth0, OutBuffer& out);
  bool RunBody(const Stmt& s, Activation& frame, const Value& item, const Value* loop, OutBuffer& out, bool* completed);
  std::string RunRecursiveLoop(const Stmt& s, Activation* closure, const Value& iterable, int depth0);
  Value Filtered(const Stmt& s, Activation& frame, const Value& iterable);
  static Value Rebuild(Interp& in, const Expr& target, Activation& frame);
  Value CallMacro(const MacroObj& macro, Args& args);
  void Enter(const ScopeInfo& scope, Activation& frame);
  void Leave(const ScopeInfo& scope, Activation& frame);
  void Assign(const Expr& target, const Value& value, Activation& frame);
  void Export(const Expr& target, Activation& frame);
  Value NewMacro(const Stmt& s, Activation& frame);

  // ---- expressions
  Value Eval(const Expr& e, Activation& frame);
  Value EvalCompare(const Expr& e, Activation& frame);
  Value EvalConcat(const Expr& e, Activation& frame);
  Value EvalFilter(const Expr& e, Activation& frame, const Value* body);
  Value EvalCall(const Expr& e, Activation& frame, const Value* caller);
  void EvalArgs(const Expr& e, Activation& frame, Args& args);
  Value Constant(const Expr& e);
  Value& Slot(const Ref& ref, Activation& frame);
  Value Resolve(std::string_view name);  // missing: not there

  // The variables of one call. Kept until the end where functions inside may still refer to them.
  class CallFrame;
  Activation* Keep(std::unique_ptr<Activation> activation);

  const Template& tree_;
  TemplateLimits limits_;
  std::optional<int64_t> now_;
  Budget budget_;
  std::vector<std::unique_ptr<Activation>> kept_;
  Heap heap_;
  StackCheck stack_;
  std::vector<Value> constants_;
  Table variables_, exported_;
  int line_ = 1;
  int calls_ = 0;
};

// Arguments of builtins. Parameters are named in order, those that need a value first.
//   Bound b(args, "indent", {"width", "first", "blank"}, 0);  b.Get(0) is missing where not given
class Bound {
 public:
  Bound(Args& args, std::string_view function, std::initializer_list<std::string_view> names, size_t required);
  const Value& Get(size_t i) const { return values_[i]; }
  bool Has(size_t i) const { return !values_[i].IsMissing(); }
  Value Or(size_t i, Value fallback) const { return Has(i) ? values_[i] : fallback; }
  bool Flag(size_t i, bool fallback) const { return Has(i) ? Truth(values_[i]) : fallback; }

 private:
  std::vector<Value> values_;
};

void AddGlobals(Interp& in,
                Table& variables);  // globals.cc: range, dict, namespace, cycler, joiner, raise_exception, strftime_now

}  // namespace ridge::text::jinja
