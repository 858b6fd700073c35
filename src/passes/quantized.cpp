// Products of quantized numbers: what dequantizes their operands or scales their sums becomes part of them. Runs before
// constants are folded, which would turn quantized weights into floats.
#include <array>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ops/math.h"
#include "passes/pipeline.h"

namespace tessera::passes {
namespace {

using ir::NodeId;
using ir::ValueId;
using ir::X;

// Operands of linear_quantized.
enum Operand : size_t { kX, kW, kXScale, kWScale, kXZero, kWZero, kBias, kOperands };
using Product = std::array<ValueId, kOperands>;

class QuantizedSweep {
 public:
  QuantizedSweep(ir::Graph& graph, ir::EditLimit limit)
      : graph_(graph), rewrite_(graph, limit), uses_(graph.value_count(), 0) {
    for (NodeId n = 0; n < graph.node_count(); ++n)
      for (ValueId v : graph.operands(n))
        if (v != ir::kNoValue) ++uses_[v];
    for (ValueId v : graph.outputs) ++uses_[v];
    nodes_ = static_cast<NodeId>(graph.node_count());
  }

  Result<std::vector<ir::Edit>> run() {
    using Rule = bool (QuantizedSweep::*)(NodeId);
    constexpr std::array<Rule, 4> kRules = {&QuantizedSweep::real_sum, &QuantizedSweep::scaled,
                                            &QuantizedSweep::shifted, &QuantizedSweep::dequantized};
    for (NodeId n = 0; n < nodes_ && !rewrite_.exhausted(); ++n)
      for (const Rule rule : kRules)
        if ((this->*rule)(n)) break;
    const std::vector<ir::Edit> journal = rewrite_.journal();
    if (graph_.node_count() > nodes_) TESSERA_TRY(rewrite_.finish());
    return journal;
  }

 private:
  NodeId def(ValueId v) const { return v == ir::kNoValue ? ir::kNoNode : graph_.value(v).def; }
  bool is(NodeId n, const ir::OpDef& op) const { return n != ir::kNoNode && graph_.node(n).op == &op; }
  bool ranked(ValueId v) const { return graph_.type(v)->is_tensor() && graph_.type(v)->ranked; }
  X wrap(ValueId v) { return rewrite_.builder().wrap(v); }
  ValueId operand(NodeId n, size_t i) const {
    return i < graph_.operands(n).size() ? graph_.operands(n)[i] : ir::kNoValue;
  }

  // The product that only one node reads, behind the value.
  std::optional<Product> product_of(ValueId v) const {
    const NodeId n = def(v);
    if (uses_[v] != 1 || !is(n, ops::linear_quantized_op)) return std::nullopt;
    Product p;
    for (size_t i = 0; i < kOperands; ++i) p[i] = operand(n, i);
    return p;
  }
  double scale_of(ValueId v) const { return std::get<double>(graph_.node(def(v)).attrs->values[0]); }

  bool put(NodeId n, const Product& p, double scale, std::string_view rule) {
    ir::Builder& b = rewrite_.builder();
    b.set_location(graph_.node(n).location);
    std::vector<X> operands;
    for (ValueId v : p) operands.push_back(wrap(v));
    const size_t guards = graph_.guards.size();
    const X y = b.add(ops::linear_quantized_op, operands, {scale})[0];
    const bool made = b.ok() && graph_.guards.size() == guards && rewrite_.replace(graph_.result(n, 0), y.id, rule);
    (void)b.take_status();  // types that do not fit are no match, and no error
    if (!made) graph_.guards.resize(guards);
    return made;
  }

  // The integer sums as floats.
  bool real_sum(NodeId n) {
    if (!is(n, ops::cast_op) || graph_.type(graph_.result(n, 0))->dtype != DType::f32) return false;
    const ValueId sum = operand(n, 0);
    if (uses_[sum] != 1 || !is(def(sum), ops::linear_integer_op)) return false;
    Product p;
    p.fill(ir::kNoValue);
    p[kX] = operand(def(sum), 0);
    p[kW] = operand(def(sum), 1);
    p[kXZero] = operand(def(sum), 2);
    p[kWZero] = operand(def(sum), 3);
    return put(n, p, 1, "quantized_sum");
  }

