// Regions: pointwise operators and norms behind a linear layer or a convolution, and among themselves, become one
// operator that works on each block while it lies in cache.
#include <algorithm>
#include <set>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ops/tile.h"
#include "passes/constants.h"
#include "passes/layers.h"
#include "passes/pipeline.h"
#include "passes/tile_draft.h"
#include "passes/uses.h"

namespace tessera::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;
using ir::X;

// A norm of rows that a region can end with.
struct Norm {
  NodeId node = kNoNode;
  std::string_view kind;
  int64_t gain = -1, shift = -1;
  double eps = 1e-5;
};

class Regions {
 public:
  Regions(ir::Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), rewrite_(graph, context.limit), uses_(graph), nodes_(graph.node_count()) {
    taken_.assign(nodes_, false);
  }

  Result<std::vector<ir::Edit>> run() {
    const auto wanted = [&](const ir::OpDef& op) { return !context_.options.targets || context_.options.targets(op); };
    if (wanted(ops::fused_linear_op)) {
      for (NodeId n = 0; n < nodes_ && !rewrite_.exhausted(); ++n)
        if (graph_.node(n).op == &ops::mul_op && !taken_[n]) gate(n);
      for (NodeId n = 0; n < nodes_ && !rewrite_.exhausted(); ++n)
        if (graph_.node(n).op == &ops::linear_op && !taken_[n]) halves(n);
      for (NodeId n = 0; n < nodes_ && !rewrite_.exhausted(); ++n)
        if (graph_.node(n).op == &ops::linear_op && !taken_[n]) anchor(n);
    }
    if (wanted(ops::fused_conv_op))
      for (NodeId n = 0; n < nodes_ && !rewrite_.exhausted(); ++n)
        if (graph_.node(n).op == &ops::conv_op && !taken_[n]) anchor(n);
    if (wanted(ops::pointwise_op))
      for (NodeId n = static_cast<NodeId>(nodes_); n-- > 0 && !rewrite_.exhausted();)
        if (!taken_[n]) leftover(n);
    if (rewrite_.journal().empty() && graph_.node_count() == nodes_) return std::vector<ir::Edit>();
    TESSERA_TRY(rewrite_.finish());
    return rewrite_.journal();
  }

 private:
  bool is_f32(ValueId v) const { return graph_.type(v)->ranked && graph_.type(v)->dtype == DType::f32; }

  bool is_constant(ValueId v) const {
    const NodeId def = graph_.value(v).def;
    if (def != kNoNode && graph_.node(def).op == &ir::core::view) v = graph_.operands(def)[0];
    return constant_at(graph_, v) != nullptr;
  }

  // The value behind all the nodes that only `from` and what is computed from it lead to: one after the other, or paths
  // that part and meet again, as in x sigmoid(x).
  ValueId grow(TileDraft& draft, ValueId from) {
    for (;;) {
      const std::vector<NodeId> next = until_paths_meet({&from, 1});
      TileDraft trial = draft;
      const bool fits = std::all_of(next.begin(), next.end(), [&](NodeId n) { return trial.append(n); });
      if (next.empty() || !fits) return from;
      for (NodeId n : next) draft.append(n);
      from = graph_.result(next.back(), 0);
    }
  }

  // The fewest nodes, operands before users, that read `from` and each other such that only the last one's result is
  // read by others; none when there are no such, or more than a few.
  std::vector<NodeId> until_paths_meet(std::span<const ValueId> from) const {
    constexpr size_t kMost = 16;
    std::vector<NodeId> found;
    std::set<NodeId> open;
    const auto reach = [&](ValueId v) {
      if (uses_.is_output(v)) return false;
      for (NodeId user : uses_.of(v)) open.insert(user);
      return true;
    };
    for (ValueId v : from)
      if (!reach(v)) return {};
    while (!open.empty() && found.size() < kMost) {
      const NodeId n = *open.begin();
      open.erase(open.begin());
      if (n >= nodes_ || taken_[n] || !is_tile_op(graph_, n)) return {};
      found.push_back(n);
      if (open.empty()) return found;
      if (!reach(graph_.result(n, 0))) return {};
    }
    return {};
  }

