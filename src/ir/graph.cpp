#include "ir/graph.h"

#include <algorithm>
#include <queue>

#include "ir/op_def.h"

namespace tessera::ir {

ValueId Graph::add_input(TypeRef type, std::string_view name) {
  ValueId id = static_cast<ValueId>(values_.size());
  values_.push_back({type, kNoNode, static_cast<uint16_t>(inputs.size()), context_->name(name)});
  inputs.push_back(id);
  return id;
}

void Graph::reorder_inputs(std::vector<ValueId> order) {
  TESSERA_CHECK(order.size() == inputs.size());
  inputs = std::move(order);
  for (size_t i = 0; i < inputs.size(); ++i) values_[inputs[i]].result = static_cast<uint16_t>(i);
}

NodeId Graph::add_node(const OpDef& op, std::span<const ValueId> operands, AttrsRef attrs,
                       std::span<const TypeRef> results, LocId location, std::vector<Graph> regions) {
  TESSERA_CHECK(operands.size() <= UINT16_MAX && results.size() <= UINT16_MAX && regions.size() <= UINT16_MAX);
  NodeId id = static_cast<NodeId>(nodes_.size());
  Node node;
  node.op = &op;
  node.attrs = attrs;
  node.operands = static_cast<uint32_t>(operand_pool_.size());
  node.n_operands = static_cast<uint16_t>(operands.size());
  node.n_results = static_cast<uint16_t>(results.size());
  node.results = static_cast<ValueId>(values_.size());
  node.location = location;
  node.regions = static_cast<uint32_t>(regions_.size());
  node.n_regions = static_cast<uint16_t>(regions.size());
  operand_pool_.insert(operand_pool_.end(), operands.begin(), operands.end());
  for (size_t i = 0; i < results.size(); ++i) values_.push_back({results[i], id, static_cast<uint16_t>(i), 0});
  for (Graph& region : regions) regions_.push_back(std::move(region));
  nodes_.push_back(node);
  return id;
}

Graph Graph::clone() const {
  Graph copy(context_);
  copy.name = name;
  copy.inputs = inputs;
  copy.outputs = outputs;
  copy.output_names = output_names;
  copy.guards = guards;
  copy.contents = contents;
  copy.nodes_ = nodes_;
  copy.values_ = values_;
  copy.operand_pool_ = operand_pool_;
  copy.regions_.reserve(regions_.size());
  for (const Graph& region : regions_) copy.regions_.push_back(region.clone());
  return copy;
}

std::string Graph::describe(NodeId id) const {
  const Location& location = context_->location(nodes_[id].location);
  std::string_view user = context_->text(location.node);
  std::string_view word = context_->text(location.op_type);
  if (word.empty()) word = nodes_[id].op->name;
  if (user.empty()) return fmt::format("node {} ({})", id, word);
  return fmt::format("node '{}' ({})", user, word);
}

std::string Graph::describe_value(ValueId id) const {
  if (id == kNoValue) return "absent value";
  const ValueInfo& info = values_[id];
  if (info.name != 0) return fmt::format("'{}' {}", context_->text(info.name), to_string(*info.type));
  if (info.def == kNoNode) return fmt::format("input {} {}", info.result, to_string(*info.type));
  return fmt::format("result {} of {} {}", info.result, describe(info.def), to_string(*info.type));
}

namespace {

// Which symbols types, attributes and nested graphs read, each looked up once.
class SymbolUse {
 public:
  explicit SymbolUse(const DimTable& dims) : dims_(dims) {}

  const std::vector<int>& of(TypeRef type) {
    return recent(type, [&](std::vector<int>& to) { collect(*type, to); });
  }
  const std::vector<int>& of(AttrsRef attrs) {
    return recent(attrs, [&](std::vector<int>& to) {
      for (const AttrValue& value : attrs->values) {
        if (const Shape* shape = std::get_if<Shape>(&value)) collect(*shape, to);
        if (const View* view = std::get_if<View>(&value)) {
          collect(view->offsets, to);
          for (const auto& axis : view->axes)
            for (const ViewAtom& atom : axis) collect({atom.stride, atom.size}, to);
        }
      }
    });
  }
  // Everything that a graph reads, its own symbols included.
  template <class F>
  void each(const Graph& graph, F visit) {
    for (ValueId v = 0; v < graph.value_count(); ++v)
      for (int symbol : of(graph.type(v))) visit(symbol);
    for (NodeId n = 0; n < graph.node_count(); ++n) {
      for (int symbol : of(graph.node(n).attrs)) visit(symbol);
      for (const Graph& region : graph.regions(n)) each(region, visit);
    }
  }

