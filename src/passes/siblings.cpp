// Linear layers: those of one input become one, and reshapes of rows move behind them.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ops/math.h"
#include "passes/constants.h"
#include "passes/layers.h"
#include "passes/parts.h"
#include "passes/pipeline.h"
#include "passes/uses.h"

namespace tessera::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;
using ir::X;

// Layers that lie further apart are not merged: the results of the later ones would have to be kept until then.
constexpr NodeId kNear = 64;

// A weight [N, K]: a constant, or the transpose of one.
struct Weight {
  const Tensor* tensor = nullptr;
  bool transposed = false;
};

Weight weight_of(const ir::Graph& graph, ValueId w) {
  if (const Tensor* tensor = constant_at(graph, w)) return {tensor->rank() == 2 ? tensor : nullptr, false};
  const NodeId def = graph.value(w).def;
  if (def == kNoNode || graph.node(def).op != &ir::core::view) return {};
  const Tensor* tensor = constant_at(graph, graph.operands(def)[0]);
  if (tensor == nullptr || tensor->rank() != 2) return {};
  const Shape base = graph.type(graph.operands(def)[0])->shape;
  const int swapped[] = {1, 0};
  if (!(std::get<ir::View>(graph.node(def).attrs->values[0]) == ir::normalised(ir::transpose_view(base, swapped))))
    return {};
  return {tensor, true};
}

// Matrices of equal width above each other, or of equal height beside each other.
std::optional<Tensor> stack(std::span<const Tensor* const> parts, bool beside) {
  int64_t rows = beside ? parts[0]->shape()[0] : 0, columns = beside ? 0 : parts[0]->shape()[1];
  for (const Tensor* part : parts) (beside ? columns : rows) += part->shape()[beside ? 1 : 0];
  Result<Tensor> made = Tensor::make(parts[0]->dtype(), {rows, columns});
  if (!made) return std::nullopt;
  const auto bytes = static_cast<size_t>(bits(parts[0]->dtype()) / 8);
  auto* to = static_cast<std::byte*>(made->mutable_data());
  for (int64_t row = 0; row < (beside ? rows : 1); ++row)
    for (const Tensor* part : parts) {
      const size_t run = bytes * static_cast<size_t>(beside ? part->shape()[1] : part->count());
      std::memcpy(to, static_cast<const std::byte*>(part->data()) + static_cast<size_t>(row) * run, run);
      to += run;
    }
  return std::move(*made);
}

// The matrix with its even rows, or columns for axis 1, before its odd ones.
std::optional<Tensor> evens_first(const Tensor& matrix, int axis) {
  Result<Tensor> made = Tensor::make(matrix.dtype(), matrix.shape());
  if (!made) return std::nullopt;
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1], count = axis == 0 ? rows : columns;
  const auto bytes = static_cast<size_t>(bits(matrix.dtype()) / 8);
  const auto run = axis == 0 ? bytes * static_cast<size_t>(columns) : bytes;
  const auto* from = static_cast<const std::byte*>(matrix.data());
  auto* to = static_cast<std::byte*>(made->mutable_data());
  for (int64_t outer = 0; outer < (axis == 0 ? 1 : rows); ++outer)
    for (int64_t i = 0; i < count; ++i, to += run) {
      const int64_t half = (count + 1) / 2, source = i < half ? 2 * i : 2 * (i - half) + 1;
      std::memcpy(to, from + static_cast<size_t>(outer * count + source) * run, run);
    }
  return std::move(*made);
}

// Whether everything that reads v, views looked through, reads it through any strides.
bool read_strided(const ir::Graph& graph, const Uses& uses, const PipelineOptions& options, ValueId v) {
  if (uses.is_output(v) || !options.strided) return false;
  for (NodeId n : uses.of(v)) {
    const ir::Node& node = graph.node(n);
    if (node.op == &ir::core::view) {
      if (!read_strided(graph, uses, options, graph.result(n, 0))) return false;
      continue;
    }
    const auto operands = graph.operands(n);
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i] == v && !options.strided(*node.op, i)) return false;
  }
  return true;
}

// The view that takes apart the leading axes of x's base, which a layer treats as rows anyway; kNoValue for any other.
ValueId rows_behind(const ir::Graph& graph, ValueId x) {
  const NodeId def = graph.value(x).def;
  if (def == kNoNode || graph.node(def).op != &ir::core::view) return kNoValue;
  const ValueId base = graph.operands(def)[0];
  const ir::Type& type = *graph.type(base);
  const Shape& shape = graph.type(x)->shape;
  if (!type.ranked || type.shape.empty() || shape.empty() || !(type.shape.back() == shape.back())) return kNoValue;
  const std::optional<ir::View> reshaped = ir::reshape_view(type.shape, shape);
  if (!reshaped || !(ir::normalised(*reshaped) == std::get<ir::View>(graph.node(def).attrs->values[0])))
    return kNoValue;
  return base;
}

