// Writes small plans by hand, for tests.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace tessera::plan {

class PlanMaker {
 public:
  PlanMaker() { plan.routines.emplace_back(); }

  Plan plan;
  uint32_t at = 0;  // the routine being written

  Routine& r() { return plan.routines[at]; }

  // A new routine, which becomes the one being written.
  uint32_t routine() {
    plan.routines.emplace_back();
    return at = static_cast<uint32_t>(plan.routines.size() - 1);
  }

  ExprId c(int64_t value) { return r().add_constant(value); }
  ExprId add(ExprId a, ExprId b) { return r().add_expr(ExprOp::add, a, b); }
  ExprId mul(ExprId a, ExprId b) { return r().add_expr(ExprOp::multiply, a, b); }
  ExprId dim(std::string name, ValueId value, uint32_t axis) {
    return r().add_symbol({std::move(name), 0, INT64_MAX, Symbol::Source::dim, value, axis});
  }

  ValueId value(Storage storage, DType dtype, std::vector<ExprId> shape, std::string name = "") {
    Value v;
    v.storage = storage;
    v.dtype = dtype;
    v.shape = r().add_list(shape);
    v.name = std::move(name);
    return r().add_value(std::move(v));
  }
  // Sizes of -1 become symbols named after the input and the axis: "x0".
  ValueId input(const std::string& name, DType dtype, const std::vector<int64_t>& sizes) {
    std::vector<ExprId> shape;
    const auto id = static_cast<ValueId>(r().values.size());
    for (uint32_t a = 0; a < sizes.size(); ++a)
      shape.push_back(sizes[a] < 0 ? dim(name + std::to_string(a), id, a) : c(sizes[a]));
    value(Storage::input, dtype, shape, name);
    r().values[id].index = static_cast<uint32_t>(r().inputs.size());
    r().inputs.push_back(id);
    return id;
  }
  ValueId constant(Tensor tensor) {
    std::vector<ExprId> shape;
    for (int64_t size : tensor.shape()) shape.push_back(c(size));
    const ValueId id = value(Storage::constant, tensor.dtype(), shape);
    r().values[id].index = static_cast<uint32_t>(plan.constants.size());
    plan.constants.push_back(std::move(tensor));
    return id;
  }
  ValueId view(ValueId base, std::vector<ExprId> shape, std::vector<ExprId> strides, ExprId offset) {
    const ValueId id = value(Storage::view, r().values[base].dtype, std::move(shape));
    r().values[id].base = base;
    r().values[id].strides = r().add_list(strides);
    r().values[id].offset = offset;
    return id;
  }
  std::vector<ExprId> shape_of(ValueId v) {
    auto ids = r().shape(v);
    return {ids.begin(), ids.end()};
  }

  Step& step(StepKind kind, std::vector<ValueId> operands, std::vector<ValueId> results) {
    Step s;
    s.kind = kind;
    s.operands = r().add_list(operands);
    s.results = r().add_list(results);
    r().steps.push_back(s);
    return r().steps.back();
  }
  // A dense copy of `from`, made by a kernel.
  ValueId copy(ValueId from) {
    const ValueId to = value(Storage::buffer, r().values[from].dtype, shape_of(from));
    plan.kernels.push_back({"copy", "copy"});
    step(StepKind::kernel, {from}, {to}).op = static_cast<uint32_t>(plan.kernels.size() - 1);
    return to;
  }
  ValueId host(const std::string& op, std::vector<ValueId> operands, DType dtype, std::vector<ExprId> shape) {
    const ValueId to = value(Storage::boxed, dtype, std::move(shape));
    plan.host_ops.push_back({op, ""});
    step(StepKind::host, std::move(operands), {to}).op = static_cast<uint32_t>(plan.host_ops.size() - 1);
    return to;
  }
  void output(ValueId v, std::string name = "") {
    r().outputs.push_back(v);
    r().output_names.push_back(std::move(name));
  }
  std::shared_ptr<const Plan> done() const { return std::make_shared<const Plan>(plan); }
};

}  // namespace tessera::plan
