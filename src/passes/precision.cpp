#include "passes/precision.h"

#include <algorithm>
#include <unordered_map>

#include "base/result.h"
#include "base/strings.h"
#include "ir/core_ops.h"
#include "ir/interpreter.h"
#include "ops/math.h"
#include "passes/pipeline.h"

namespace tessera::passes {
namespace {

using ir::NodeId;
using ir::ValueId;
using ir::X;

// A rule fits a layer when it fits one of the user's nodes whose work the layer does: its product, its bias.
Precision precision_of(const ir::Graph& graph, NodeId n, std::span<const PrecisionRule> rules) {
  const ir::Context& context = graph.context();
  const std::vector<ir::LocId> places = context.covered(graph.node(n).location);
  auto fits = [](const std::string& glob, std::string_view text) { return glob.empty() || glob_match(glob, text); };
  Precision precision = Precision::keep;
  for (const PrecisionRule& rule : rules) {
    const bool here = fits(rule.kind, graph.node(n).op->name);
    const bool fit = (here && rule.name.empty()) || std::any_of(places.begin(), places.end(), [&](ir::LocId place) {
                       const ir::Location& location = context.location(place);
                       return (here || fits(rule.kind, context.text(location.op_type))) &&
                              fits(rule.name, context.text(location.node));
                     });
    if (fit) precision = rule.precision;
  }
  return precision;
}

class PrecisionSweep {
 public:
  PrecisionSweep(ir::Graph& graph, const PassContext& context)
      : graph_(graph), rewrite_(graph, context.limit), rules_(context.options.precision) {}

  Result<std::vector<ir::Edit>> run() {
    const NodeId nodes = static_cast<NodeId>(graph_.node_count());
    for (NodeId n = 0; n < nodes && !rewrite_.exhausted(); ++n) {
      if (graph_.node(n).op != &ops::linear_op || !is_wide(n)) continue;
      const Precision precision = precision_of(graph_, n, rules_);
      if (precision != Precision::keep) TESSERA_TRY(lower(n, precision));
    }
    const std::vector<ir::Edit> journal = rewrite_.journal();
    if (graph_.node_count() > nodes) TESSERA_TRY(rewrite_.finish());
    return journal;
  }

 private:
  bool is_wide(NodeId n) const {
    for (ValueId v : graph_.operands(n))
      if (v != ir::kNoValue && graph_.type(v)->dtype != DType::f32) return false;
    return true;
  }

  // The constant behind views, as the reference sees it; nothing when there is none.
  Result<std::optional<ir::RefValue>> constant(ValueId v) const {
    const NodeId def = graph_.value(v).def;
    if (def == ir::kNoNode) return std::optional<ir::RefValue>();
    const ir::Node& node = graph_.node(def);
    if (node.op == &ir::core::constant) {
      const auto id = static_cast<uint32_t>(std::get<int64_t>(node.attrs->values[0]));
      TESSERA_ASSIGN(ir::RefValue value, ir::to_ref(Value(graph_.context().constant(id))));
      return std::optional(std::move(value));
    }
    if (node.op != &ir::core::view && node.op != &ir::core::copy) return std::optional<ir::RefValue>();
    TESSERA_ASSIGN(std::optional<ir::RefValue> base, constant(graph_.operands(def)[0]));
    if (!base) return base;
    TESSERA_ASSIGN(std::vector<ir::RefValue> results, evaluate(*node.op, *node.attrs, *base, {graph_.type(v)}));
    return std::optional(std::move(results[0]));
  }

  Result<std::vector<ir::RefValue>> evaluate(const ir::OpDef& op, const ir::Attrs& attrs, const ir::RefValue& x,
                                             std::vector<ir::TypeRef> types) const {
    const ir::RefValue* const operands[] = {&x};
    const DimBindings none;
    return ir::Interpreter().run_node(op, attrs, operands, types, {}, &graph_.context(), &none);
  }