// What two rotations turn, as one.
struct Turned {
  ValueId base;
  ir::View view;
  int axis;      // along which one's stands behind the other's
  bool swapped;  // the first one's behind the second one's
};

std::optional<Turned> turned_together(const ir::Graph& graph, const NodeId (&pair)[2]) {
  const auto a = graph.operands(pair[0]), b = graph.operands(pair[1]);
  if (graph.node(pair[0]).attrs != graph.node(pair[1]).attrs || a[1] != b[1] || a[2] != b[2]) return std::nullopt;
  const Part parts[2] = {part_of(graph, a[0]), part_of(graph, b[0])};
  const int rank = graph.type(a[0])->rank();
  if (parts[0].base != parts[1].base || graph.type(b[0])->rank() != rank) return std::nullopt;
  for (int axis = 0; axis + 1 < rank; ++axis) {
    // The tables are the same all along it.
    const bool shared = std::all_of(a.begin() + 1, a.end(), [&](ValueId table) {
      const int own = axis - rank + graph.type(table)->rank();
      return own < 0 || graph.type(table)->shape[static_cast<size_t>(own)].is(1);
    });
    if (!shared) continue;
    const Part other[2] = {parts[1], parts[0]};
    if (std::optional<ir::View> view = adjacent_parts(parts, static_cast<size_t>(axis)))
      return Turned{parts[0].base, std::move(*view), axis, false};
    if (std::optional<ir::View> view = adjacent_parts(other, static_cast<size_t>(axis)))
      return Turned{parts[0].base, std::move(*view), axis, true};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ir::Xs> join_layers(ir::Builder& builder, std::span<const NodeId> layers) {
  const ir::Graph& graph = builder.graph();
  std::vector<const Tensor*> weights;
  bool transposed = false, biased = false;
  for (NodeId n : layers) {
    const Weight weight = weight_of(graph, graph.operands(n)[1]);
    if (weight.tensor == nullptr || bits(weight.tensor->dtype()) % 8 != 0) return std::nullopt;
    if (!weights.empty() && (weight.transposed != transposed || weight.tensor->dtype() != weights[0]->dtype()))
      return std::nullopt;
    transposed = weight.transposed;
    weights.push_back(weight.tensor);
    biased = biased || graph.operands(n).size() > 2;
  }
  std::vector<Tensor> biases;
  for (size_t i = 0; biased && i < layers.size(); ++i) {
    const auto operands = graph.operands(layers[i]);
    const int64_t outputs = weights[i]->shape()[transposed ? 1 : 0];
    if (operands.size() > 2) {
      const Tensor* bias = constant_at(graph, operands[2]);
      if (bias == nullptr || bias->dtype() != weights[0]->dtype() || bias->shape() != Dims{outputs})
        return std::nullopt;
      biases.push_back(bias->reshaped({1, outputs}));
    } else {
      Result<Tensor> zeros = Tensor::make(weights[0]->dtype(), {1, outputs});
      if (!zeros) return std::nullopt;
      std::memset(zeros->mutable_data(), 0, zeros->bytes());
      biases.push_back(std::move(*zeros));
    }
  }
  std::optional<Tensor> weight = stack(weights, transposed);
  if (!weight) return std::nullopt;
  X w = builder.constant(std::move(*weight));
  if (transposed) w = transpose(w, {1, 0});
  X b = builder.wrap(kNoValue);
  if (biased) {
    std::vector<const Tensor*> parts;
    for (const Tensor& bias : biases) parts.push_back(&bias);
    std::optional<Tensor> bias = stack(parts, true);
    if (!bias) return std::nullopt;
    b = builder.constant(bias->reshaped({bias->count()}));
  }
  return ir::Xs{w, b};
}

std::optional<ir::Xs> even_outputs_first(ir::Builder& builder, NodeId layer) {
  const auto operands = builder.graph().operands(layer);
  const Weight weight = weight_of(builder.graph(), operands[1]);
  if (weight.tensor == nullptr || bits(weight.tensor->dtype()) % 8 != 0) return std::nullopt;
  std::optional<Tensor> w = evens_first(*weight.tensor, weight.transposed ? 1 : 0);
  if (!w) return std::nullopt;
  ir::Xs made = {builder.constant(std::move(*w)), builder.wrap(kNoValue)};
  if (weight.transposed) made[0] = transpose(made[0], {1, 0});
  if (operands.size() <= 2 || operands[2] == kNoValue) return made;
  const Tensor* bias = constant_at(builder.graph(), operands[2]);
  if (bias == nullptr || bias->rank() != 1) return std::nullopt;
  std::optional<Tensor> b = evens_first(bias->reshaped({bias->count(), 1}), 0);
  if (!b) return std::nullopt;
  made[1] = builder.constant(b->reshaped({bias->count()}));
  return made;
}

Result<std::vector<ir::Edit>> merge_siblings(ir::Graph& graph, const PassContext& context) {
  ir::Rewrite rewrite(graph, context.limit);
  const Uses uses(graph);
  const auto count = static_cast<NodeId>(graph.node_count());
  std::unordered_map<ValueId, std::vector<NodeId>> layers;  // by input
  std::vector<ValueId> inputs;                              // in the order of their first layer
  for (NodeId n = 0; n < count; ++n) {
    if (graph.node(n).op != &ops::linear_op || !read_strided(graph, uses, context.options, graph.result(n, 0)))
      continue;
    std::vector<NodeId>& list = layers[graph.operands(n)[0]];
    if (list.empty()) inputs.push_back(graph.operands(n)[0]);
    list.push_back(n);
  }
  ir::Builder& builder = rewrite.builder();
  for (ValueId x : inputs) {
    const std::vector<NodeId>& list = layers[x];
    for (size_t begin = 0, end; begin < list.size() && !rewrite.exhausted(); begin = end) {
      for (end = begin + 1; end < list.size() && list[end] - list[begin] <= kNear; ++end) continue;
      if (end - begin < 2) continue;
      const std::span<const NodeId> group(list.data() + begin, end - begin);
      const std::optional<ir::Xs> weights = join_layers(builder, group);
      if (!weights) continue;
      std::vector<ir::LocId> places;
      for (NodeId n : group) places.push_back(graph.node(n).location);
      builder.set_location(graph.context().covering(places));
      const X merged = builder.add(ops::linear_op, ir::Xs{builder.wrap(x), (*weights)[0], (*weights)[1]})[0];
      Dim at = 0;
      for (NodeId n : group) {
        const ValueId old = graph.result(n, 0);
        const Dim outputs = graph.type(old)->shape.back();
        rewrite.replace(old, slice(merged, -1, at, outputs).id, "siblings");
        at = at + outputs;
      }
      TESSERA_TRY(builder.take_status());
    }
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

Result<std::vector<ir::Edit>> merge_rotations(ir::Graph& graph, const PassContext& context) {
  ir::Rewrite rewrite(graph, context.limit);
  ir::Builder& builder = rewrite.builder();
  const auto count = static_cast<NodeId>(graph.node_count());
  NodeId before = kNoNode;
  for (NodeId n = 0; n < count && !rewrite.exhausted(); ++n) {
    if (graph.node(n).op != &ops::rotary_op) continue;
    const NodeId pair[2] = {before, n};
    before = n;
    if (pair[0] == kNoNode || n - pair[0] > kNear) continue;
    const std::optional<Turned> all = turned_together(graph, pair);
    if (!all) continue;
    const size_t guards = graph.guards.size();
    const ValueId old[2] = {graph.result(pair[all->swapped ? 1 : 0], 0), graph.result(pair[all->swapped ? 0 : 1], 0)};
    const ir::LocId places[2] = {graph.node(pair[0]).location, graph.node(n).location};
    builder.set_location(graph.context().covering(places));
    const auto operands = graph.operands(n);
    const ir::Xs given = {builder.view(builder.wrap(all->base), all->view), builder.wrap(operands[1]),
                          builder.wrap(operands[2])};
    const X y = builder.add(ops::rotary_op, given, graph.node(n).attrs->values)[0];
    Dim at = 0;
    for (ValueId v : old) {
      const Dim size = graph.type(v)->shape[static_cast<size_t>(all->axis)];
      if (builder.ok() && graph.guards.size() == guards)
        rewrite.replace(v, slice(y, all->axis, at, size).id, "rotations");
      at = at + size;
    }
    graph.guards.resize(guards);
    TESSERA_TRY(builder.take_status());
    before = kNoNode;
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

Result<std::vector<ir::Edit>> lift_rows(ir::Graph& graph, const PassContext& context) {
  ir::Rewrite rewrite(graph, context.limit);
  const auto count = static_cast<NodeId>(graph.node_count());
  ir::Builder& builder = rewrite.builder();
  for (NodeId n = 0; n < count && !rewrite.exhausted(); ++n) {
    if (graph.node(n).op != &ops::linear_op) continue;
    const auto operands = graph.operands(n);
    const ValueId rows = rows_behind(graph, operands[0]);
    if (rows == kNoValue) continue;
    const ValueId old = graph.result(n, 0);
    ir::Xs lifted = {builder.wrap(rows)};
    for (ValueId v : operands.subspan(1)) lifted.push_back(builder.wrap(v));
    const size_t guards = graph.guards.size();
    builder.set_location(graph.node(n).location);
    const X y = builder.add(ops::linear_op, lifted)[0];
    const std::optional<ir::View> back =
        builder.ok() ? ir::reshape_view(y.shape(), graph.type(old)->shape) : std::nullopt;
    if (back) rewrite.replace(old, builder.view(y, *back).id, "rows");
    (void)builder.take_status();
    graph.guards.resize(guards);
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

}  // namespace tessera::passes
