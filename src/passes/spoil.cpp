#include "passes/spoil.h"

#include "base/result.h"
#include "ops/ops.h"

namespace tessera::passes {
namespace {

using ir::ValueId;
using ir::X;

X scaled(ir::Builder& builder, X x) {
  const DType dtype = x.dtype();
  if (dtype == DType::boolean) return builder.add1(ops::logical_not_op, {x});
  if (is_float(dtype)) return builder.add1(ops::mul_op, {x, builder.scalar(dtype, 1.25)});
  return builder.add1(ops::add_op, {x, builder.integer(1, dtype)});
}

}  // namespace

Spoil::Spoil(PlantedFault fault) : fault_(std::move(fault)) {
  spoiler_ = [this](ir::Builder& builder, ValueId value, std::string_view rule) -> ValueId {
    if (done_ || !meant(rule)) return value;
    const ValueId made = wrong(builder, value);
    if (made == value || ++seen_ < fault_.nth) return value;
    done_ = true;
    return made;
  };
}

bool Spoil::meant(std::string_view rule) const {
  return fault_.where == PlantedFault::Where::rule ? rule == fault_.name : pass_ == fault_.name;
}

const ir::Spoiler* Spoil::in_pass(std::string_view pass) {
  pass_ = pass;
  const bool never = done_ || (fault_.where == PlantedFault::Where::pass && pass != fault_.name);
  return never ? nullptr : &spoiler_;
}

Status Spoil::after(ir::Graph& graph, const std::vector<ir::Edit>& edits) {
  if (done_ || graph.outputs.empty()) return {};
  bool any = false;
  for (const ir::Edit& edit : edits)
    if (edit.node == ir::kNoNode && meant(edit.rule)) any = any || ++seen_ >= fault_.nth;
  if (!any) return {};
  ir::Rewrite rewrite(graph);
  const ValueId made = wrong(rewrite.builder(), graph.outputs[0]);
  done_ = rewrite.replace(graph.outputs[0], made, fault_.name);
  return rewrite.finish();
}

ValueId Spoil::wrong(ir::Builder& builder, ValueId value) const {
  const ir::Graph& graph = builder.graph();
  const ir::Type& type = *graph.type(value);
  if (!type.is_tensor() || !type.ranked || type.dtype == DType::string || is_block(type.dtype)) return value;
  const size_t guards = graph.guards.size();
  X made = builder.wrap(ir::kNoValue);
  if (fault_.how == PlantedFault::How::scale) {
    made = scaled(builder, builder.wrap(value));
  } else if (const ir::NodeId def = graph.value(value).def; def != ir::kNoNode) {
    const ir::Node node = graph.node(def);
    ir::Xs operands;
    for (ValueId v : graph.operands(def)) operands.push_back(builder.wrap(v));
    const ir::OpDef& op = *node.op;
    bool changed = false;
    if (fault_.how == PlantedFault::How::drop && operands.size() > 2) {
      operands.pop_back();
      changed = true;
    }
    for (size_t i = 1; fault_.how == PlantedFault::How::swap && !op.commutative && !changed && i < operands.size(); ++i)
      if (operands[i - 1] && operands[i] && operands[i - 1].id != operands[i].id &&
          operands[i - 1].type() == operands[i].type()) {
        std::swap(operands[i - 1], operands[i]);
        changed = true;
      }
    if (changed && node.n_regions == 0) {
      const ir::Xs results = builder.add(op, operands, node.attrs->values);
      if (builder.ok()) made = results[graph.value(value).result];
    }
  }
  // What does not fit here is no fault.
  const bool good = builder.take_status().has_value() && made && graph.guards.size() == guards &&
                    ir::provably_equal(graph.context(), graph.type(value), graph.type(made.id));
  return good ? made.id : value;
}

}  // namespace tessera::passes
