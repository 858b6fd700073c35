// If, Loop and Scan: nested graphs become closed regions.
#include <algorithm>
#include <set>

#include "import/onnx/importer.h"
#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

// Gives every region the same captured inputs, behind its `formal` first ones; adds them to the operands.
void close_regions(std::vector<NestedGraph>& regions, const std::vector<size_t>& formal, Xs& operands) {
  Xs captured;
  for (const NestedGraph& region : regions)
    for (const Scope::Capture& c : region.captures)
      if (std::none_of(captured.begin(), captured.end(), [&](X x) { return x.id == c.outer.id; }))
        captured.push_back(c.outer);
  for (size_t r = 0; r < regions.size(); ++r) {
    NestedGraph& region = regions[r];
    std::vector<ir::ValueId> order(region.graph.inputs.begin(),
                                   region.graph.inputs.begin() + static_cast<ptrdiff_t>(formal[r]));
    for (X x : captured) {
      auto found = std::find_if(region.captures.begin(), region.captures.end(),
                                [&](const Scope::Capture& c) { return c.outer.id == x.id; });
      order.push_back(found != region.captures.end() ? found->inner : region.graph.add_input(x.type(), ""));
    }
    region.graph.reorder_inputs(std::move(order));
  }
  operands.insert(operands.end(), captured.begin(), captured.end());
}

std::vector<ir::Graph> graphs(std::vector<NestedGraph>& regions) {
  std::vector<ir::Graph> result;
  for (NestedGraph& region : regions) result.push_back(std::move(region.graph));
  return result;
}

// Widens carried types until the body gives back what it takes: an axis whose size changes becomes a size of its own.
class CarriedTypes {
 public:
  CarriedTypes(ir::Context& context, std::span<const X> initial) : context_(context) {
    for (X x : initial) types_.push_back(x.type());
  }
  const std::vector<ir::TypeRef>& types() const { return types_; }

  // Whether all types stayed; otherwise they are wider now.
  Result<bool> settle(const ir::Graph& body, size_t first_output) {
    bool settled = true;
    for (size_t i = 0; i < types_.size(); ++i) {
      TESSERA_ASSIGN(ir::TypeRef wider, widen(types_[i], body.type(body.outputs[first_output + i]), i));
      settled &= wider == types_[i];
      types_[i] = wider;
    }
    return settled;
  }

 private:
  Result<ir::TypeRef> widen(ir::TypeRef before, ir::TypeRef after, size_t index) {
    if (before == after) return before;
    auto differ = [&] {
      return fail(Code::dtype_mismatch, "carried value {} is {} before and {} after an iteration", index,
                  to_string(*before), to_string(*after));
    };
    if (before->kind == ir::Kind::nothing && before->dtype == after->dtype) return after;
    if (before->kind != after->kind) return differ();
    if (before->kind == ir::Kind::nothing) return differ();
    if (!before->is_tensor()) {
      TESSERA_ASSIGN(ir::TypeRef element, widen(before->element, after->element, index));
      return before->kind == ir::Kind::sequence ? context_.sequence(element) : context_.optional(element);
    }
    if (before->dtype != after->dtype) return differ();
    if (!before->ranked) return before;
    if (!after->ranked || before->rank() != after->rank()) return context_.unranked(before->dtype);
    Shape shape = before->shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == after->shape[i]) continue;
      std::optional<int> symbol = shape[i].is_const() ? std::nullopt : context_.dims().symbol_index(shape[i]);
      if (symbol && own_.contains(*symbol)) continue;
      shape[i] = context_.dims().fresh("carried");
      own_.insert(*context_.dims().symbol_index(shape[i]));
    }
    return context_.tensor(before->dtype, std::move(shape));
  }

  ir::Context& context_;
  std::vector<ir::TypeRef> types_;
  std::set<int> own_;
};

constexpr int kMaxWidenings = 8;

