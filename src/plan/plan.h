// A plan: a program of steps with symbolic sizes. It holds no graph: what compile writes, the runtime needs nothing
// else.
//
// A plan is a tree of routines. Routine 0 is the program; the others are bodies of branches, loops and scans, each
// called from one step of an earlier routine. Everything refers to everything else by index, so that a plan is a flat
// file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/dtype.h"
#include "tessera/tensor.h"

namespace tessera::plan {

constexpr uint32_t kNone = ~uint32_t{0};  // an absent operand, and "not there" of every index

using ExprId = uint32_t;   // index into Routine::exprs
using ValueId = uint32_t;  // index into Routine::values

// A run of Routine::lists: sizes (ExprId) or operands (ValueId).
struct List {
  uint32_t first = 0;
  uint32_t count = 0;
};

// Size arithmetic over int64_t; what overflows or divides by zero has no value, which is an error only where it is
// used.
enum class ExprOp : uint8_t { constant, symbol, add, multiply, floordiv, min, max };
struct Expr {
  ExprOp op = ExprOp::constant;
  uint32_t a = 0;     // the left operand, an earlier expression; symbol: its index
  uint32_t b = 0;     // the right operand, an earlier expression
  int64_t value = 0;  // constant
};

// A size that is not known before a run.
struct Symbol {
  enum class Source : uint8_t {
    dim,      // axis `index` of `value`
    element,  // element `index` of the integer tensor `value`
    outer,    // symbol `index` of the calling routine
  };
  std::string name;
  int64_t lo = 0;  // inclusive bounds
  int64_t hi = INT64_MAX;
  Source source = Source::dim;
  ValueId value = kNone;
  uint32_t index = 0;
};

enum class Kind : uint8_t { tensor, sequence, optional, state };

// Where a value lies.
enum class Storage : uint8_t {
  input,      // the caller's memory; `index` says which input
  constant,   // Plan::constants[index]
  buffer,     // memory that the plan gives a kernel's result: in the arena, or the output's own
  boxed,      // a tessera::Value that a host or control step made
  view,       // other elements of `base`
  successor,  // the state that a step leaves in the memory of the state `base`, which it consumes
};

struct Value {
  Kind kind = Kind::tensor;
  DType dtype = DType::f32;  // sequence, optional: of the tensors inside
  Storage storage = Storage::buffer;
  bool ranked = true;   // false: not even the rank is known before it is made (boxed values only)
  bool packed = false;  // constant: it lies as the kernels that read it want it, in a u8 tensor of that many bytes
  uint32_t index = 0;
  ValueId base = kNone;   // view: not itself a view, and dense. successor: a state
  ExprId offset = kNone;  // view: in elements of the base
  List shape = {};        // ExprIds, outermost first
  List strides = {};      // view: ExprIds, in elements, one an axis
  std::string name = {};  // the user's name, where there is one
};

// One attribute of a kernel, in the order in which its operator declares them.
struct Attr {
  int64_t i = 0;
  double f = 0;
  List list = {};  // ExprIds
};

enum class StepKind : uint8_t {
  kernel,  // Plan::kernels[op]
  host,    // Plan::host_ops[op], run by whoever made the session
  branch,  // operands: condition, then the inputs of both routines; routines: then, else; results: their outputs
  loop,    // operands: trip count?, condition?, `carried` values, captured ones; routine: body.
           // body (iteration, condition, carried..., captured...) -> (condition, carried..., one slice of each stack)
           // results: the last carried values, then the stacked slices
  scan,    // operands: `carried` values, `scanned` tensors walked along axis 0, captured ones; routine: body.
           // body (carried..., slices..., captured...) -> (carried..., one slice of each stack); results as of a loop
};

struct Step {
  StepKind kind = StepKind::kernel;
  uint32_t op = kNone;
  List operands = {};  // ValueIds; kNone where absent
  List results = {};   // ValueIds; kNone where nobody needs it (host and control steps only)
  uint32_t attrs = 0;  // kernel: first of `n_attrs` in Routine::attrs
  uint32_t n_attrs = 0;
  uint32_t routines[2] = {kNone, kNone};
  uint32_t carried = 0;
  uint32_t scanned = 0;
  uint32_t source = kNone;  // index into Plan::sources
};

// What the compiler assumed about sizes and could not prove.
struct Guard {
  enum class Kind : uint8_t { equal, not_equal, at_most, divisible };  // a == b, a != b, a <= b, a % b == 0
  Kind kind = Kind::equal;
  ExprId a = kNone;
  ExprId b = kNone;
  std::string what;  // "seq == 128 (node 'add_1')"
};

struct Routine {
  std::string name;
  std::vector<Symbol> symbols;
  std::vector<Expr> exprs;
  std::vector<uint32_t> lists;
  std::vector<Value> values;
  std::vector<Attr> attrs;
  std::vector<Step> steps;
  std::vector<Guard> guards;
  std::vector<ValueId> inputs;   // values of storage `input`, in order
  std::vector<ValueId> outputs;  // a value may be given out twice
  std::vector<std::string> output_names;

  std::span<const uint32_t> list(List l) const { return {lists.data() + l.first, l.count}; }
  std::span<const ExprId> shape(ValueId v) const { return list(values[v].shape); }
  std::span<const ValueId> operands(const Step& s) const { return list(s.operands); }
  std::span<const ValueId> results(const Step& s) const { return list(s.results); }

  // For those that write plans.
  List add_list(std::span<const uint32_t> items);
  ExprId add_constant(int64_t value);
  ExprId add_symbol(Symbol symbol);  // the expression that reads the new symbol
  ExprId add_expr(ExprOp op, ExprId a, ExprId b);
  ValueId add_value(Value value);
};

struct KernelRef {
  std::string kernel;  // as in table.def
  std::string op;
};

// An operator without a kernel. `blob` is its maker's: attributes, nested graphs.
struct HostOp {
  std::string op;
  std::string blob;
};

struct Plan {
  std::vector<Routine> routines;
  std::vector<Tensor> constants;  // owned, or kept alive by what they borrow from
  std::vector<KernelRef> kernels;
  std::vector<HostOp> host_ops;
  std::vector<std::string> sources;  // "node 'layer3.ffn.up' (Gemm)"
  std::string isa;                   // whose kernels the packed constants are for; empty when there are none

  const Routine& main() const { return routines.front(); }
};

// "node 'layer3.ffn.up' (Gemm)", or what can be said of a step without a source.
std::string describe(const Plan& plan, const Step& step);

}  // namespace tessera::plan
