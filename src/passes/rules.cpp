#include "passes/rules.h"

#include <cmath>
#include <limits>

#include "ir/core_ops.h"
#include "ops/math.h"
#include "passes/constants.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

using ir::A;
using ir::Opt;
using ir::X;

constexpr double kAny = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kLast = -1;

// Elements of masks that are looked through for infinities.
constexpr int64_t kMaxMaskElements = int64_t{1} << 24;

bool is_weight(const ir::Graph& graph, ir::ValueId v) { return constant_behind(graph, v) != nullptr; }

// No element is infinite, as far as the formula tells: softmax of a row of -inf is NaN, attention's is 0.
bool is_finite(const ir::Graph& graph, ir::ValueId v, int depth) {
  if (depth == 0 || graph.value(v).def == ir::kNoNode) return false;
  if (const Tensor* tensor = constant_behind(graph, v)) {
    if (!is_float(tensor->dtype())) return tensor->dtype() != DType::string;
    if (tensor->count() > kMaxMaskElements) return false;
    for (int64_t i = 0; i < tensor->count(); ++i)
      if (!std::isfinite(decode(tensor->dtype(), tensor->data(), i))) return false;
    return true;
  }
  const ir::Node& node = graph.node(graph.value(v).def);
  const auto operands = graph.operands(graph.value(v).def);
  if (node.op == &ops::cast_op && !is_float(graph.type(operands[0])->dtype)) return true;
  const bool passes = node.op == &ops::add_op || node.op == &ops::sub_op || node.op == &ops::mul_op ||
                      node.op == &ops::neg_op || node.op == &ops::cast_op || node.op == &ir::core::view ||
                      node.op == &ir::core::copy || node.op == &ops::concat_op;
  if (!passes && node.op != &ops::select_op) return false;
  for (size_t i = node.op == &ops::select_op ? 1 : 0; i < operands.size(); ++i)
    if (!is_finite(graph, operands[i], depth - 1)) return false;
  return true;
}
bool is_finite_mask(const ir::Graph& graph, ir::ValueId v) { return is_finite(graph, v, 32); }

// A scale or shift of a norm is not as large as what it is applied to: that would be a residual or a gate.
bool is_row(const ir::Graph& graph, ir::ValueId v) {
  const Shape& shape = graph.type(v)->shape;
  for (size_t i = 0; i + 1 < shape.size(); ++i)
    if (!shape[i].is(1)) return false;
  return true;
}

// The meaning of an activation.
Rule activation(const ir::OpDef& op, std::vector<ir::AttrValue> attrs = {}) {
  return {op.name, &op, op.meaning, {{true, {3, 5, 17}}}, std::move(attrs), 1, op.doc};
}

std::vector<Rule> make_rules() {
  std::vector<Rule> all;
  const RuleOperand rows{true, {3, 5, 17}}, row{true, {17}, is_row}, none{false, {}};
  all.push_back(activation(ops::relu_op));
  all.push_back(activation(ops::sigmoid_op));
  all.push_back(activation(ops::softplus_op));
  all.push_back(activation(ops::gelu_op));
  all.push_back(activation(ops::gelu_tanh_op));
  all.push_back(activation(ops::silu_op));
  all.push_back(activation(ops::hard_sigmoid_op, {kAny, kAny}));
  all.push_back(activation(ops::hard_swish_op));
  all.push_back({"hard_swish_of_hard_sigmoid",
                 &ops::hard_swish_op,
                 [](X x) {
                   return x * x.builder->add1(ops::hard_sigmoid_op, {x}, {1.0 / 6, 0.5});
                 },
                 {rows},
                 {},
                 2,
                 "Howard et al. 2019"});
  for (int64_t axis : {kLast, kLast - 1, kLast - 2}) {
    all.push_back({"softmax", &ops::softmax_op, ops::softmax_op.meaning, {rows}, {axis}, 1, ops::softmax_op.doc});
    all.push_back(
        {"log_softmax", &ops::log_softmax_op, ops::log_softmax_op.meaning, {rows}, {axis}, 1, ops::log_softmax_op.doc});
  }
  for (const RuleOperand& b : {row, none})
    for (const RuleOperand& g : {row, none})
      all.push_back({"layer_norm",
                     &ops::layer_norm_op,
                     ops::layer_norm_op.meaning,
                     {rows, g, b},
                     {int64_t{1}, kAny},
                     1,
                     ops::layer_norm_op.doc});
  for (const RuleOperand& g : {row, none})
    all.push_back({"rms_norm",
                   &ops::rms_norm_op,
                   ops::rms_norm_op.meaning,
                   {rows, g},
                   {int64_t{1}, kAny},
                   1,
                   ops::rms_norm_op.doc});
  for (const RuleOperand& b : {RuleOperand{true, {5}}, none})
    all.push_back({"linear",
                   &ops::linear_op,
                   ops::linear_op.meaning,
                   {{true, {3, 17}}, {true, {5, 17}, is_weight}, b},
                   {},
                   1,
                   ops::linear_op.doc});
  const RuleOperand q{true, {2, 3, 5, 11}}, k{true, {2, 3, 7, 11}}, v{true, {2, 3, 7, 13}};
  for (const RuleOperand& mask : {RuleOperand{true, {2, 3, 5, 7}, is_finite_mask}, none})
    all.push_back({"attention_of_softmax",
                   &ops::attention_op,
                   [](X q, X k, X v, Opt mask, A a) {
                     X s = dot(q, k) * a.real("scale");
                     if (mask) s = s + mask;
                     return matmul(s.builder->add1(ops::softmax_op, {s}, {kLast}), v);
                   },
                   {q, k, v, mask},
                   {kAny, Shape(), 0.0},
                   2,
                   "Vaswani et al. 2017"});
  for (const RuleOperand& mask : {RuleOperand{true, {2, 3, 5, 7}}, none})
    all.push_back({"attention",
                   &ops::attention_op,
                   ops::attention_op.meaning,
                   {q, k, v, mask},
                   {kAny, Shape(), 0.0},
                   2,
                   ops::attention_op.doc});
  return all;
}

}  // namespace

std::span<const Rule> rules() {
  static const auto* const all = new std::vector<Rule>(make_rules());
  return *all;
}

}  // namespace tessera::passes
