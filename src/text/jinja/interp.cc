#include "text/jinja/interp.h"

#include <algorithm>
#include <utility>

#include "text/jinja/builtins.h"

namespace ridge::text::jinja {

// ---------------------------------------------------------------------------------------------------------------- loops

bool LoopObj::PeekNext() {
  if (after.IsMissing() && !iterator.Next(after)) after = Value();
  return !after.IsMissing();
}

bool LoopObj::Advance(Interp& in) {
  Value next;
  if (!after.IsMissing()) {
    next = std::exchange(after, Value());
  } else if (!iterator.Next(next)) {
    return false;
  }
  in.budget().Step();
  ++index0;
  before = std::exchange(current, std::move(next));
  return true;
}

int64_t LoopObj::Length(Interp& in) {
  if (length >= 0) return length;
  if (const auto known = TryLength(iterable)) return length = *known;
  std::vector<Value> rest;
  for (Value item; iterator.Next(item);) rest.push_back(std::move(item));
  length = static_cast<int64_t>(rest.size()) + index0 + 1 + (after.IsMissing() ? 0 : 1);
  iterator = Iter(in, in.MakeList(std::move(rest)));
  return length;
}

// ----------------------------------------------------------------------------------------------------------- activations

class Interp::CallFrame {
 public:
  CallFrame(Interp& in, const FunctionInfo& function, Activation* parent)
      : in_(in), bytes_(sizeof(Activation) + static_cast<size_t>(function.slots) * sizeof(Value)) {
    if (in_.calls_ >= in_.limits_.call_depth) Throw(Err::kLimit, "maximum recursion depth exceeded");
    in_.stack_.Check();
    in_.budget_.Take(bytes_);
    own_ = std::make_unique<Activation>();
    own_->parent = parent;
    own_->slots.resize(static_cast<size_t>(function.slots));
    activation_ = own_.get();
    if (function.captured) in_.Keep(std::move(own_));
    ++in_.calls_;
  }
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;
  ~CallFrame() {
    --in_.calls_;
    if (own_) in_.budget_.Give(bytes_);
  }
  Activation& get() { return *activation_; }

