// The parsed template. Built by parser.cc, its names bound to slots by resolver.cc, executed by interp.cc; immutable after that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ridge::text::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// A variable: `hops` functions outwards, then the slot.
struct Ref {
  int hops = 0;
  int slot = -1;
};

enum class ExprKind : uint8_t {
  kData,  // template text between the tags
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kName,
  kNamespaceRef,  // ns.attr, as a target of set
  kTuple,
  kList,
  kDict,  // kDict: key, value, key, value
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kConcat,
  kAnd,
  kOr,
  kNot,
  kNeg,
  kPos,
  kCompare,  // kids: operands; ops: one less
  kCond,     // kids: test, then, [else]
  kGetattr,
  kGetitem,
  kSlice,  // kSlice: object, start, stop, step (each may be null)
  kFilter,
  kTest,
  kCall,  // kids[0]: what is filtered, tested or called (null: the body of a filter block)
};

enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
enum class NameContext : uint8_t { kLoad, kStore, kParam };

struct Expr {
  explicit Expr(ExprKind k, int at) : kind(k), line(at) {}
  ExprKind kind;
  NameContext context = NameContext::kLoad;
  int line;
  int depth = 1;        // 1 + the deepest kid: bounds every walk over the tree
  int constant = -1;    // kString, kData: index among the template's constants
  int64_t integer = 0;  // kInt, kBool
  double floating = 0;
  std::string text;       // name, attribute, filter, test, string
  std::string attribute;  // kNamespaceRef
  Ref ref;
  std::vector<ExprPtr> kids;
  std::vector<CompareOp> ops;
  // Calls, filters, tests: kids[1 … 1 + n_args) are positional, then one per name in `keywords`.
  size_t n_args = 0;
  std::vector<std::string> keywords;
  ExprPtr star_args, star_kwargs;
};

// What happens to a scope's variables when it is entered (jinja2's idtracking).
struct Load {
  enum class Kind : uint8_t { kParameter, kResolve, kAlias, kUndefined } kind = Kind::kUndefined;
  Ref target, source;
  std::string name;  // kResolve: looked up in the context
};
struct ScopeInfo {
  std::vector<Load> loads;
};

// A Python function of the compiled template: root, macro, call block, recursive loop, loop filter, block.
struct FunctionInfo {
  int slots = 0;
  int level = 0;          // functions around it
  bool captured = false;  // holds functions of its own, which may outlive a call of it
};

enum class StmtKind : uint8_t {
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kGeneration,
  kFilterBlock,
  kWith,
  kScope,
  kBlock,
  kBreak,
  kContinue,
  kUnsupported,  // include, import, extends: an error once reached
};

struct Stmt {
  explicit Stmt(StmtKind k, int at) : kind(k), line(at) {}
  StmtKind kind;
  int line;
  std::string name;  // macro, block; message of kUnsupported
  std::vector<ExprPtr>
      exprs;  // kOutput: parts; kIf: test; kFor: target, iter, [test]; kSet: target, value; kSetBlock: target, [filter];
              // kCallBlock: call; kFilterBlock: filter; kWith: targets then values; kMacro, kCallBlock: see params
  std::vector<ExprPtr> params, defaults;  // macros: the last defaults.size() parameters have one
  Body body, otherwise;
  std::vector<StmtPtr> elifs;  // kIf
  bool recursive = false;

  // Set by the resolver.
  bool extended = false;  // kFor: the body sees `loop`
  bool exported = false;  // kSet, kSetBlock, kMacro at the top level
  bool reads_caller = false, reads_kwargs = false, reads_varargs = false;
  Ref target, caller, kwargs, varargs;  // kMacro: its variable; kFor: `loop`
  ScopeInfo scope, else_scope, test_scope;
  std::unique_ptr<FunctionInfo> function, test_function;
};

struct Template {
  Body body;
  FunctionInfo root;
  ScopeInfo scope;
  std::vector<std::string> constants;
  bool has_blocks = false;  // blocks read the top level's variables by name
};

}  // namespace ridge::text::jinja