  Result<X> held(const ir::RefValue& value) {
    TESSERA_ASSIGN(Value made, ir::from_ref(value));
    return rewrite_.builder().constant(*made.tensor());
  }

  Status lower(NodeId n, Precision precision) {
    const ValueId x = graph_.operands(n)[0], w = graph_.operands(n)[1];
    const ValueId bias = graph_.operands(n).size() > 2 ? graph_.operands(n)[2] : ir::kNoValue;
    ir::Builder& b = rewrite_.builder();
    b.set_location(graph_.node(n).location);
    if (precision == Precision::int8_dynamic) {
      TESSERA_ASSIGN(const Weights* weights, integers_of(w));
      if (weights == nullptr) return {};
      auto [at, fresh] = rows_.try_emplace(x);
      if (fresh) at->second = b.add(ops::quantize_rows_op, std::vector<X>{b.wrap(x)});
      const X none = {&b, ir::kNoValue};
      const X y = b.add1(ops::linear_quantized_op,
                         {at->second[0], weights->values, at->second[1], weights->scales, none, none, b.wrap(bias)});
      TESSERA_TRY(b.status());
      rewrite_.replace(graph_.result(n, 0), y.id, "int8_dynamic");
      return {};
    }
    const DType narrow = precision == Precision::bf16 ? DType::bf16 : DType::f16;
    auto [at, fresh] = narrowed_.try_emplace({w, narrow}, X{&b, ir::kNoValue});
    if (fresh) {
      TESSERA_ASSIGN(const std::optional<ir::RefValue> value, constant(w));
      if (!value) return {};
      const ir::Attrs attrs{{static_cast<int64_t>(narrow), int64_t{1}, int64_t{0}}};
      TESSERA_ASSIGN(std::vector<ir::RefValue> results,
                     evaluate(ops::cast_op, attrs, *value, {graph_.context().tensor(narrow, graph_.type(w)->shape)}));
      TESSERA_ASSIGN(at->second, held(results[0]));
    }
    if (!at->second) return {};
    const X y = b.add1(ops::linear_op, {b.wrap(x), at->second, b.wrap(bias)});
    TESSERA_TRY(b.status());
    rewrite_.replace(graph_.result(n, 0), y.id, precision == Precision::bf16 ? "bf16" : "f16");
    return {};
  }

  // Rows of weights as integers, and a scale each; null when the weights are no constant.
  struct Weights {
    X values, scales;
  };
  Result<const Weights*> integers_of(ValueId w) {
    auto [at, fresh] = integers_.try_emplace(w);
    if (fresh) {
      TESSERA_ASSIGN(const std::optional<ir::RefValue> value, constant(w));
      if (!value) return nullptr;
      const Shape& shape = graph_.type(w)->shape;
      TESSERA_ASSIGN(std::vector<ir::RefValue> results, evaluate(ops::quantize_rows_op, {}, *value,
                                                                 {graph_.context().tensor(DType::i8, shape),
                                                                  graph_.context().tensor(DType::f32, {shape[0], 1})}));
      TESSERA_ASSIGN(at->second.values, held(results[0]));
      TESSERA_ASSIGN(X column, held(results[1]));
      at->second.scales = reshape(column, {shape[0]});
    }
    return at->second.values ? &at->second : nullptr;
  }

  struct Key {
    ValueId value;
    DType dtype;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const { return k.value * 31 + static_cast<size_t>(k.dtype); }
  };

  ir::Graph& graph_;
  ir::Rewrite rewrite_;
  std::span<const PrecisionRule> rules_;
  std::unordered_map<ValueId, ir::Xs> rows_;  // inputs as integers and scales
  std::unordered_map<ValueId, Weights> integers_;
  std::unordered_map<Key, X, KeyHash> narrowed_;
};

}  // namespace

Result<std::vector<ir::Edit>> lower_precision(ir::Graph& graph, const PassContext& context) {
  if (context.options.precision.empty()) return std::vector<ir::Edit>();
  return PrecisionSweep(graph, context).run();
}

}  // namespace tessera::passes
