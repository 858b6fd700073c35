#include "passes/replay.h"

#include <algorithm>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ops/math.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

using ir::NodeId;
using ir::ValueId;
using ir::X;
using ir::Xs;

constexpr int64_t kMostTrips = 64;       // of a loop that is taken apart
constexpr size_t kMostNodes = 1u << 18;  // of what loops become

// What stands for a value of the old graph: a value of the new one, or a list whose items are known.
struct Stand {
  X x = {};
  bool list = false;
  Xs items = {};
  DType dtype = DType::f32;  // of the items
};

class Replay {
 public:
  Replay(const ir::Graph& from, DimMap& map)
      : from_(from), made_{ir::Graph(from.shared_context()), {}}, builder_(made_.graph), map_(map) {
    made_.graph.name = from.name;
    bound_.assign(static_cast<size_t>(from.dims().symbol_count()), false);
    for (ValueId v : from.inputs)
      if (from.type(v)->is_tensor())
        for (Dim d : from.type(v)->shape)
          if (!d.is_const())
            for (int symbol : from.dims().symbols_of(d)) bound_[static_cast<size_t>(symbol)] = true;
  }

  std::optional<Replayed> run() {
    std::vector<Stand> inputs;
    for (ValueId v : from_.inputs) inputs.push_back({builder_.input(from_.type(v), from_.value_name(v))});
    std::vector<Stand> outputs;
    if (!graph(from_, inputs, outputs)) return std::nullopt;
    for (Stand& output : outputs) made_.graph.outputs.push_back(value(output).id);
    if (!builder_.ok()) return std::nullopt;
    made_.graph.output_names = from_.output_names;
    std::vector<ir::Guard> guards;
    for (ir::Guard guard : from_.guards)
      if (known(guard.a) && known(guard.b)) guards.push_back(guard);
    for (const ir::Guard& guard : made_.graph.guards)
      if (std::find(guards.begin(), guards.end(), guard) == guards.end()) guards.push_back(guard);
    made_.graph.guards = std::move(guards);
    if (!made_.graph.compact()) return std::nullopt;
    return std::move(made_);
  }

 private:
  // Whether all symbols of the size are sizes of inputs: others may have gone.
  bool known(Dim d) const {
    if (d.is_const()) return true;
    for (int symbol : from_.dims().symbols_of(d))
      if (static_cast<size_t>(symbol) >= bound_.size() || !bound_[static_cast<size_t>(symbol)]) return false;
    return true;
  }

  X value(Stand& stand) {
    if (!stand.x && stand.list)
      stand.x = builder_.add(ops::seq_make_op, stand.items, {static_cast<int64_t>(stand.dtype)})[0];
    return stand.x;
  }

  std::optional<int64_t> number(const Stand& stand) const {
    const Shape* contents = stand.x ? builder_.contents(stand.x) : nullptr;
    const Tensor* tensor = contents == nullptr ? builder_.constant_of(stand.x) : nullptr;
    if (tensor != nullptr && tensor->count() == 1 && (is_int(tensor->dtype()) || tensor->dtype() == DType::boolean))
      return static_cast<int64_t>(decode_int(tensor->dtype(), tensor->data(), 0));
    if (contents == nullptr || contents->size() != 1 || !(*contents)[0].is_const()) return std::nullopt;
    return (*contents)[0].value();
  }

  // Sizes of the old type that only a run told, and that the new type tells.
  void unify(const ir::Type& old, const ir::Type& now) {
    if (!old.is_tensor() || !now.is_tensor() || !old.ranked || !now.ranked || old.rank() != now.rank()) return;
    for (size_t a = 0; a < old.shape.size(); ++a) {
      const std::optional<int> symbol =
          old.shape[a].is_const() ? std::nullopt : from_.dims().symbol_index(old.shape[a]);
      if (!symbol || old.shape[a] == now.shape[a]) continue;
      if (static_cast<size_t>(*symbol) < bound_.size() && bound_[static_cast<size_t>(*symbol)]) continue;
      map_.replace_symbol(*symbol, now.shape[a]);
    }
  }

  bool graph(const ir::Graph& source, std::vector<Stand>& inputs, std::vector<Stand>& outputs) {
    std::vector<Stand> at(source.value_count());
    for (size_t i = 0; i < source.inputs.size(); ++i) {
      at[source.inputs[i]] = inputs[i];
      if (inputs[i].x) unify(*source.type(source.inputs[i]), *inputs[i].x.type());
    }
    for (NodeId n = 0; n < source.node_count(); ++n)
      if (made_.graph.node_count() > kMostNodes || !node(source, n, at) || !builder_.ok()) return false;
    for (ValueId v : source.outputs) outputs.push_back(at[v]);
    return true;
  }

