// What an operator is: one constant-initialised OpDef an operator, each in its own file under src/ops, listed in
// ops.def.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ir/attrs.h"
#include "ir/graph.h"

namespace tessera::ir {

class Builder;
class Eval;
class Infer;
struct OpDef;

// Reads the attributes of a node by name: a["eps"] converts to the declared kind. An unknown name is a broken
// invariant.
class A {
 public:
  A(const OpDef& op, const Attrs& attrs) : op_(&op), attrs_(&attrs) {}
  struct Read {
    const AttrValue* value;
    operator int64_t() const { return std::get<int64_t>(*value); }
    operator double() const { return std::get<double>(*value); }
    operator const std::vector<int64_t>&() const { return std::get<std::vector<int64_t>>(*value); }
    operator const Shape&() const { return std::get<Shape>(*value); }
    operator const View&() const { return std::get<View>(*value); }
    operator DType() const { return static_cast<DType>(std::get<int64_t>(*value)); }
  };
  Read operator[](std::string_view name) const;
  int64_t integer(std::string_view name) const { return (*this)[name]; }
  bool flag(std::string_view name) const { return integer(name) != 0; }
  double real(std::string_view name) const { return (*this)[name]; }
  std::string_view word(std::string_view name) const;
  const std::vector<int64_t>& integers(std::string_view name) const { return (*this)[name]; }
  const Shape& dims(std::string_view name) const { return (*this)[name]; }

 private:
  const OpDef* op_;
  const Attrs* attrs_;
};

// A value while a graph is being written: formulas over X add nodes to its builder's graph. An X without a value stands
// for an absent optional operand, or for a result after the builder has met an error (see Builder::status).
struct X {
  Builder* builder = nullptr;
  ValueId id = kNoValue;
  explicit operator bool() const { return id != kNoValue; }
  TypeRef type() const;
  const Shape& shape() const { return type()->shape; }
  DType dtype() const { return type()->dtype; }
  int rank() const { return type()->rank(); }
  Dim dim(int axis) const;  // axis counts from the end when negative
};
using Opt = X;              // an operand declared with `?`
using Xs = std::vector<X>;  // an operand declared with `...`, and several results

// A composite operator's definition in terms of others: [](X x, Opt g, A a) { ... } returning X or Xs. Parameters stand
// in the order of the signature's operands; A comes last and may be left out.
class Meaning {
 public:
  using Fn = Xs (*)(std::span<const X>, const A&);
  constexpr Meaning() = default;
  constexpr Meaning(std::nullptr_t) {}
  template <class F, class = decltype(&F::operator())>
  constexpr Meaning(F) : fn_(&Thunk<F, decltype(&F::operator())>::call) {}
  constexpr explicit operator bool() const { return fn_ != nullptr; }
  Xs operator()(std::span<const X> operands, const A& attrs) const { return fn_(operands, attrs); }

 private:
  static Xs many(X x) { return {x}; }
  static Xs many(Xs xs) { return xs; }
  template <class P>
  static P take(std::span<const X> operands, size_t& next, const A& attrs) {
    if constexpr (std::is_same_v<P, A>) {
      return attrs;
    } else if constexpr (std::is_same_v<P, Xs>) {
      Xs rest(operands.begin() + static_cast<ptrdiff_t>(next), operands.end());
      next = operands.size();
      return rest;
    } else {
      static_assert(std::is_same_v<P, X>, "a meaning takes X, Opt, Xs and A, by value");
      return next < operands.size() ? operands[next++] : X{};
    }
  }
  template <class F, class M>
  struct Thunk;
  template <class F, class R, class... P>
  struct Thunk<F, R (F::*)(P...) const> {
    static Xs call(std::span<const X> operands, const A& attrs) {
      size_t next = 0;
      std::tuple<P...> arguments{take<P>(operands, next, attrs)...};  // braces: evaluated left to right
      return many(std::apply(F{}, arguments));
    }
  };
  Fn fn_ = nullptr;
};

// Result types where the signature alone cannot tell them: when shapes depend on attributes or on values.
using InferFn = Status (*)(Infer&);
// A primitive's results in exact arithmetic: the one semantics.
using ReferenceFn = Status (*)(Eval&);

struct OpDef {
  std::string_view name = {};
  std::string_view doc = {};        // one sentence, with the source: paper or specification
  std::string_view signature = {};  // "x[*B, C], g?[C] -> y[*B, C]"; grammar in ir/signature.h
  std::string_view types = {};      // "x, g, y: float"
  AttrSpecs attrs = {};
  InferFn infer = nullptr;
  Meaning meaning = {};             // composites
  ReferenceFn reference = nullptr;  // primitives
  bool folds_dims = false;          // the reference also runs over Dims (integer tensors that feed shapes)
  bool commutative = false;
  bool pure = true;  // false: random, or has an effect; never merged, folded or dropped as equal
  int regions = 0;   // nested graphs

  bool is_primitive() const { return !meaning; }
};

// What an InferFn sees and sets.
class Infer {
 public:
  const OpDef& op;
  A attrs;
  Context& context;
  std::span<const TypeRef> operands;  // nullptr where an optional operand is absent
  std::span<const Graph> regions;
  std::vector<TypeRef> results = {};  // to be set

  DimTable& dims() const { return context.dims(); }
  bool has(int i) const { return i < static_cast<int>(operands.size()) && operands[i] != nullptr; }
  const Shape& shape(int i) const { return operands[i]->shape; }
  DType dtype(int i) const { return operands[i]->dtype; }
  int rank(int i) const { return operands[i]->rank(); }
  // The operand's elements as Dims, where they are known.
  const Shape* contents(int i) const { return contents_of(i); }
  void result(DType dtype, Shape shape) { results.push_back(context.tensor(dtype, std::move(shape))); }
  // Asserts a == b: proved, refuted (E0312 with `what`, a plural: "the sizes of x and y"), or recorded as a guard.
  Status require_equal(Dim a, Dim b, std::string_view what);
  // The axis as an index in [0, rank): negative counts from the end; E0314.
  Result<int> axis(int64_t axis, int rank) const;

  std::vector<Guard> guards = {};
  std::span<const Shape* const> contents_list = {};

 private:
  const Shape* contents_of(int i) const {
    return i < static_cast<int>(contents_list.size()) ? contents_list[i] : nullptr;
  }
};

// Numpy broadcasting of two sizes; nullopt when they provably differ and neither can be 1.
std::optional<Dim> broadcast_dims(Infer& infer, Dim a, Dim b);
// Numpy broadcasting of two shapes; sizes that can be neither proved equal nor proved 1 become a guard.
Result<Shape> broadcast_shapes(Infer& infer, const Shape& a, const Shape& b);

}  // namespace tessera::ir
