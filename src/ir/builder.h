// Writes graphs: type-checked node by node, folding shape arithmetic as it goes.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/op_def.h"

namespace tessera::ir {

// Errors are sticky: after the first one every formula gives absent values, and status() says what went wrong first.
class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}
  Graph& graph() { return graph_; }
  Context& context() { return graph_.context(); }
  DimTable& dims() { return graph_.dims(); }

  void set_location(LocId location) { location_ = location; }
  LocId location() const { return location_; }
  Status status() const;
  bool ok() const { return !error_; }
  void fail_with(Error error) {
    if (!error_) error_ = std::move(error);
  }
  // Hands the error over and goes on.
  Status take_status();

  X wrap(ValueId id) { return {this, id}; }
  X input(TypeRef type, std::string_view name) { return wrap(graph_.add_input(type, name)); }

  // Adds a node. `attrs` in the declared order; missing ones at the end take their defaults.
  Xs add(const OpDef& op, std::span<const X> operands, std::vector<AttrValue> attrs = {},
         std::vector<Graph> regions = {});
  X add1(const OpDef& op, std::initializer_list<X> operands, std::vector<AttrValue> attrs = {});

  // Constants.
  X constant(Tensor tensor);
  X scalar(DType dtype, double value);                 // f64 value rounded to dtype
  X integer(int64_t value, DType dtype = DType::i64);  // rank 0
  X integers(std::span<const int64_t> values);         // i64[n]
  // An i64 tensor of these sizes: a constant where all are, else a `dims` node.
  X sizes(std::span<const Dim> sizes);
  X size(Dim size);  // rank 0
  // The elements of an integer tensor as Dims, where they are known without a run.
  const Shape* contents(X x) const;
  // The tensor behind a value defined by a constant node; nullptr otherwise.
  const Tensor* constant_of(X x) const;

  // Asserts a == b: proved, refuted (sticky E0312), or recorded as a guard.
  void require_equal(Dim a, Dim b);
  // Numpy broadcasting of two shapes, with guards as for operators.
  Result<Shape> broadcast(const Shape& a, const Shape& b);

  // Views. They compose: a view of a view is one view of its base; where it cannot be, the base is copied first.
  X view(X x, View view);
  X view(X x, AttrsRef attrs);  // attributes of a node that holds the view

 private:
  Xs add_interned(const OpDef& op, std::span<const X> operands, AttrsRef attrs, std::vector<Graph> regions);
  // They let the formulas that follow an error run through without a check after every step.
  Xs absent();
  void record(std::vector<Guard> guards);

  Graph& graph_;
  LocId location_ = 0;
  std::optional<Error> error_;
};

}  // namespace tessera::ir
