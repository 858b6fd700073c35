#include "plan/plan.h"

namespace tessera::plan {

List Routine::add_list(std::span<const uint32_t> items) {
  const List l = {static_cast<uint32_t>(lists.size()), static_cast<uint32_t>(items.size())};
  lists.insert(lists.end(), items.begin(), items.end());
  return l;
}

ExprId Routine::add_constant(int64_t value) {
  exprs.push_back({ExprOp::constant, 0, 0, value});
  return static_cast<ExprId>(exprs.size() - 1);
}

ExprId Routine::add_symbol(Symbol symbol) {
  exprs.push_back({ExprOp::symbol, static_cast<uint32_t>(symbols.size()), 0, 0});
  symbols.push_back(std::move(symbol));
  return static_cast<ExprId>(exprs.size() - 1);
}

ExprId Routine::add_expr(ExprOp op, ExprId a, ExprId b) {
  exprs.push_back({op, a, b, 0});
  return static_cast<ExprId>(exprs.size() - 1);
}

ValueId Routine::add_value(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size() - 1);
}

std::string describe(const Plan& plan, const Step& step) {
  if (step.source != kNone) return plan.sources[step.source];
  switch (step.kind) {
    case StepKind::kernel:
      return "kernel '" + plan.kernels[step.op].kernel + "'";
    case StepKind::host:
      return "operator '" + plan.host_ops[step.op].op + "'";
    case StepKind::branch:
      return "a branch";
    case StepKind::loop:
      return "a loop";
    case StepKind::scan:
      break;
  }
  return "a scan";
}

}  // namespace tessera::plan