  // The norm of v's rows that a region which gives v can end with.
  std::optional<Norm> norm_of(ValueId v, TileDraft& draft) {
    if (context_.options.strict || !is_f32(v) || graph_.type(v)->rank() == 0) return std::nullopt;
    for (NodeId n : uses_.of(v)) {
      const ir::Node& node = graph_.node(n);
      const bool layer = node.op == &ops::layer_norm_op;
      if (taken_[n] || (!layer && node.op != &ops::rms_norm_op) || graph_.operands(n)[0] != v) continue;
      const ir::A attrs(*node.op, *node.attrs);
      if (attrs.integer("axes") != 1) continue;
      if (layer && (!uses_.unused(graph_.result(n, 1)) || !uses_.unused(graph_.result(n, 2)))) continue;
      Norm norm{n, layer ? "layer" : "rms", -1, -1, attrs.real("eps")};
      bool fits = true;
      for (size_t i = 1; i < graph_.operands(n).size() && fits; ++i) {
        const ValueId row = graph_.operands(n)[i];
        if (row == kNoValue) continue;
        // Constants cannot depend on what the region gives.
        fits = is_constant(row) && draft.takes(row);
        int64_t& at = i == 1 ? norm.gain : norm.shift;
        if (fits) at = draft.input(row);
        fits = fits && at >= 0;
      }
      if (fits) return norm;
    }
    return std::nullopt;
  }

  struct Anchor {
    const ir::OpDef* op;
    std::vector<X> operands;
    std::vector<ir::AttrValue> attrs;  // those before the program's
    std::vector<NodeId> nodes;
    bool norms;  // whether the operator has the attributes of a norm
  };

  // Puts the operator in the place of `value`, which the draft computes, or of its norm.
  void emit(Anchor anchor, TileDraft& draft, ValueId value, std::string_view rule) {
    const bool bare = draft.steps() == 0;
    const std::optional<Norm> norm = anchor.norms ? norm_of(value, draft) : std::nullopt;
    if (bare && !norm && anchor.nodes.size() <= 1) return;
    const bool kept = norm && uses_.only_user(value) == kNoNode;
    ir::Builder& builder = rewrite_.builder();
    std::vector<NodeId> nodes = anchor.nodes;
    nodes.insert(nodes.end(), draft.nodes().begin(), draft.nodes().end());
    if (norm) nodes.push_back(norm->node);
    std::sort(nodes.begin(), nodes.end());
    std::vector<ir::LocId> places;
    for (NodeId n : nodes) places.push_back(graph_.node(n).location);
    builder.set_location(graph_.context().covering(places));
    for (ValueId v : draft.operands()) anchor.operands.push_back(builder.wrap(v));
    anchor.attrs.push_back(draft.program());
    anchor.attrs.push_back(kept ? draft.number_of(value) : int64_t{-1});
    anchor.attrs.push_back(norm ? ir::word_index(ops::kNormAttr.words, norm->kind) : int64_t{0});
    if (anchor.norms) {
      anchor.attrs.push_back(norm ? norm->gain : int64_t{-1});
      anchor.attrs.push_back(norm ? norm->shift : int64_t{-1});
      anchor.attrs.push_back(norm ? norm->eps : 1e-5);
    }
    const size_t guards = graph_.guards.size();
    const ir::Xs results = builder.add(*anchor.op, anchor.operands, std::move(anchor.attrs));
    const bool fits = builder.ok() && graph_.guards.size() == guards;
    (void)builder.take_status();  // what does not fit stays as it is
    graph_.guards.resize(guards);
    if (!fits || !rewrite_.replace(norm ? graph_.result(norm->node, 0) : value, results[0].id, rule)) return;
    if (kept) rewrite_.replace(value, results[1].id, "kept");
    for (NodeId n : nodes) taken_[n] = true;
  }

