// A convolution followed by a scale and a shift of each channel, as a batch norm is at inference, takes them into its
// weights.
#include <algorithm>
#include <vector>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ops/ops.h"
#include "passes/constants.h"
#include "passes/pipeline.h"
#include "passes/uses.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

using ir::kNoNode;
using ir::NodeId;
using ir::ValueId;

// y = x scale[c] + shift[c]
struct ChannelAffine {
  std::vector<double> scale, shift;
};

// One number a channel of a value [N, M, *O], from a constant that broadcasts to it along nothing but channels.
std::optional<std::vector<double>> per_channel(const ir::Graph& graph, ValueId v, int rank, int64_t channels) {
  const Tensor* tensor = constant_at(graph, v);
  if (tensor == nullptr || !is_float(tensor->dtype()) || tensor->rank() > rank) return std::nullopt;
  for (int a = 0; a < tensor->rank(); ++a)
    if (tensor->shape()[static_cast<size_t>(a)] != 1 && a - tensor->rank() != 1 - rank) return std::nullopt;
  if (tensor->count() != 1 && tensor->count() != channels) return std::nullopt;
  std::vector<double> numbers;
  for (int64_t c = 0; c < channels; ++c)
    numbers.push_back(decode(tensor->dtype(), tensor->data(), tensor->count() == 1 ? 0 : c));
  return numbers;
}

// Applies what node n does to x; false when that is no scale or shift of channels.
bool apply(const ir::Graph& graph, NodeId n, ValueId x, int rank, ChannelAffine& affine) {
  const ir::Node& node = graph.node(n);
  const auto operands = graph.operands(n);
  const bool add = node.op == &ops::add_op, sub = node.op == &ops::sub_op, mul = node.op == &ops::mul_op;
  if (operands.size() != 2 || operands[0] == operands[1] || !(add || sub || mul || node.op == &ops::div_op))
    return false;
  const bool first = operands[0] == x;
  if (!first && node.op == &ops::div_op) return false;
  const auto channels = static_cast<int64_t>(affine.scale.size());
  const auto numbers = per_channel(graph, operands[first ? 1 : 0], rank, channels);
  if (!numbers) return false;
  for (size_t c = 0; c < numbers->size(); ++c) {
    const double number = (*numbers)[c];
    double &scale = affine.scale[c], &shift = affine.shift[c];
    if (add) shift += number;
    if (sub && first) shift -= number;
    if (sub && !first) scale = -scale, shift = number - shift;
    if (mul) scale *= number, shift *= number;
    if (node.op == &ops::div_op) scale /= number, shift /= number;
  }
  return true;
}

// The operand times one number a row along axis 0, or null when there is not enough memory.
std::optional<Tensor> scaled_channels(const Tensor& w, const std::vector<double>& scale) {
  Result<Tensor> made = Tensor::make(w.dtype(), w.shape());
  if (!made) return std::nullopt;
  const int64_t row = scale.empty() ? 0 : w.count() / static_cast<int64_t>(scale.size());
  for (int64_t i = 0; i < w.count(); ++i)
    encode(w.dtype(), made->mutable_data(), i, decode(w.dtype(), w.data(), i) * scale[static_cast<size_t>(i / row)]);
  return std::move(*made);
}

}  // namespace

Result<std::vector<ir::Edit>> fold_channel_scales(ir::Graph& graph, const PassContext& context) {
  if (context.options.strict) return std::vector<ir::Edit>();  // the weights round elsewhere
  ir::Rewrite rewrite(graph, context.limit);
  const Uses uses(graph);
  const auto count = static_cast<NodeId>(graph.node_count());
  for (NodeId n = 0; n < count && !rewrite.exhausted(); ++n) {
    const ir::Node& node = graph.node(n);
    if (node.op != &ops::conv_op) continue;
    const auto operands = graph.operands(n);
    const Tensor* w = constant_at(graph, operands[1]);
    const Tensor* b = operands.size() > 2 ? constant_at(graph, operands[2]) : nullptr;
    ValueId y = graph.result(n, 0);
    if (w == nullptr || !is_float(w->dtype()) || w->rank() < 3 || (operands.size() > 2 && b == nullptr)) continue;
    const auto channels = static_cast<size_t>(w->shape()[0]);
    ChannelAffine affine{std::vector<double>(channels, 1), std::vector<double>(channels, 0)};
    for (size_t c = 0; b != nullptr && c < channels; ++c)
      affine.shift[c] = decode(b->dtype(), b->data(), static_cast<int64_t>(c));
    std::vector<ir::LocId> places = {node.location};
    const ir::TypeRef type = graph.type(y);
    for (NodeId user = uses.only_user(y); user != kNoNode; user = uses.only_user(y)) {
      if (graph.node(user).n_results != 1 || graph.type(graph.result(user, 0)) != type ||
          !apply(graph, user, y, w->rank(), affine))
        break;
      places.push_back(graph.node(user).location);
      y = graph.result(user, 0);
    }
    if (places.size() == 1) continue;
    std::optional<Tensor> weight = scaled_channels(*w, affine.scale);
    Result<Tensor> bias = Tensor::make(w->dtype(), {static_cast<int64_t>(channels)});
    if (!weight || !bias) continue;
    for (size_t c = 0; c < channels; ++c)
      encode(w->dtype(), bias->mutable_data(), static_cast<int64_t>(c), affine.shift[c]);
    ir::Builder& builder = rewrite.builder();
    builder.set_location(graph.context().covering(places));
    const ir::Xs folded = builder.add(
        ops::conv_op,
        ir::Xs{builder.wrap(operands[0]), builder.constant(std::move(*weight)), builder.constant(std::move(*bias))},
        node.attrs->values);
    TESSERA_TRY(builder.take_status());
    rewrite.replace(y, folded[0].id, "channel_scale");
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

}  // namespace tessera::passes
