// Quantized and half-precision weights meet the operators that read them as they are stored.
#include "ops/weights.h"

#include "ops/math.h"
#include "passes/pipeline.h"

namespace tessera::passes {
namespace {

using ir::NodeId;
using ir::ValueId;

// The constant in blocks or halves that v holds as f32; kNoValue when v is something else.
ValueId stored(const ir::Rewrite& rewrite, const ir::Graph& graph, ValueId v) {
  const NodeId def = graph.value(rewrite.resolve(v)).def;
  if (def == ir::kNoNode || (graph.node(def).op != &ops::dequantize_op && graph.node(def).op != &ops::cast_op))
    return ir::kNoValue;
  const ValueId weights = rewrite.resolve(graph.operands(def)[0]);
  const DType from = graph.type(weights)->dtype, to = graph.type(v)->dtype;
  const NodeId source = graph.value(weights).def;
  const bool constant = source != ir::kNoNode && graph.node(source).op == &ir::core::constant;
  const bool half = from == DType::f16 || from == DType::bf16;
  return constant && to == DType::f32 && (half || is_block(from)) ? weights : ir::kNoValue;
}

// The product for weights of this type. Blocks and bf16 round x, unless it is to stay exact.
ir::X product(ir::Builder& builder, DType weights, const PipelineOptions& options, const ir::Xs& operands) {
  const bool exact = options.strict || options.exact_activations;
  if (weights == DType::f16 || (weights == DType::bf16 && !exact)) return builder.add(ops::linear_op, operands)[0];
  if (exact) return builder.add(ops::dequant_linear_op, operands)[0];
  return builder.add(ops::quant_linear_op, operands, {options.deterministic ? 0 : ops::kFineRows})[0];
}

}  // namespace

Result<std::vector<ir::Edit>> use_stored_weights(ir::Graph& graph, const PassContext& context) {
  ir::Rewrite rewrite(graph, context.limit);
  ir::Builder& builder = rewrite.builder();
  const size_t count = graph.node_count();
  for (NodeId n = 0; n < count && !rewrite.exhausted(); ++n) {
    const ir::Node& node = graph.node(n);
    const auto operands = graph.operands(n);
    const bool layer = node.op == &ops::linear_op;
    if (!layer && node.op != &ops::gather_op) continue;
    const ValueId w = stored(rewrite, graph, operands[layer ? 1 : 0]);
    if (w == ir::kNoValue || graph.type(w)->rank() != 2) continue;
    builder.set_location(node.location);
    ir::X made;
    if (layer) {
      const ValueId b = operands.size() > 2 ? rewrite.resolve(operands[2]) : ir::kNoValue;
      made = product(builder, graph.type(w)->dtype, context.options,
                     {builder.wrap(rewrite.resolve(operands[0])), builder.wrap(w), builder.wrap(b)});
    } else if (ir::A(*node.op, *node.attrs).integer("axis") == 0) {
      made = builder.add1(ops::embedding_op, {builder.wrap(w), builder.wrap(rewrite.resolve(operands[1]))});
    } else {
      continue;
    }
    TESSERA_TRY(builder.take_status());
    rewrite.replace(graph.result(n, 0), made.id, layer ? "stored_weights" : "stored_table");
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

}  // namespace tessera::passes