 private:
  // Graphs have many nodes and few types and attributes: most look-ups end at the first place.
  template <class F>
  const std::vector<int>& recent(const void* key, F fill) {
    Recent& slot = recent_[(reinterpret_cast<uintptr_t>(key) >> 4) % std::size(recent_)];
    if (slot.key == key) return *slot.symbols;
    auto [found, fresh] = known_.try_emplace(key);
    if (fresh) fill(found->second);
    slot = {key, &found->second};
    return found->second;
  }

  void collect(const Shape& shape, std::vector<int>& to) {
    for (Dim d : shape) {
      if (d.is_const()) continue;
      std::vector<int> symbols = dims_.symbols_of(d);
      to.insert(to.end(), symbols.begin(), symbols.end());
    }
  }
  void collect(const Type& type, std::vector<int>& to) {
    collect(type.shape, to);
    if (type.element != nullptr) collect(*type.element, to);
  }

  struct Recent {
    const void* key = nullptr;
    const std::vector<int>* symbols = nullptr;
  };
  const DimTable& dims_;
  std::unordered_map<const void*, std::vector<int>> known_;  // by type or attributes
  Recent recent_[1024];
};

}  // namespace

Status Graph::compact() {
  // Sizes that only the run tells are told by the first result that has them: such a node is needed by whatever reads
  // its sizes.
  SymbolUse symbols(dims());
  std::vector<NodeId> teller(static_cast<size_t>(dims().symbol_count()), kNoNode);
  std::vector<bool> told(teller.size(), false);
  for (ValueId v : inputs)
    for (int symbol : symbols.of(values_[v].type)) told[static_cast<size_t>(symbol)] = true;
  bool any_teller = false;
  for (NodeId n = 0; n < nodes_.size(); ++n)
    for (uint16_t i = 0; i < nodes_[n].n_results; ++i) {
      const TypeRef type = values_[nodes_[n].results + i].type;
      for (int one : symbols.of(type)) {
        if (told[static_cast<size_t>(one)]) continue;
        for (Dim d : type->shape)
          if (std::optional<int> symbol = d.is_const() ? std::nullopt : dims().symbol_index(d);
              symbol && !told[static_cast<size_t>(*symbol)]) {
            told[static_cast<size_t>(*symbol)] = any_teller = true;
            teller[static_cast<size_t>(*symbol)] = n;
          }
      }
    }

  // Liveness from the outputs; impure nodes stay only when something needs them too (randomness has no other effect).
  std::vector<bool> live(nodes_.size(), false);
  std::vector<NodeId> stack;
  auto reach = [&](ValueId v) {
    if (v == kNoValue) return;
    NodeId def = values_[v].def;
    if (def != kNoNode && !live[def]) {
      live[def] = true;
      stack.push_back(def);
    }
  };
  auto reach_symbol = [&](int symbol) {
    const NodeId node = teller[static_cast<size_t>(symbol)];
    if (node == kNoNode || live[node]) return;
    live[node] = true;
    stack.push_back(node);
  };
  for (ValueId v : outputs) reach(v);
  while (!stack.empty()) {
    NodeId n = stack.back();
    stack.pop_back();
    for (ValueId v : operands(n)) reach(v);
    if (!any_teller) continue;
    for (int symbol : symbols.of(nodes_[n].attrs)) reach_symbol(symbol);
    for (uint16_t i = 0; i < nodes_[n].n_results; ++i)
      for (int symbol : symbols.of(values_[nodes_[n].results + i].type)) reach_symbol(symbol);
    for (const Graph& region : this->regions(n)) symbols.each(region, reach_symbol);
  }

  // Kahn's algorithm with the smallest present id first, so that an already ordered graph keeps its order.
  std::vector<uint32_t> missing(nodes_.size(), 0);
  std::vector<uint32_t> first_user(nodes_.size() + 1, 0);
  auto for_each_edge = [&](auto&& visit) {
    for (NodeId n = 0; n < nodes_.size(); ++n) {
      if (!live[n]) continue;
      for (ValueId v : operands(n))
        if (v != kNoValue && values_[v].def != kNoNode) visit(values_[v].def, n);
    }
  };
  size_t edges = 0;
  bool sorted = true;
  for_each_edge([&](NodeId from, NodeId to) { sorted &= from < to, ++first_user[from + 1], ++edges; });
  for (size_t i = 0; i < nodes_.size(); ++i) first_user[i + 1] += first_user[i];
  std::vector<NodeId> users(sorted ? 0 : edges);
  std::vector<uint32_t> next(first_user.begin(), first_user.end() - 1);
  if (!sorted) for_each_edge([&](NodeId from, NodeId to) { users[next[from]++] = to, ++missing[to]; });

  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<NodeId>> ready;
  size_t live_count = 0;
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    live_count += live[n];
    if (!sorted && live[n] && missing[n] == 0) ready.push(n);
  }
  std::vector<NodeId> order;
  order.reserve(live_count);
  for (NodeId n = 0; sorted && n < nodes_.size(); ++n)
    if (live[n]) order.push_back(n);
  while (!ready.empty()) {
    NodeId n = ready.top();
    ready.pop();
    order.push_back(n);
    for (uint32_t i = first_user[n]; i < first_user[n + 1]; ++i)
      if (--missing[users[i]] == 0) ready.push(users[i]);
  }
  if (order.size() != live_count) {
    std::string names;
    int listed = 0;
    for (NodeId n = 0; n < nodes_.size() && listed < 4; ++n)
      if (live[n] && missing[n] > 0) names += (listed++ ? ", " : "") + describe(n);
    return fail(Code::graph_cycle, "these nodes need each other's results: {}", names);
  }