// scan with its regions closed; gives every result.
Result<Xs> add_scan(NodeImport& n, Builder& builder, Scope& scope, const GraphProto& body, std::span<const X> state,
                    std::span<const X> sliced) {
  CarriedTypes carried(builder.context(), state);
  std::vector<ir::TypeRef> slices;
  for (X x : sliced) {
    if (x.rank() < 1) return fail(Code::rank_mismatch, "a scanned input is a scalar");
    slices.push_back(builder.context().tensor(x.dtype(), Shape(x.shape().begin() + 1, x.shape().end())));
  }
  for (int attempt = 0;; ++attempt) {
    std::vector<ir::TypeRef> types = carried.types();
    types.insert(types.end(), slices.begin(), slices.end());
    TESSERA_ASSIGN(NestedGraph region, n.importer.nested(body, types, scope, "body"));
    if (region.graph.outputs.size() < state.size())
      return fail(Code::arity, "the body gives {} results for {} carried values", region.graph.outputs.size(),
                  state.size());
    TESSERA_ASSIGN(bool settled, carried.settle(region.graph, 0));
    if (!settled && attempt < kMaxWidenings) continue;
    Xs operands(state.begin(), state.end());
    operands.insert(operands.end(), sliced.begin(), sliced.end());
    std::vector<NestedGraph> regions;
    regions.push_back(std::move(region));
    close_regions(regions, {types.size()}, operands);
    Xs results =
        builder.add(ops::scan_op, operands, {static_cast<int64_t>(state.size()), static_cast<int64_t>(sliced.size())},
                    graphs(regions));
    TESSERA_TRY(builder.status());
    return results;
  }
}

X flip(X x, int axis) {
  if (!x) return x;
  Dim size = x.dim(axis);
  return slice(x, axis, size - 1, size, -1);
}

X move_axis(X x, int from, int to) {
  if (!x || from == to) return x;
  std::vector<int> permutation;
  for (int i = 0; i < x.rank(); ++i)
    if (i != from) permutation.push_back(i);
  permutation.insert(permutation.begin() + to, from);
  return transpose(x, std::move(permutation));
}

int64_t entry(const std::vector<int64_t>& list, size_t i) { return i < list.size() ? list[i] : 0; }

}  // namespace

Status import_if(NodeImport& n) {
  X condition = n.need(0);
  const GraphProto *then_graph = n.graph("then_branch"), *else_graph = n.graph("else_branch");
  TESSERA_TRY(n.b.status());
  // A condition that is known leaves one branch, in place.
  if (auto known = n.ints(0); known && known->size() == 1) {
    TESSERA_ASSIGN(Xs results, n.importer.inlined((*known)[0] != 0 ? *then_graph : *else_graph, n.scope));
    for (size_t i = 0; i < results.size(); ++i) n.out(static_cast<int>(i), results[i]);
    return {};
  }
  std::vector<NestedGraph> regions;
  TESSERA_ASSIGN(NestedGraph yes, n.importer.nested(*then_graph, {}, n.scope, "then_branch"));
  TESSERA_ASSIGN(NestedGraph no, n.importer.nested(*else_graph, {}, n.scope, "else_branch"));
  regions.push_back(std::move(yes));
  regions.push_back(std::move(no));
  Xs operands = {condition};
  close_regions(regions, {0, 0}, operands);
  Xs results = n.b.add(ops::branch_op, operands, {}, graphs(regions));
  for (size_t i = 0; i < results.size(); ++i) n.out(static_cast<int>(i), results[i]);
  return {};
}

Status import_loop(NodeImport& n) {
  const GraphProto* body = n.graph("body");
  X trips = scalar_of(n.in(0)), condition = scalar_of(n.in(1));
  TESSERA_TRY(n.b.status());
  Xs initial;
  for (int i = 2; i < n.inputs(); ++i) {
    if (!n.has(i)) return n.fail(Code::arity, "carried input {} is missing", i);
    initial.push_back(n.any(i));
  }
  CarriedTypes carried(n.b.context(), initial);
  std::vector<bool> held(initial.size());  // enters as an optional, and leaves as what that holds
  for (int attempt = 0;; ++attempt) {
    std::vector<ir::TypeRef> types = {n.b.context().scalar(DType::i64), n.b.context().scalar(DType::boolean)};
    types.insert(types.end(), carried.types().begin(), carried.types().end());
    TESSERA_ASSIGN(NestedGraph region, n.importer.nested(*body, types, n.scope, "body"));
    if (region.graph.outputs.size() < initial.size() + 1)
      return n.fail(Code::arity, "the body gives {} results for a condition and {} carried values",
                    region.graph.outputs.size(), initial.size());
    Builder inner(region.graph);
    for (size_t i = 0; i < initial.size(); ++i) {
      X after = inner.wrap(region.graph.outputs[i + 1]);
      held[i] = initial[i].type()->kind == ir::Kind::optional && after.type()->kind != ir::Kind::optional;
      if (held[i]) region.graph.outputs[i + 1] = inner.add1(ops::opt_make_op, {after}).id;
    }
    TESSERA_TRY(inner.status());
    TESSERA_ASSIGN(bool settled, carried.settle(region.graph, 1));
    if (!settled && attempt < kMaxWidenings) continue;
    Xs operands = {trips, condition};
    operands.insert(operands.end(), initial.begin(), initial.end());
    std::vector<NestedGraph> regions;
    regions.push_back(std::move(region));
    close_regions(regions, {types.size()}, operands);
    Xs results = n.b.add(ops::loop_op, operands, {static_cast<int64_t>(initial.size())}, graphs(regions));
    for (size_t i = 0; i < results.size(); ++i)
      n.out(static_cast<int>(i), i < held.size() && held[i] ? n.b.add1(ops::opt_get_op, {results[i]}) : results[i]);
    return {};
  }
}