 private:
  Interp& in_;
  size_t bytes_;
  std::unique_ptr<Activation> own_;
  Activation* activation_ = nullptr;
};

Activation* Interp::Keep(std::unique_ptr<Activation> activation) {
  kept_.push_back(std::move(activation));
  return kept_.back().get();
}

Interp::Interp(const Template& tree, const TemplateLimits& limits, std::optional<int64_t> now_unix_seconds)
    : tree_(tree),
      limits_(limits),
      now_(now_unix_seconds),
      budget_{limits.steps, 0, limits.memory_bytes},
      heap_(budget_),
      stack_(limits.stack_bytes),
      constants_(tree.constants.size()) {}

std::string Interp::Run(Table variables) {
  variables_ = std::move(variables);
  OutBuffer out(budget_, limits_.output_bytes);
  CallFrame frame(*this, tree_.root, nullptr);
  Enter(tree_.scope, frame.get());
  Exec(tree_.body, frame.get(), out);
  return out.Take();
}

Value& Interp::Slot(const Ref& ref, Activation& frame) {
  Activation* at = &frame;
  for (int i = 0; i < ref.hops; ++i) at = at->parent;
  return at->slots[static_cast<size_t>(ref.slot)];
}

Value Interp::Resolve(std::string_view name) {
  if (const Value* found = exported_.Find(name)) return *found;
  if (const Value* found = variables_.Find(name)) return *found;
  return {};
}

void Interp::Enter(const ScopeInfo& scope, Activation& frame) {
  for (const Load& load : scope.loads) {
    Value& target = Slot(load.target, frame);
    switch (load.kind) {
      case Load::Kind::kParameter: break;
      case Load::Kind::kResolve: target = Resolve(load.name); break;
      case Load::Kind::kAlias: target = Value(Slot(load.source, frame)); break;
      case Load::Kind::kUndefined: target = Value(); break;
    }
  }
}

void Interp::Leave(const ScopeInfo& scope, Activation& frame) {
  for (const Load& load : scope.loads) Slot(load.target, frame) = Value();
}

// ------------------------------------------------------------------------------------------------------------ statements

Interp::Flow Interp::Exec(const Body& body, Activation& frame, OutBuffer& out) {
  for (const StmtPtr& s : body) {
    const Flow flow = ExecStmt(*s, frame, out);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

static const std::string& OnlyText(const Value& v) {
  if (!v.IsString()) Throw(Err::kType, "expected str instance, " + std::string(TypeName(v)) + " found");
  return v.text();
}

Interp::Flow Interp::ExecStmt(const Stmt& s, Activation& frame, OutBuffer& out) {
  stack_.Check();
  budget_.Step();
  line_ = s.line;
  switch (s.kind) {
    case StmtKind::kOutput:
      for (const ExprPtr& e : s.exprs) {
        if (e->kind == ExprKind::kData) {
          out.Append(e->text);
          continue;
        }
        const Value v = Eval(*e, frame);
        out.Append(v.IsString() ? v.text() : ToStr(*this, v));
      }
      return Flow::kNormal;
    case StmtKind::kIf:
      if (Truth(Eval(*s.exprs[0], frame))) return Exec(s.body, frame, out);
      for (const StmtPtr& branch : s.elifs) {
        line_ = branch->line;
        if (Truth(Eval(*branch->exprs[0], frame))) return Exec(branch->body, frame, out);
      }
      return Exec(s.otherwise, frame, out);
    case StmtKind::kFor: {
      const Value iterable = Eval(*s.exprs[1], frame);
      if (!s.recursive) return RunLoop(s, frame, iterable, 0, out);
      out.Append(RunRecursiveLoop(s, &frame, iterable, 0));
      return Flow::kNormal;
    }
    case StmtKind::kSet: {
      const Value v = Eval(*s.exprs[1], frame);
      Assign(*s.exprs[0], v, frame);
      if (s.exported && tree_.has_blocks) Export(*s.exprs[0], frame);
      return Flow::kNormal;
    }
    case StmtKind::kSetBlock: {
      Enter(s.scope, frame);
      OutBuffer inner(budget_, limits_.output_bytes);
      const Flow flow = Exec(s.body, frame, inner);
      if (flow != Flow::kNormal) return flow;
      Value v = Str(inner.Take());
      if (s.exprs[1]) v = EvalFilter(*s.exprs[1], frame, &v);
      Assign(*s.exprs[0], v, frame);
      if (s.exported && tree_.has_blocks) Export(*s.exprs[0], frame);
      Leave(s.scope, frame);
      return Flow::kNormal;
    }
    case StmtKind::kMacro: {
      const Value macro = NewMacro(s, frame);
      Slot(s.target, frame) = macro;
      if (s.exported && tree_.has_blocks) exported_.Set(Str(s.name), macro, budget_);
      return Flow::kNormal;
    }
    case StmtKind::kCallBlock: {
      const Value caller = NewMacro(s, frame);
      out.Append(OnlyText(EvalCall(*s.exprs[0], frame, &caller)));
      return Flow::kNormal;
    }
    case StmtKind::kGeneration: {
      Args none;
      out.Append(CallMacro(NewMacro(s, frame).As<MacroObj>(), none).text());
      return Flow::kNormal;
    }
    case StmtKind::kFilterBlock: {
      Enter(s.scope, frame);
      OutBuffer inner(budget_, limits_.output_bytes);
      const Flow flow = Exec(s.body, frame, inner);
      if (flow != Flow::kNormal) return flow;
      const Value text = Str(inner.Take());
      out.Append(OnlyText(EvalFilter(*s.exprs[0], frame, &text)));
      Leave(s.scope, frame);
      return Flow::kNormal;
    }
    case StmtKind::kWith: {
      Enter(s.scope, frame);
      const size_t n = s.exprs.size() / 2;
      for (size_t i = 0; i < n; ++i) Assign(*s.exprs[i], Eval(*s.exprs[n + i], frame), frame);
      const Flow flow = Exec(s.body, frame, out);
      Leave(s.scope, frame);
      return flow;
    }
    case StmtKind::kScope: {
      Enter(s.scope, frame);
      const Flow flow = Exec(s.body, frame, out);
      Leave(s.scope, frame);
      return flow;
    }
    case StmtKind::kBlock: {
      CallFrame inner(*this, *s.function, nullptr);
      Enter(s.scope, inner.get());
      return Exec(s.body, inner.get(), out);
    }
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
    case StmtKind::kUnsupported: Throw(Err::kUnsupported, s.name);
  }
  return Flow::kNormal;
}

// One pass through the body; false: the loop ends.
bool Interp::RunBody(const Stmt& s, Activation& frame, const Value& item, const Value* loop, OutBuffer& out,
                     bool* completed) {
  Assign(*s.exprs[0], item, frame);
  if (loop != nullptr) Slot(s.target, frame) = *loop;
  Enter(s.scope, frame);
  const Flow flow = Exec(s.body, frame, out);
  if (flow == Flow::kNormal) *completed = true;
  return flow != Flow::kBreak;
}

Interp::Flow Interp::RunLoop(const Stmt& s, Activation& frame, const Value& iterable, int depth0, OutBuffer& out) {
  const Value source = s.exprs[2] ? Filtered(s, frame, iterable) : iterable;
  // As in jinja2, `else` runs unless some pass reached the end of the body: break and continue do not count as one.
  bool completed = false;
  if (s.extended) {
    auto* loop = heap_.New<LoopObj>(0);
    const Value self = Value::Of(Kind::kLoop, loop);
    // An item may hold the loop itself: what the loop holds goes when it ends.
    struct Release {
      LoopObj& loop;
      ~Release() {
        loop.iterable = loop.after = loop.current = loop.before = loop.changed = Value();
        loop.iterator = Iter();
      }
    } release{*loop};
    loop->iterable = source;
    loop->iterator = Iter(*this, source);
    loop->depth0 = depth0;
    if (s.recursive) {
      loop->recurse = &s;
      loop->closure = frame.parent;
    }
    while (loop->Advance(*this)) {
      if (!RunBody(s, frame, Value(loop->current), &self, out, &completed)) break;
      line_ = s.line;
    }
    if (loop->length < 0 && loop->index0 < 0) loop->length = 0;
  } else {
    Iter it(*this, source);
    for (Value item; it.Next(item);) {
      if (!RunBody(s, frame, item, nullptr, out, &completed)) break;
      line_ = s.line;
    }
  }
  Leave(s.scope, frame);
  if (completed || s.otherwise.empty()) return Flow::kNormal;
  Enter(s.else_scope, frame);
  const Flow flow = Exec(s.otherwise, frame, out);
  Leave(s.else_scope, frame);
  return flow;
}

std::string Interp::RunRecursiveLoop(const Stmt& s, Activation* closure, const Value& iterable, int depth0) {
  CallFrame call(*this, *s.function, closure);
  OutBuffer out(budget_, limits_.output_bytes);
  RunLoop(s, call.get(), iterable, depth0, out);
  return out.Take();
}

// `for x in xs if test`: the test runs in a function of its own, item by item between the passes of the body.
Value Interp::Filtered(const Stmt& s, Activation& frame, const Value& iterable) {
  struct State {
    Iter source;
    Activation* activation;
    bool entered = false;
  };
  budget_.Take(static_cast<size_t>(s.test_function->slots) * sizeof(Value) + sizeof(Activation));
  auto own = std::make_unique<Activation>();
  own->parent = &frame;
  own->slots.resize(static_cast<size_t>(s.test_function->slots));
  State state{Iter(*this, iterable), Keep(std::move(own)), false};
  return heap_.Iterator(iterable, "generator", [this, &s, state](Value& next) mutable {
    if (!std::exchange(state.entered, true)) Enter(s.test_scope, *state.activation);
    for (Value item; state.source.Next(item);) {
      Assign(*s.params[0], item, *state.activation);
      if (!Truth(Eval(*s.exprs[2], *state.activation))) continue;
      next = Rebuild(*this, *s.params[0], *state.activation);
      return true;
    }
    return false;
  });
}

// The generator yields its target again, so an unpacked item comes out as a tuple.
Value Interp::Rebuild(Interp& in, const Expr& target, Activation& frame) {
  if (target.kind == ExprKind::kName) return in.Slot(target.ref, frame);
  std::vector<Value> items;
  for (const ExprPtr& kid : target.kids) items.push_back(Rebuild(in, *kid, frame));
  return in.heap_.Tuple(std::move(items));
}

void Interp::Assign(const Expr& target, const Value& value, Activation& frame) {
  switch (target.kind) {
    case ExprKind::kName: Slot(target.ref, frame) = value; return;
    case ExprKind::kNamespaceRef: {
      const Value ns = Slot(target.ref, frame);
      if (!ns.Is(Kind::kNamespace)) Throw(Err::kRuntime, "cannot assign attribute on non-namespace object");
      heap_.SetAttribute(ns.As<NamespaceObj>(), Str(target.attribute), value);
      return;
    }
    default: break;
  }
  std::vector<Value> items;
  Iter it(*this, value);
  for (Value item; it.Next(item);) {
    items.push_back(std::move(item));
    if (items.size() > target.kids.size()) {
      Throw(Err::kValue, "too many values to unpack (expected " + std::to_string(target.kids.size()) + ")");
    }
  }
  if (items.size() != target.kids.size()) {
    Throw(Err::kValue, "not enough values to unpack (expected " + std::to_string(target.kids.size()) + ", got " +
                           std::to_string(items.size()) + ")");
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(*target.kids[i], items[i], frame);
}

void Interp::Export(const Expr& target, Activation& frame) {
  if (target.kind == ExprKind::kName) exported_.Set(Str(target.text), Slot(target.ref, frame), budget_);
  for (const ExprPtr& kid : target.kids) Export(*kid, frame);
}

// --------------------------------------------------------------------------------------------------------------- macros

Value Interp::NewMacro(const Stmt& s, Activation& frame) {
  auto* macro = heap_.New<MacroObj>(0);
  macro->macro = &s;
  macro->closure = &frame;
  return Value::Of(Kind::kMacro, macro);
}

Value Interp::CallMacro(const MacroObj& macro, Args& args) {
  const Stmt& s = *macro.macro;
  const std::string shown = s.kind == StmtKind::kMacro ? ReprString(s.name) : "None";
  CallFrame call(*this, *s.function, macro.closure);
  Activation& frame = call.get();
  const int caller_line = line_;
  const auto take = [&](const std::string& name) -> Value {
    for (size_t i = 0; i < args.named.size(); ++i) {
      if (args.named[i].first != name) continue;
      Value v = std::move(args.named[i].second);
      args.named.erase(args.named.begin() + static_cast<ptrdiff_t>(i));
      return v;
    }
    return {};
  };
  std::vector<Value> values(s.params.size());
  const size_t given = std::min(args.positional.size(), s.params.size());
  bool found_caller = false;
  for (size_t i = 0; i < s.params.size(); ++i) {
    const bool is_caller = s.params[i]->text == "caller";
    if (i < given) {
      values[i] = args.positional[i];
      found_caller = found_caller || (is_caller && given == s.params.size());
    } else {
      values[i] = take(s.params[i]->text);
      found_caller = found_caller || is_caller;
    }
  }
  Value caller;
  if (s.reads_caller && !found_caller) {
    caller = take("caller");
    if (caller.IsMissing() || caller.IsNone()) caller = MakeUndefined("No caller defined");
  }
  if (!s.reads_kwargs && !args.named.empty()) {
    if (std::any_of(args.named.begin(), args.named.end(), [](const auto& n) { return n.first == "caller"; })) {
      Throw(Err::kType, "macro " + shown +
                            " was invoked with two values for the special caller argument. This is most likely a bug.");
    }
    Throw(Err::kType, "macro " + shown + " takes no keyword argument " + ReprString(args.named[0].first));
  }
  if (!s.reads_varargs && args.positional.size() > s.params.size()) {
    Throw(Err::kType, "macro " + shown + " takes not more than " + std::to_string(s.params.size()) + " argument(s)");
  }
  Enter(s.scope, frame);
  for (size_t i = 0; i < values.size(); ++i) Slot(s.params[i]->ref, frame) = std::move(values[i]);
  if (s.caller.slot >= 0) Slot(s.caller, frame) = caller;
  if (s.reads_kwargs) {
    Table table;
    for (auto& [name, value] : args.named) table.Set(Str(name), std::move(value), budget_);
    Slot(s.kwargs, frame) = heap_.Dict(std::move(table));
  }
  if (s.reads_varargs) {
    const size_t skip = std::min(args.positional.size(), s.params.size());
    Slot(s.varargs, frame) =
        heap_.Tuple({args.positional.begin() + static_cast<ptrdiff_t>(skip), args.positional.end()});
  }
  const size_t without_default = s.params.size() - s.defaults.size();
  for (size_t i = 0; i < s.params.size(); ++i) {
    const Ref& ref = s.params[i]->ref;
    if (!Slot(ref, frame).IsMissing()) continue;
    Value v = i >= without_default ? Eval(*s.defaults[i - without_default], frame)
                                   : MakeUndefined("parameter " + ReprString(s.params[i]->text) + " was not provided");
    Slot(ref, frame) = std::move(v);
  }
  OutBuffer out(budget_, limits_.output_bytes);
  Exec(s.body, frame, out);
  line_ = caller_line;
  return Str(out.Take());
}

Value Interp::Call(const Value& callee, Args& args) {
  switch (callee.kind()) {
    case Kind::kFunction: {
      const auto& f = callee.As<FunctionObj>();
      stack_.Check();
      return f.call(*this, f.self, args);
    }
    case Kind::kMacro: return CallMacro(callee.As<MacroObj>(), args);
    case Kind::kLoop: {
      const auto& loop = callee.As<LoopObj>();
      const Bound b(args, "loop", {"iterable"}, 1);
      if (loop.recurse == nullptr)
        Throw(Err::kType, "The loop must have the 'recursive' marker to be called recursively.");
      const int line = line_;
      Value v = Str(RunRecursiveLoop(*loop.recurse, loop.closure, b.Get(0), loop.depth0 + 1));
      line_ = line;
      return v;
    }
    case Kind::kJoiner: {
      const Bound b(args, "joiner", {}, 0);
      auto& joiner = callee.As<JoinerObj>();
      return std::exchange(joiner.used, true) ? joiner.separator : Str("");
    }
    case Kind::kUndefined: ThrowUndefined(callee);
    default: Throw(Err::kType, "'" + std::string(TypeName(callee)) + "' object is not callable");
  }
}

// ----------------------------------------------------------------------------------------------------------- expressions

Value Interp::Constant(const Expr& e) {
  Value& v = constants_[static_cast<size_t>(e.constant)];
  if (v.IsMissing()) v = Str(tree_.constants[static_cast<size_t>(e.constant)]);
  return v;
}

Value Interp::Eval(const Expr& e, Activation& frame) {
  stack_.Check();
  budget_.Step();
  line_ = e.line;
  switch (e.kind) {
    case ExprKind::kData:
    case ExprKind::kString: return Constant(e);
    case ExprKind::kNone: return Value::None();
    case ExprKind::kBool: return Value::Bool(e.integer != 0);
    case ExprKind::kInt: return Value::Int(e.integer);
    case ExprKind::kFloat: return Value::Float(e.floating);
    case ExprKind::kName: {
      const Value& v = Slot(e.ref, frame);
      return v.IsMissing() ? MakeUndefined(ReprString(e.text) + " is undefined") : v;
    }
    case ExprKind::kNamespaceRef: break;  // only a target
    case ExprKind::kTuple:
    case ExprKind::kList: {
      std::vector<Value> items;
      items.reserve(e.kids.size());
      for (const ExprPtr& kid : e.kids) items.push_back(Eval(*kid, frame));
      return e.kind == ExprKind::kList ? heap_.List(std::move(items)) : heap_.Tuple(std::move(items));
    }
    case ExprKind::kDict: {
      Table table;
      for (size_t i = 0; i + 1 < e.kids.size(); i += 2) {
        Value key = Eval(*e.kids[i], frame);
        table.Set(std::move(key), Eval(*e.kids[i + 1], frame), budget_);
      }
      return heap_.Dict(std::move(table));
    }
    case ExprKind::kAdd:
    case ExprKind::kSub:
    case ExprKind::kMul:
    case ExprKind::kDiv:
    case ExprKind::kFloorDiv:
    case ExprKind::kMod:
    case ExprKind::kPow: {
      const Value left = Eval(*e.kids[0], frame);
      const Value right = Eval(*e.kids[1], frame);
      return Binary(*this, e.kind, left, right);
    }
    case ExprKind::kConcat: return EvalConcat(e, frame);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value left = Eval(*e.kids[0], frame);
      return Truth(left) == (e.kind == ExprKind::kOr) ? left : Eval(*e.kids[1], frame);
    }
    case ExprKind::kNot: return Value::Bool(!Truth(Eval(*e.kids[0], frame)));
    case ExprKind::kNeg: return Negate(Eval(*e.kids[0], frame));
    case ExprKind::kPos: return Positive(Eval(*e.kids[0], frame));
    case ExprKind::kCompare: return EvalCompare(e, frame);
    case ExprKind::kCond:
      if (Truth(Eval(*e.kids[0], frame))) return Eval(*e.kids[1], frame);
      if (e.kids.size() > 2) return Eval(*e.kids[2], frame);
      return MakeUndefined("the inline if-expression on line " + std::to_string(e.line) +
                           " evaluated to false and no else section was defined.");
    case ExprKind::kGetattr: {
      const Value object = Eval(*e.kids[0], frame);
      return GetAttr(*this, object, Constant(e));
    }
    case ExprKind::kGetitem: {
      const Value object = Eval(*e.kids[0], frame);
      return GetItem(*this, object, Eval(*e.kids[1], frame));
    }
    case ExprKind::kSlice: {
      const auto part = [&](size_t i) { return e.kids[i] ? Eval(*e.kids[i], frame) : Value(); };
      const Value object = part(0);
      const Value start = part(1), stop = part(2), step = part(3);
      return jinja::Slice(*this, object, start, stop, step);
    }
    case ExprKind::kFilter: return EvalFilter(e, frame, nullptr);
    case ExprKind::kTest: {
      const Value object = Eval(*e.kids[0], frame);
      Args args;
      EvalArgs(e, frame, args);
      return Value::Bool(CallTest(e.text, object, args));
    }
    case ExprKind::kCall: return EvalCall(e, frame, nullptr);
  }
  Throw(Err::kRuntime, "this expression has no value");
}

Value Interp::EvalConcat(const Expr& e, Activation& frame) {
  std::vector<Value> parts;
  parts.reserve(e.kids.size());
  for (const ExprPtr& kid : e.kids) parts.push_back(Eval(*kid, frame));
  std::string out;
  for (const Value& part : parts) {
    if (part.IsString()) {
      out += part.text();
    } else {
      out += ToStr(*this, part);
    }
  }
  return Str(std::move(out));
}

Value Interp::EvalCompare(const Expr& e, Activation& frame) {
  Value left = Eval(*e.kids[0], frame);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value right = Eval(*e.kids[i + 1], frame);
    if (!Compare(*this, e.ops[i], left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

void Interp::EvalArgs(const Expr& e, Activation& frame, Args& args) {
  for (size_t i = 0; i < e.n_args; ++i) args.positional.push_back(Eval(*e.kids[1 + i], frame));
  for (size_t i = 0; i < e.keywords.size(); ++i)
    args.named.emplace_back(e.keywords[i], Eval(*e.kids[1 + e.n_args + i], frame));
  if (e.star_args) {
    for (Value& v : ToVector(*this, Eval(*e.star_args, frame))) args.positional.push_back(std::move(v));
  }
  if (!e.star_kwargs) return;
  const Value more = Eval(*e.star_kwargs, frame);
  if (!more.Is(Kind::kDict))
    Throw(Err::kType, "argument after ** must be a mapping, not " + std::string(TypeName(more)));
  for (const auto& [key, value] : more.As<DictObj>().table.items()) {
    if (!key.IsString()) Throw(Err::kType, "keywords must be strings");
    if (std::any_of(args.named.begin(), args.named.end(), [&](const auto& n) { return n.first == key.text(); })) {
      Throw(Err::kType, "got multiple values for keyword argument " + ReprString(key.text()));
    }
    budget_.Step(1 + args.named.size());
    args.named.emplace_back(key.text(), value);
  }
}

Value Interp::EvalFilter(const Expr& e, Activation& frame, const Value* body) {
  const Value value = e.kids[0] == nullptr ? *body
                      : body != nullptr    ? EvalFilter(*e.kids[0], frame, body)
                                           : Eval(*e.kids[0], frame);
  Args args;
  EvalArgs(e, frame, args);
  line_ = e.line;
  return CallFilter(e.text, value, args);
}

Value Interp::EvalCall(const Expr& e, Activation& frame, const Value* caller) {
  const Value callee = Eval(*e.kids[0], frame);
  Args args;
  EvalArgs(e, frame, args);
  if (caller != nullptr) {
    if (std::any_of(args.named.begin(), args.named.end(), [](const auto& n) { return n.first == "caller"; })) {
      Throw(Err::kType, "keyword argument repeated: caller");
    }
    args.named.emplace_back("caller", *caller);
  }
  line_ = e.line;
  return Call(callee, args);
}

Value Interp::CallFilter(std::string_view name, const Value& value, Args& args) {
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) Throw(Err::kRuntime, "No filter named " + ReprString(name) + " found.");
  stack_.Check();
  return filter(*this, value, args);
}

bool Interp::CallTest(std::string_view name, const Value& value, Args& args) {
  const TestFunction test = FindTest(name);
  if (test == nullptr) Throw(Err::kRuntime, "No test named " + ReprString(name) + " found.");
  return test(*this, value, args);
}

Bound::Bound(Args& args, std::string_view function, std::initializer_list<std::string_view> names, size_t required)
    : values_(names.size()) {
  if (args.positional.size() > names.size()) {
    Throw(Err::kType, std::string(function) + "() takes at most " + std::to_string(names.size()) + " arguments (" +
                          std::to_string(args.positional.size()) + " given)");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end())
      Throw(Err::kType, std::string(function) + "() got an unexpected keyword argument " + ReprString(name));
    Value& slot = values_[static_cast<size_t>(at - names.begin())];
    if (!slot.IsMissing())
      Throw(Err::kType, std::string(function) + "() got multiple values for argument " + ReprString(name));
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i].IsMissing()) {
      Throw(Err::kType, std::string(function) + "() missing a required argument: " +
                            ReprString(*(names.begin() + static_cast<ptrdiff_t>(i))));
    }
  }
}

}  // namespace ridge::text::jinja