  bool node(const ir::Graph& source, NodeId n, std::vector<Stand>& at) {
    const ir::Node& node = source.node(n);
    builder_.set_location(node.location);
    std::vector<Stand*> operands;
    for (ValueId v : source.operands(n)) operands.push_back(v == ir::kNoValue ? nullptr : &at[v]);
    std::vector<Stand> results;
    if (apart(source, n, operands, results)) {
      // A list that is only made is nothing gained yet.
      const bool form = node.op == &ops::loop_op || node.op == &ops::branch_op;
      if (form || (!results.empty() && results[0].x))
        made_.edits.push_back({.rule = form ? "unroll" : "known_form", .node = n, .place = source.describe(n)});
    } else if (!plain(source, n, operands, results)) {
      return false;
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const ValueId old = source.result(n, static_cast<int>(i));
      const X x = results[i].x;
      if (x) {
        unify(*source.type(old), *x.type());
        if (source.value(old).name != 0 && made_.graph.value(x.id).name == 0)
          made_.graph.set_name(x.id, source.value_name(old));
        if (auto contents = source.contents.find(old);
            contents != source.contents.end() && !made_.graph.contents.contains(x.id))
          made_.graph.contents[x.id] = map_.apply(contents->second);
      }
      at[old] = std::move(results[i]);
    }
    return builder_.ok();
  }

  // The node as it is, over other operands.
  bool plain(const ir::Graph& source, NodeId n, const std::vector<Stand*>& operands, std::vector<Stand>& results) {
    const ir::Node& node = source.node(n);
    if (node.op == &ir::core::constant) {
      const ir::TypeRef type = source.type(node.results);
      const NodeId made = made_.graph.add_node(ir::core::constant, {}, node.attrs, {&type, 1}, node.location);
      results.push_back({builder_.wrap(made_.graph.result(made, 0))});
      return true;
    }
    std::vector<X> given;
    for (Stand* operand : operands) given.push_back(operand == nullptr ? builder_.wrap(ir::kNoValue) : value(*operand));
    std::vector<ir::AttrValue> attrs;
    for (const ir::AttrValue& attr : node.attrs->values) attrs.push_back(map_.apply(attr));
    if (node.op == &ir::core::view || node.op == &ir::core::copy) {
      results.push_back({node.op == &ir::core::view ? builder_.view(given[0], std::get<ir::View>(attrs[0]))
                                                    : reshape(given[0], std::get<Shape>(attrs[0]))});
      return builder_.ok();
    }
    std::vector<ir::Graph> regions;
    for (const ir::Graph& region : source.regions(n)) {
      // A nested graph says which types it takes.
      for (size_t i = 0; i < given.size(); ++i)
        if (given[i] && given[i].type() != source.type(source.operands(n)[i])) return false;
      regions.push_back(region.clone());
    }
    for (X x : builder_.add(*node.op, given, std::move(attrs), std::move(regions))) results.push_back({x});
    results.resize(std::min<size_t>(results.size(), node.n_results));
    return builder_.ok() && results.size() == node.n_results;
  }

  // Lists, loops and branches whose form is known.
  bool apart(const ir::Graph& source, NodeId n, const std::vector<Stand*>& operands, std::vector<Stand>& results) {
    const ir::Node& node = source.node(n);
    const ir::A attrs(*node.op, *node.attrs);
    const auto items = [&](size_t i) { return i < operands.size() && operands[i] != nullptr && operands[i]->list; };
    if (node.op == &ops::seq_make_op) {
      Stand list;
      list.list = true;
      list.dtype = attrs["dtype"];
      for (Stand* operand : operands) {
        if (operand == nullptr || operand->list || !operand->x.type()->is_tensor()) return false;
        list.items.push_back(operand->x);
        list.dtype = operand->x.dtype();
      }
      results.push_back(std::move(list));
      return true;
    }
    if (node.op == &ops::seq_insert_op && items(0)) {
      const auto size = static_cast<int64_t>(operands[0]->items.size());
      std::optional<int64_t> position = size;
      if (operands.size() > 2 && operands[2] != nullptr) position = number(*operands[2]);
      if (position && *position < 0) *position += size;
      if (!position || *position < 0 || *position > size || operands[1]->list) return false;
      Stand list = *operands[0];
      list.x = {};
      list.items.insert(list.items.begin() + static_cast<ptrdiff_t>(*position), operands[1]->x);
      results.push_back(std::move(list));
      return true;
    }
    if (node.op == &ops::seq_at_op && items(0)) {
      const auto size = static_cast<int64_t>(operands[0]->items.size());
      std::optional<int64_t> position = number(*operands[1]);
      if (position && *position < 0) *position += size;
      if (!position || *position < 0 || *position >= size) return false;
      results.push_back({operands[0]->items[static_cast<size_t>(*position)]});
      return true;
    }
    if (node.op == &ops::seq_length_op && items(0)) {
      results.push_back({builder_.integer(static_cast<int64_t>(operands[0]->items.size()))});
      return true;
    }
    if (node.op == &ops::seq_concat_op && items(0) && !operands[0]->items.empty())
      return join(operands[0]->items, attrs, results);
    if (node.op == &ops::seq_split_op && operands[1] != nullptr && operands[1]->x)
      return split(operands, attrs, results);
    if (node.op == &ops::broadcast_to_op) return spread(operands, results);
    if (node.op == &ops::loop_op) return loop(source.regions(n)[0], attrs, operands, results);
    if (node.op == &ops::branch_op && operands[0] != nullptr) {
      const std::optional<int64_t> condition = number(*operands[0]);
      if (!condition) return false;
      std::vector<Stand> inputs;
      for (size_t i = 1; i < operands.size(); ++i) inputs.push_back(operands[i] == nullptr ? Stand() : *operands[i]);
      return graph(source.regions(n)[*condition != 0 ? 0 : 1], inputs, results);
    }
    return false;
  }