  // A linear layer or convolution and what follows it.
  void anchor(NodeId n) {
    const ir::Node& node = graph_.node(n);
    const ValueId y = graph_.result(n, 0);
    if (!is_f32(y)) return;
    ir::Builder& builder = rewrite_.builder();
    Anchor anchor{node.op == &ops::conv_op ? &ops::fused_conv_op : &ops::fused_linear_op, {}, {}, {n}, true};
    anchor.norms = anchor.op == &ops::fused_linear_op;
    for (ValueId v : graph_.operands(n)) anchor.operands.push_back(builder.wrap(v));
    while (anchor.operands.size() < 3) anchor.operands.push_back(builder.wrap(kNoValue));
    if (node.op == &ops::conv_op) {
      anchor.attrs = node.attrs->values;
    } else {
      anchor.attrs = {int64_t{1}};
    }
    TileDraft draft(graph_, graph_.type(y), {y});
    const ValueId last = grow(draft, y);
    emit(std::move(anchor), draft, last, "tile_region");
  }

  // The linear layer that v comes from through nodes of one operand, which nobody else reads; the nodes, first first.
  NodeId layer_behind(ValueId v, std::vector<NodeId>& through) const {
    for (;;) {
      const NodeId def = graph_.value(v).def;
      if (def == kNoNode || def >= nodes_ || taken_[def] || uses_.only_user(v) == kNoNode) return kNoNode;
      if (graph_.node(def).op == &ops::linear_op) return def;
      if (!is_tile_op(graph_, def) || graph_.node(def).n_operands != 1) return kNoNode;
      through.insert(through.begin(), def);
      v = graph_.operands(def)[0];
    }
  }

  // f(x W1) g(x W2): both products at once.
  void gate(NodeId n) {
    std::vector<NodeId> through[2];
    NodeId layers[2];
    for (size_t i = 0; i < 2; ++i) {
      layers[i] = layer_behind(graph_.operands(n)[i], through[i]);
      if (layers[i] == kNoNode) return;
    }
    if (layers[0] == layers[1]) return;
    const ValueId first = graph_.result(layers[0], 0), second = graph_.result(layers[1], 0);
    if (!is_f32(first) || graph_.operands(layers[0])[0] != graph_.operands(layers[1])[0]) return;
    if (!ir::provably_equal(graph_.context(), graph_.type(first), graph_.type(second))) return;
    TileDraft draft(graph_, graph_.type(first), {first, second});
    for (const std::vector<NodeId>& nodes : through)
      for (NodeId node : nodes)
        if (!draft.append(node)) return;
    if (!draft.append(n)) return;
    const ValueId last = grow(draft, graph_.result(n, 0));
    const std::optional<ir::Xs> weights = join_layers(rewrite_.builder(), std::vector<NodeId>{layers[0], layers[1]});
    if (!weights) return;
    ir::Xs operands = {rewrite_.builder().wrap(graph_.operands(layers[0])[0])};
    operands.insert(operands.end(), weights->begin(), weights->end());
    emit({&ops::fused_linear_op, operands, {int64_t{2}}, {layers[0], layers[1]}, true}, draft, last, "gate");
  }

  // f(y, z) where y and z are the halves of one product, or its even and odd outputs.
  void halves(NodeId n) {
    const ValueId product = graph_.result(n, 0);
    if (!is_f32(product) || uses_.is_output(product) || uses_.of(product).size() != 2) return;
    ValueId parts[2] = {kNoValue, kNoValue};
    int64_t stride = 0;
    for (NodeId user : uses_.of(product)) {
      const std::optional<Half> half = half_of(user);
      if (!half || (stride != 0 && half->stride != stride) || parts[half->part] != kNoValue) return;
      stride = half->stride;
      parts[half->part] = graph_.result(user, 0);
    }
    TileDraft draft(graph_, graph_.type(parts[0]), {parts[0], parts[1]});
    const std::vector<NodeId> meeting = until_paths_meet(parts);
    if (meeting.empty() || !std::all_of(meeting.begin(), meeting.end(), [&](NodeId m) { return draft.append(m); }))
      return;
    const ValueId last = grow(draft, graph_.result(meeting.back(), 0));
    ir::Xs operands;
    for (ValueId v : graph_.operands(n)) operands.push_back(rewrite_.builder().wrap(v));
    operands.resize(3, rewrite_.builder().wrap(kNoValue));
    if (stride == 2) {
      const std::optional<ir::Xs> weights = even_outputs_first(rewrite_.builder(), n);
      if (!weights) return;
      operands[1] = (*weights)[0];
      operands[2] = (*weights)[1];
    }
    emit({&ops::fused_linear_op, operands, {int64_t{2}}, {n}, true}, draft, last, "gate");
  }