Status import_scan(NodeImport& n) {
  const GraphProto* body = n.graph("body");
  int64_t scanned = n.integer("num_scan_inputs", 0);
  if (scanned < 1 || scanned > n.inputs())
    return n.fail(Code::attribute_invalid, "num_scan_inputs is {} with {} inputs", scanned, n.inputs());
  size_t carried = static_cast<size_t>(n.inputs()) - static_cast<size_t>(scanned);
  std::vector<int64_t> directions = n.integers("scan_input_directions"), axes = n.integers("scan_input_axes");
  Xs state, sliced;
  for (size_t i = 0; i < carried; ++i) state.push_back(n.need(static_cast<int>(i)));
  for (size_t i = 0; i < static_cast<size_t>(scanned); ++i) {
    X x = n.need(static_cast<int>(carried + i));
    TESSERA_TRY(n.b.status());
    TESSERA_ASSIGN(int axis, n.normal_axis(entry(axes, i), x.rank()));
    x = move_axis(x, axis, 0);
    sliced.push_back(entry(directions, i) == 1 ? flip(x, 0) : x);
  }
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(Xs results, add_scan(n, n.b, n.scope, *body, state, sliced));
  std::vector<int64_t> out_directions = n.integers("scan_output_directions"), out_axes = n.integers("scan_output_axes");
  for (size_t i = 0; i < results.size(); ++i) {
    X y = results[i];
    if (i >= carried) {
      if (entry(out_directions, i - carried) == 1) y = flip(y, 0);
      TESSERA_TRY(n.b.status());
      TESSERA_ASSIGN(int axis, n.normal_axis(entry(out_axes, i - carried), y.rank()));
      y = move_axis(y, 0, axis);
    }
    n.out(static_cast<int>(i), y);
  }
  return {};
}

// Version 8: every value has a batch axis in front, and the scan runs along the second axis of each example.
Status import_scan_8(NodeImport& n) {
  const GraphProto* body = n.graph("body");
  int64_t scanned = n.integer("num_scan_inputs", 0);
  if (n.has(0)) return n.fail(Code::unsupported_feature, "sequence_lens is not supported");
  if (scanned < 1 || scanned > n.inputs() - 1)
    return n.fail(Code::attribute_invalid, "num_scan_inputs is {} with {} inputs", scanned, n.inputs() - 1);
  std::vector<int64_t> directions = n.integers("directions");
  Xs examples;
  for (int i = 1; i < n.inputs(); ++i) examples.push_back(n.need(i));
  TESSERA_TRY(n.b.status());
  size_t carried = examples.size() - static_cast<size_t>(scanned);

  // The outer scan runs over examples and carries nothing.
  std::vector<NestedGraph> outer;
  outer.push_back({ir::Graph(n.b.graph().shared_context()), {}});
  outer[0].graph.name = "examples";
  Builder inner(outer[0].graph);
  inner.set_location(n.b.location());
  Scope scope(inner, &n.scope);
  scope.opsets = n.scope.opsets;
  scope.depth = n.scope.depth + 1;
  Xs state, sliced;
  for (size_t i = 0; i < examples.size(); ++i) {
    if (examples[i].rank() < 1) return n.fail(Code::rank_mismatch, "input {} has no batch axis", i + 1);
    Shape one(examples[i].shape().begin() + 1, examples[i].shape().end());
    X x = inner.input(inner.context().tensor(examples[i].dtype(), std::move(one)), "");
    if (i >= carried && entry(directions, i - carried) == 1) x = flip(x, 0);
    (i < carried ? state : sliced).push_back(x);
  }
  TESSERA_ASSIGN(Xs results, add_scan(n, inner, scope, *body, state, sliced));
  for (X x : results) outer[0].graph.outputs.push_back(x.id);
  outer[0].graph.output_names.assign(results.size(), 0);
  outer[0].captures = scope.captures();
  Xs operands = examples;
  close_regions(outer, {examples.size()}, operands);
  Xs stacked = n.b.add(ops::scan_op, operands, {int64_t{0}, static_cast<int64_t>(examples.size())}, graphs(outer));
  for (size_t i = 0; i < stacked.size(); ++i) n.out(static_cast<int>(i), stacked[i]);
  return {};
}

}  // namespace tessera::onnx