  // Times one number, one a row or one a column.
  bool scaled(NodeId n) {
    if (!is(n, ops::mul_op)) return false;
    for (size_t side : {0, 1}) {
      const ValueId y = operand(n, side), s = operand(n, 1 - side);
      std::optional<Product> p = product_of(y);
      if (!p || (*p)[kBias] != ir::kNoValue || !ranked(s) || !ranked(y)) continue;
      const std::optional<X> by_column = column(s, graph_.type(y)->shape);
      const std::optional<X> by_row = by_column ? std::nullopt : row(s, graph_.type(y)->shape);
      if (!by_column && !by_row) continue;
      ValueId& scale = (*p)[by_column ? kWScale : kXScale];
      const X factor = by_column ? *by_column : *by_row;
      scale = scale == ir::kNoValue ? factor.id : (wrap(scale) * factor).id;
      if (put(n, *p, scale_of(y), "quantized_scale")) return true;
    }
    return false;
  }

  bool shifted(NodeId n) {
    if (!is(n, ops::add_op)) return false;
    for (size_t side : {0, 1}) {
      const ValueId y = operand(n, side), bias = operand(n, 1 - side);
      std::optional<Product> p = product_of(y);
      if (!p || (*p)[kBias] != ir::kNoValue || !ranked(bias) || !ranked(y)) continue;
      const std::optional<X> each = column(bias, graph_.type(y)->shape);
      if (!each) continue;
      (*p)[kBias] = each->id;
      if (put(n, *p, scale_of(y), "quantized_bias")) return true;
    }
    return false;
  }

  // A product of two dequantized operands.
  bool dequantized(NodeId n) {
    const bool linear = is(n, ops::linear_op);
    if (!linear && !is(n, ops::dot_op)) return false;
    const NodeId x = def(operand(n, 0));
    NodeId w = def(operand(n, 1));
    std::optional<ir::View> view;
    if (is(w, ir::core::view)) {
      view = std::get<ir::View>(graph_.node(w).attrs->values[0]);
      w = def(operand(w, 0));
    }
    if (!is(x, ops::dequantize_linear_op) || !is(w, ops::dequantize_linear_op)) return false;
    Product p;
    p.fill(ir::kNoValue);
    p[kX] = operand(x, 0);
    p[kW] = operand(w, 0);
    p[kXScale] = operand(x, 1);
    p[kWScale] = operand(w, 1);
    p[kXZero] = operand(x, 2);
    p[kWZero] = operand(w, 2);
    if (linear) p[kBias] = operand(n, 2);
    if (!ranked(p[kW]) || graph_.type(p[kW])->rank() != 2 || graph_.type(p[kXScale])->rank() != 0) return false;
    if (!byte(p[kX]) || !byte(p[kW])) return false;
    // One scale a row of w as the product takes it: a column of it before it was transposed.
    const bool transposed = view && *view == ir::transpose_view(graph_.type(p[kW])->shape, std::vector<int>{1, 0});
    if (view && !transposed) return false;
    const int64_t axis = std::get<int64_t>(graph_.node(w).attrs->values[0]);
    if (graph_.type(p[kWScale])->rank() == 1 && (axis + 2) % 2 != (transposed ? 1 : 0)) return false;
    if (transposed) p[kW] = swap_axes(wrap(p[kW]), 0, 1).id;
    return put(n, p, 1, "quantized_product");
  }

  bool byte(ValueId v) const {
    const DType t = graph_.type(v)->dtype;
    return t == DType::u8 || t == DType::i8;
  }

  // [N] when s holds one value a column of y and none a row.
  std::optional<X> column(ValueId s, const Shape& y) {
    const Shape& shape = graph_.type(s)->shape;
    if (shape.empty() || shape.size() > y.size() || !(shape.back() == y.back()) || shape.back().is(1))
      return std::nullopt;
    for (size_t i = 0; i + 1 < shape.size(); ++i)
      if (!shape[i].is(1)) return std::nullopt;
    return reshape(wrap(s), {shape.back()});
  }
  // [] or [*B, 1] when s holds one value, or one a row.
  std::optional<X> row(ValueId s, const Shape& y) {
    const Shape& shape = graph_.type(s)->shape;
    bool one = shape.size() <= y.size();
    for (const Dim& d : shape) one = one && d.is(1);
    if (one) return reshape(wrap(s), {});
    if (shape.size() != y.size() || !shape.back().is(1)) return std::nullopt;
    for (size_t i = 0; i + 1 < shape.size(); ++i)
      if (!(shape[i] == y[i])) return std::nullopt;
    return wrap(s);
  }

  ir::Graph& graph_;
  ir::Rewrite rewrite_;
  std::vector<uint32_t> uses_;
  NodeId nodes_ = 0;
};

}  // namespace

Result<std::vector<ir::Edit>> raise_quantized(ir::Graph& graph, const PassContext& context) {
  if (context.options.strict) return std::vector<ir::Edit>();  // scales multiply in another order
  if (context.options.targets && !context.options.targets(ops::linear_quantized_op)) return std::vector<ir::Edit>();
  return QuantizedSweep(graph, context.limit).run();
}

}  // namespace tessera::passes