  std::vector<Node> nodes;
  std::vector<ValueInfo> values;
  std::vector<ValueId> pool;
  std::vector<Graph> regions;
  std::vector<ValueId> renamed(values_.size(), kNoValue);
  nodes.reserve(order.size());
  values.reserve(values_.size());
  pool.reserve(operand_pool_.size());
  for (ValueId v : inputs) {
    renamed[v] = static_cast<ValueId>(values.size());
    values.push_back(values_[v]);
  }
  for (NodeId n : order) {
    Node node = nodes_[n];
    uint32_t begin = static_cast<uint32_t>(pool.size());
    for (ValueId v : operands(n)) pool.push_back(v == kNoValue ? kNoValue : renamed[v]);
    node.operands = begin;
    ValueId results = static_cast<ValueId>(values.size());
    for (uint16_t i = 0; i < node.n_results; ++i) {
      ValueInfo info = values_[node.results + i];
      info.def = static_cast<NodeId>(nodes.size());
      renamed[node.results + i] = static_cast<ValueId>(values.size());
      values.push_back(info);
    }
    node.results = results;
    uint32_t first_region = static_cast<uint32_t>(regions.size());
    for (uint16_t i = 0; i < node.n_regions; ++i) regions.push_back(std::move(regions_[node.regions + i]));
    node.regions = first_region;
    nodes.push_back(node);
  }
  std::unordered_map<ValueId, Shape> kept;
  for (auto& [v, shape] : contents)
    if (renamed[v] != kNoValue) kept.emplace(renamed[v], std::move(shape));
  contents = std::move(kept);
  for (ValueId& v : inputs) v = renamed[v];
  for (ValueId& v : outputs) v = renamed[v];
  nodes_ = std::move(nodes);
  values_ = std::move(values);
  operand_pool_ = std::move(pool);
  regions_ = std::move(regions);
  return {};
}

}  // namespace tessera::ir