  bool join(const Xs& items, const ir::A& attrs, std::vector<Stand>& results) {
    const bool stack = attrs.flag("stack");
    Xs parts;
    for (X x : items) {
      if (!x.type()->ranked) return false;
      const int rank = x.rank() + (stack ? 1 : 0);
      int64_t axis = attrs.integer("axis");
      axis = axis < 0 ? axis + rank : axis;
      if (axis < 0 || axis >= rank) return false;
      parts.push_back(stack ? unsqueeze(x, {static_cast<int>(axis)}) : x);
    }
    const int64_t axis = attrs.integer("axis");
    results.push_back({parts.size() == 1 ? parts[0] : ir::concat(parts, static_cast<int>(axis))});
    return builder_.ok();
  }

  bool split(const std::vector<Stand*>& operands, const ir::A& attrs, std::vector<Stand>& results) {
    const X x = operands[0]->x;
    const Shape* parts = builder_.contents(operands[1]->x);
    if (!x || !x.type()->ranked || parts == nullptr || operands[1]->x.rank() > 1) return false;
    int64_t axis = attrs.integer("axis");
    axis = axis < 0 ? axis + x.rank() : axis;
    if (axis < 0 || axis >= x.rank()) return false;
    const Dim whole = x.dim(static_cast<int>(axis));
    Shape sizes = *parts;
    if (operands[1]->x.rank() == 0) {
      if (!whole.is_const() || !sizes[0].is_const() || sizes[0].value() < 1) return false;
      const int64_t each = sizes[0].value();
      sizes.clear();
      for (int64_t at = 0; at < whole.value(); at += each) sizes.push_back(std::min(each, whole.value() - at));
    }
    Dim total = 0;
    for (Dim size : sizes) total = total + size;
    if (!(total == whole) || sizes.size() > static_cast<size_t>(kMostTrips)) return false;
    if (attrs.flag("drop") && std::any_of(sizes.begin(), sizes.end(), [](Dim size) { return !size.is(1); }))
      return false;
    Stand list;
    list.list = true;
    list.dtype = x.dtype();
    Dim at = 0;
    for (Dim size : sizes) {
      X part = slice(x, static_cast<int>(axis), at, size);
      if (attrs.flag("drop")) part = squeeze(part, {static_cast<int>(axis)});
      list.items.push_back(part);
      at = at + size;
    }
    results.push_back(std::move(list));
    return builder_.ok();
  }

  bool spread(const std::vector<Stand*>& operands, std::vector<Stand>& results) {
    const X x = operands[0]->x;
    const Shape* sizes = builder_.contents(operands[1]->x);
    if (!x || !x.type()->ranked || sizes == nullptr) return false;
    // Sizes that are told apart only by a run would become guards.
    const size_t guards = made_.graph.guards.size();
    Result<Shape> shape = builder_.broadcast(x.shape(), *sizes);
    if (!shape || made_.graph.guards.size() != guards) {
      made_.graph.guards.resize(guards);
      return false;
    }
    results.push_back({ir::broadcast(x, *shape)});
    return builder_.ok();
  }

  bool loop(const ir::Graph& body, const ir::A& attrs, const std::vector<Stand*>& operands,
            std::vector<Stand>& results) {
    const auto carried = static_cast<size_t>(attrs.integer("carried"));
    const std::optional<int64_t> trips = operands[0] == nullptr ? std::nullopt : number(*operands[0]);
    if (!trips || *trips < 0 || *trips > kMostTrips || body.outputs.size() != carried + 1) return false;
    if (operands[1] != nullptr && number(*operands[1]) != 1) return false;
    std::vector<Stand> state;
    for (size_t i = 2; i < operands.size(); ++i) state.push_back(operands[i] == nullptr ? Stand() : *operands[i]);
    Result<Tensor> yes = Tensor::make(DType::boolean, {});
    if (!yes) return false;
    encode_int(DType::boolean, yes->mutable_data(), 0, 1);
    const X condition = builder_.constant(*yes);
    for (int64_t i = 0; i < *trips; ++i) {
      std::vector<Stand> inputs = {{builder_.integer(i)}, {condition}}, outputs;
      inputs.insert(inputs.end(), state.begin(), state.end());
      if (!graph(body, inputs, outputs) || number(outputs[0]) != 1) return false;
      std::move(outputs.begin() + 1, outputs.end(), state.begin());
    }
    state.resize(carried);
    results = std::move(state);
    return true;
  }

  const ir::Graph& from_;
  Replayed made_;
  ir::Builder builder_;
  DimMap& map_;
  std::vector<bool> bound_;  // by symbol: a size of an input
};

}  // namespace

std::optional<Replayed> replay(const ir::Graph& graph, DimMap map) { return Replay(graph, map).run(); }

}  // namespace tessera::passes
