// Folding: values that are known before the run become constants, sizes become `dims`.
#include <algorithm>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ir/interpreter.h"
#include "ops/math.h"
#include "passes/band.h"
#include "passes/pipeline.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

using ir::NodeId;
using ir::ValueId;

// A view of a weight costs nothing and keeps it in the mapped file; small views hide literals from the patterns.
constexpr int64_t kFoldedViewElements = 1024;
// A composite's meaning may hold far more elements in between than its operands have.
constexpr int64_t kFoldedCompositeElements = int64_t{1} << 16;

// Elements of a tensor type with constant sizes; -1 otherwise.
int64_t constant_count(const ir::Type& type) {
  if (!type.is_tensor() || !type.ranked || type.dtype == DType::string) return -1;
  Dims shape;
  for (Dim d : type.shape) {
    if (!d.is_const()) return -1;
    shape.push_back(d.value());
  }
  const Result<int64_t> count = element_count(shape);
  return count ? *count : -1;
}

// Symbols that the inputs bind before anything runs. Others come from results, and a size that names them needs the
// node that binds them.
std::vector<bool> input_symbols(const ir::Graph& graph) {
  std::vector<bool> bound(static_cast<size_t>(graph.dims().symbol_count()), false);
  for (ValueId v : graph.inputs)
    for (Dim d : graph.type(v)->shape)
      if (std::optional<int> symbol = d.is_const() ? std::nullopt : graph.dims().symbol_index(d))
        bound[static_cast<size_t>(*symbol)] = true;
  return bound;
}

// True for constants, `dims`, and what renames or converts their elements.
bool already_sizes(const ir::Graph& graph, ValueId v) {
  while (graph.value(v).def != ir::kNoNode) {
    const ir::Node& node = graph.node(graph.value(v).def);
    if (node.op == &ir::core::dims) return true;
    if (node.op != &ir::core::view && node.op != &ir::core::copy && node.op != &ops::cast_op) return false;
    v = graph.operands(graph.value(v).def)[0];
  }
  return false;
}

ir::X known_value(ir::Builder& builder, const ir::Type& type, const Shape& elements, bool constant) {
  if (!constant) return cast(reshape(builder.sizes(elements), type.shape), type.dtype);
  Dims shape;
  for (Dim d : type.shape) shape.push_back(d.value());
  Result<Tensor> tensor = Tensor::make(type.dtype, std::move(shape));
  if (!tensor) {
    builder.fail_with(std::move(tensor.error()));
    return {&builder, ir::kNoValue};
  }
  for (size_t i = 0; i < elements.size(); ++i)
    encode_int(type.dtype, tensor->mutable_data(), static_cast<int64_t>(i), elements[i].value());
  return builder.constant(std::move(*tensor));
}

// The results of a node whose operands are all constants; empty when it is not to be folded.
Result<std::vector<Tensor>> evaluate(const ir::Rewrite& rewrite, const ir::Graph& graph, NodeId n,
                                     const PassContext& context) {
  const ir::Node& node = graph.node(n);
  std::vector<Tensor> none;
  // Weights stay as small as they are stored.
  if (node.op == &ops::dequantize_op) return none;
  if (!node.op->pure || node.n_regions > 0 || node.n_operands == 0 || node.op == &ir::core::constant) return none;
  for (ValueId operand : graph.operands(n))
    if (operand != ir::kNoValue && defined_by(graph, rewrite.resolve(operand), ir::core::constant) == nullptr)
      return none;
  int64_t total = 0;
  std::vector<ir::TypeRef> types;
  for (int i = 0; i < node.n_results; ++i) {
    const int64_t count = constant_count(*graph.type(graph.result(n, i)));
    if (count < 0) return none;
    total += count;
    types.push_back(graph.type(graph.result(n, i)));
  }
  if (node.op == &ir::core::view && total > kFoldedViewElements) return none;
  std::vector<const Tensor*> tensors;
  for (ValueId operand : graph.operands(n)) {
    const ValueId v = rewrite.resolve(operand);
    if (v == ir::kNoValue) {
      tensors.push_back(nullptr);
      continue;
    }
    const auto id = std::get<int64_t>(graph.node(graph.value(v).def).attrs->values[0]);
    tensors.push_back(&graph.context().constant(static_cast<uint32_t>(id)));
    if (tensors.back()->dtype() == DType::string || is_block(tensors.back()->dtype())) return none;
    total += tensors.back()->count();
  }
  const int64_t limit = context.options.fold_elements;
  if (total > (node.op->is_primitive() ? limit : std::min(limit, kFoldedCompositeElements))) return none;
  if (context.folds_left != nullptr) {
    if (total > *context.folds_left) return none;
    *context.folds_left -= total;
  }

  std::vector<ir::RefValue> operands(tensors.size());
  std::vector<const ir::RefValue*> pointers(tensors.size(), nullptr);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] == nullptr) continue;
    TESSERA_ASSIGN(operands[i], ir::to_ref(*tensors[i]));
    pointers[i] = &operands[i];
  }
  // What cannot be computed reports itself when it is run, where the model may never come.
  Result<std::vector<ir::RefValue>> results =
      ir::Interpreter().run_node(*node.op, *node.attrs, pointers, types, {}, &graph.context(), nullptr);
  if (!results) return none;
  std::vector<Tensor> folded;
  for (const ir::RefValue& result : *results) {
    TESSERA_ASSIGN(Tensor tensor, ir::to_tensor(result.array()));
    folded.push_back(std::move(tensor));
  }
  return folded;
}

}  // namespace

Result<std::vector<ir::Edit>> fold_shapes(ir::Graph& graph, const PassContext& context) {
  ir::Rewrite rewrite(graph, context.limit);
  const std::vector<bool> bound = input_symbols(graph);
  const size_t count = graph.value_count();
  for (ValueId v = 0; v < count && !rewrite.exhausted(); ++v) {
    const auto known = graph.contents.find(v);
    if (known == graph.contents.end() || graph.value(v).def == ir::kNoNode) continue;
    const Shape elements = known->second;
    const bool constant = std::all_of(elements.begin(), elements.end(), [](Dim d) { return d.is_const(); });
    if (constant ? defined_by(graph, v, ir::core::constant) != nullptr : already_sizes(graph, v)) continue;
    if (!graph.node(graph.value(v).def).op->pure || constant_count(*graph.type(v)) < 0) continue;
    bool available = true;
    for (Dim d : elements)
      if (!d.is_const())
        for (int symbol : graph.dims().symbols_of(d)) available &= bound[static_cast<size_t>(symbol)];
    if (!available) continue;
    rewrite.builder().set_location(graph.node(graph.value(v).def).location);
    const ir::X folded = known_value(rewrite.builder(), *graph.type(v), elements, constant);
    TESSERA_TRY(rewrite.builder().take_status());
    rewrite.replace(v, folded.id, "shape");
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

Result<std::vector<ir::Edit>> fold_constants(ir::Graph& graph, const PassContext& context) {
  ir::Rewrite rewrite(graph, context.limit);
  const size_t count = graph.node_count();
  for (NodeId n = 0; n < count && !rewrite.exhausted(); ++n) {
    TESSERA_ASSIGN(std::vector<Tensor> tensors, evaluate(rewrite, graph, n, context));
    rewrite.builder().set_location(graph.node(n).location);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const ir::X folded = rewrite.builder().constant(std::move(tensors[i]));
      TESSERA_TRY(rewrite.builder().take_status());
      rewrite.replace(graph.result(n, static_cast<int>(i)), folded.id, "constant");
    }
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

}  // namespace tessera::passes