  // The part that a view takes of a product's outputs: every other one, or half of them.
  struct Half {
    size_t part;
    int64_t stride;
  };
  std::optional<Half> half_of(NodeId n) const {
    const ir::Node& node = graph_.node(n);
    if (node.op != &ir::core::view) return std::nullopt;
    const Shape& shape = graph_.type(graph_.operands(n)[0])->shape;
    if (shape.empty() || !shape.back().is_const() || shape.back().value() % 2 != 0) return std::nullopt;
    const int64_t size = shape.back().value() / 2;
    const auto& view = std::get<ir::View>(node.attrs->values[0]);
    for (const int64_t stride : {1, 2})
      for (const size_t part : {0, 1}) {
        const int64_t start = static_cast<int64_t>(part) * (stride == 1 ? size : 1);
        const ir::View half = ir::slice_view(shape, static_cast<int>(shape.size()) - 1, start, stride, size);
        if (ir::normalised(half) == view) return Half{part, stride};
      }
    return std::nullopt;
  }

  // What no anchor took: a pointwise operator or a norm, with the pointwise operators that only it needs.
  void leftover(NodeId n) {
    const ir::Node& node = graph_.node(n);
    const bool norm = node.op == &ops::layer_norm_op || node.op == &ops::rms_norm_op;
    NodeId root = n;
    if (norm) {
      root = graph_.value(graph_.operands(n)[0]).def;
      if (root == kNoNode || taken_[root]) return;
    }
    const ir::TypeRef type = graph_.type(graph_.result(root, 0));
    if (!is_tile_op(graph_, root) || !type->ranked) return;
    const bool half = type->dtype == DType::f16 || type->dtype == DType::bf16;
    if (type->dtype != DType::f32 && (!half || context_.options.strict)) return;
    // Operands before users, so that the program can be written down in the order of the nodes.
    std::set<NodeId> region = {root};
    std::vector<NodeId> open = {root};
    while (!open.empty()) {
      const NodeId user = open.back();
      open.pop_back();
      for (ValueId v : graph_.operands(user)) {
        const NodeId def = v == kNoValue ? kNoNode : graph_.value(v).def;
        if (def == kNoNode || region.contains(def) || taken_[def] || !is_tile_op(graph_, def)) continue;
        const auto users = uses_.of(v);
        if (uses_.is_output(v) || graph_.contents.contains(v)) continue;
        if (!ir::provably_equal(graph_.context(), graph_.type(v), type)) continue;
        if (!std::all_of(users.begin(), users.end(), [&](NodeId u) { return region.contains(u); })) continue;
        region.insert(def);
        open.push_back(def);
      }
    }
    // The largest part of it that a program holds: from the end.
    for (;;) {
      TileDraft draft(graph_, type, {});
      const bool fits = std::all_of(region.begin(), region.end(), [&](NodeId m) { return draft.append(m); });
      if (fits) {
        if (region.size() < 2 && !norm) return;
        return emit({&ops::pointwise_op, {}, {}, {}, true}, draft, graph_.result(root, 0),
                    norm ? "row_region" : "pointwise_region");
      }
      region.erase(region.begin());
      if (region.empty()) return;
    }
  }

  ir::Graph& graph_;
  const PassContext& context_;
  ir::Rewrite rewrite_;
  Uses uses_;
  size_t nodes_;
  std::vector<bool> taken_;
};

}  // namespace

Result<std::vector<ir::Edit>> form_regions(ir::Graph& graph, const PassContext& context) {
  return Regions(graph, context).run();
}

}  // namespace tessera::passes
