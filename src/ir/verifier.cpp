#include "ir/verifier.h"

#include <algorithm>
#include <unordered_set>

#include "ir/core_ops.h"
#include "ir/printer.h"
#include "ir/signature.h"

namespace tessera::ir {
namespace {

bool is_state(TypeRef type) { return type->kind == Kind::state; }

// Null where the type is sound, else what is wrong with it.
Status check_type(const DimTable& dims, TypeRef type) {
  if (type == nullptr) return fail(Code::graph_invalid, "it has no type");
  if (type->kind == Kind::sequence || type->kind == Kind::optional) {
    if (type->element == nullptr || is_state(type->element))
      return fail(Code::graph_invalid, "a sequence or an optional holds tensors, sequences or optionals");
    return check_type(dims, type->element);
  }
  if (is_state(type) && !type->ranked) return fail(Code::graph_invalid, "a state has a known rank");
  const int64_t block = block_size(type->dtype).elements;
  if (block > 1 && (!type->is_tensor() || !type->ranked || type->shape.empty() || !type->shape.back().is_const() ||
                    type->shape.back().value() % block != 0))
    return fail(Code::shape_invalid, "the last axis of {} is no whole number of blocks of {} elements",
                to_string(*type), block);
  Dims sizes;
  for (Dim d : type->shape) {
    if (dims.bounds(d).hi < 0)
      return fail(Code::shape_invalid, "the size {} in {} is negative", to_string(d), to_string(*type));
    if (d.is_const()) sizes.push_back(d.value());
  }
  if (Result<int64_t> count = element_count(sizes); !count) return tl::unexpected<Error>(std::move(count).error());
  return {};
}

Status check_attribute(const OpDef& op, const AttrSpec& spec, const AttrValue& value) {
  auto wrong = [&](std::string_view wanted) {
    return fail(Code::attribute_invalid, "{}: the attribute '{}' is not {}", op.name, spec.name, wanted);
  };
  const auto* integer = std::get_if<int64_t>(&value);
  switch (spec.kind) {
    case AttrKind::integer:
      return integer ? Status() : wrong("an integer");
    case AttrKind::boolean:
      return integer && (*integer == 0 || *integer == 1) ? Status() : wrong("true or false");
    case AttrKind::dtype:
      return integer && *integer >= 0 && *integer < kDTypeCount ? Status() : wrong("an element type");
    case AttrKind::word:
      return integer && !word_at(spec.words, *integer).empty() ? Status() : wrong(fmt::format("one of {}", spec.words));
    case AttrKind::real:
      return std::holds_alternative<double>(value) ? Status() : wrong("a number");
    case AttrKind::integers:
      return std::holds_alternative<std::vector<int64_t>>(value) ? Status() : wrong("a list of integers");
    case AttrKind::dims:
      return std::holds_alternative<Shape>(value) ? Status() : wrong("a list of sizes");
    case AttrKind::view:
      return std::holds_alternative<View>(value) ? Status() : wrong("a view");
  }
  return wrong("of a known kind");
}

// That the operator may rely on its form. Whether it stays inside its base is the operator's to infer.
Status check_view(const View& view, TypeRef base) {
  std::string text = to_string(view);
  if (base == nullptr || !base->ranked || base->rank() != view.base_rank())
    return fail(Code::rank_mismatch, "the view {} needs a base of {} axes, which {} is not", text, view.base_rank(),
                base ? to_string(*base) : "nothing");
  for (const auto& axis : view.axes) {
    bool first = true;
    for (const ViewAtom& atom : axis) {
      bool broadcast = atom.axis == -1;
      if (atom.axis < -1 || atom.axis >= view.base_rank() || broadcast != atom.stride.is(0) ||
          (atom.tied && (first || broadcast)))
        return fail(Code::graph_invalid, "the view {} has a digit that is none of its base's", text);
      first = false;
    }
  }
  if (!(normalised(view) == view)) return fail(Code::graph_invalid, "the view {} is not in normal form", text);
  return {};
}

// Compares what an operator infers with what a node declares. Symbols that the inference made stand for sizes that only
// a run can tell: what the node calls them is taken for them.
class InferenceCheck {
 public:
  InferenceCheck(const Graph& graph, const VerifyOptions& options, int symbols_before)
      : graph_(graph), options_(options), dims_(graph.dims()), before_(symbols_before) {}

  Status check(const Node& node, const Infer& infer) {
    const size_t declared = node.n_results;
    const auto& signature = signature_of(*node.op);
    for (size_t i = declared; i < infer.results.size(); ++i)
      if (i >= signature.results.size() || !signature.results[i].optional)
        return fail(Code::arity, "{} has {} results, but here {}", node.op->name, infer.results.size(), declared);
    if (declared > infer.results.size())
      return fail(Code::arity, "{} has {} results, but here {}", node.op->name, infer.results.size(), declared);
    // Names first, then the sizes that are computed from them.
    for (bool names : {true, false}) {
      names_ = names;
      for (size_t i = 0; i < declared; ++i) {
        TypeRef type = graph_.type(node.results + static_cast<ValueId>(i));
        if (!same(infer.results[i], type))
          return fail(Code::shape_mismatch, "{}: result {} is {} by inference, but here {}", node.op->name, i,
                      infer.results[i] ? to_string(*infer.results[i]) : "nothing", to_string(*type));
      }
    }
    for (const Guard& guard : infer.guards)
      if (!assured(guard)) {
        std::string_view relation = guard.kind == Guard::Kind::equal       ? "=="
                                    : guard.kind == Guard::Kind::not_equal ? "!="
                                    : guard.kind == Guard::Kind::at_most   ? "<="
                                                                           : "is divisible by";
        return fail(Code::graph_invalid, "{} assumes that {} {} {}, which is not among the graph's guards",
                    node.op->name, to_string(guard.a), relation, to_string(guard.b));
      }
    return {};
  }

 private:
  bool same(TypeRef inferred, TypeRef declared) {
    if (inferred == declared) return true;
    if (inferred == nullptr || inferred->kind != declared->kind) return false;
    if (inferred->kind == Kind::sequence || inferred->kind == Kind::optional)
      return same(inferred->element, declared->element);
    if (inferred->dtype != declared->dtype) return false;
    if (!inferred->ranked) return true;
    if (!declared->ranked || inferred->rank() != declared->rank()) return false;
    for (size_t i = 0; i < inferred->shape.size(); ++i)
      if (!same(inferred->shape[i], declared->shape[i])) return false;
    return true;
  }

  bool same(Dim inferred, Dim declared) {
    if (inferred == declared) return true;
    std::optional<int> symbol = dims_.symbol_index(inferred);
    if (names_) {
      if (!symbol || *symbol < before_) return true;
      named_.resize(static_cast<size_t>(dims_.symbol_count()));
      std::optional<Dim>& name = named_[static_cast<size_t>(*symbol)];
      if (!name) {
        DimBounds possible = dims_.bounds(inferred), claimed = dims_.bounds(declared);
        if (claimed.hi < possible.lo || claimed.lo > possible.hi) return false;
        name = declared;
      }
      return true;
    }
    std::optional<Dim> value = resolved(inferred);
    if (value && value->is_const() && is_named_here(declared)) {
      const DimBounds claimed = dims_.bounds(declared);
      return claimed.lo <= value->value() && value->value() <= claimed.hi;
    }
    return !value || dims_.proves_eq(*value, declared) || has_guard({Guard::Kind::equal, *value, declared});
  }

  // Whether the size is a symbol that no input has: then it is what some node's result tells. A pass that finds out
  // what a result's size will be need not rename it everywhere.
  bool is_named_here(Dim declared) {
    const std::optional<int> symbol = declared.is_const() ? std::nullopt : dims_.symbol_index(declared);
    if (!symbol) return false;
    if (!inputs_known_) {
      inputs_known_ = true;
      for (ValueId v : graph_.inputs)
        for (Dim d : graph_.type(v)->shape)
          for (int s : dims_.symbols_of(d)) of_inputs_.insert(s);
    }
    return !of_inputs_.contains(*symbol);
  }

  // With the names that the node gives; nothing when a symbol has none.
  std::optional<Dim> resolved(Dim d) {
    bool made = false;
    for (int symbol : dims_.symbols_of(d)) {
      if (symbol < before_) continue;
      if (static_cast<size_t>(symbol) >= named_.size() || !named_[static_cast<size_t>(symbol)]) return std::nullopt;
      made = true;
    }
    return made ? dims_.substitute(d, named_) : d;
  }

  bool assured(const Guard& guard) {
    std::optional<Dim> a = resolved(guard.a), b = resolved(guard.b);
    if (!a || !b) return true;
    switch (guard.kind) {
      case Guard::Kind::equal:
        if (dims_.proves_eq(*a, *b)) return true;
        break;
      case Guard::Kind::not_equal:
        if (dims_.proves_ne(*a, *b)) return true;
        break;
      case Guard::Kind::at_most:
        if (dims_.proves_le(*a, *b)) return true;
        break;
      case Guard::Kind::divisible:
        if (dims_.proves_divisible(*a, *b)) return true;
        break;
    }
    return has_guard({guard.kind, *a, *b});
  }

  bool has_guard(const Guard& wanted) const {
    bool symmetric = wanted.kind == Guard::Kind::equal || wanted.kind == Guard::Kind::not_equal;
    auto among = [&](const Graph& graph) {
      return std::any_of(graph.guards.begin(), graph.guards.end(), [&](const Guard& g) {
        return g.kind == wanted.kind &&
               ((g.a == wanted.a && g.b == wanted.b) || (symmetric && g.a == wanted.b && g.b == wanted.a));
      });
    };
    return among(graph_) ||
           std::any_of(options_.outer.begin(), options_.outer.end(), [&](const Graph* outer) { return among(*outer); });
  }

  const Graph& graph_;
  const VerifyOptions& options_;
  DimTable& dims_;
  const int before_;
  bool names_ = true;                      // names are being taken, nothing compared yet
  std::vector<std::optional<Dim>> named_;  // by symbol
  bool inputs_known_ = false;
  std::unordered_set<int> of_inputs_;  // symbols
};

class NodeVerifier {
 public:
  NodeVerifier(const Graph& graph, const VerifyOptions& options) : graph_(graph), options_(options) {}

  Status check(NodeId id) {
    if (id >= graph_.node_count())
      return fail(Code::graph_invalid, "there is no node {} among {}", id, graph_.node_count());
    if (graph_.node(id).op == nullptr) return fail(Code::graph_invalid, "node {} has no operator", id);
    Status status = place(id);
    if (status) status = attributes(id);
    if (status) status = regions(id);
    if (status) status = inference(id);
    if (!status)
      return tl::unexpected<Error>(std::move(status).error().within(fmt::format("checking {}", graph_.describe(id))));
    return {};
  }

 private:
  // Operands come before, results belong to the node.
  Status place(NodeId id) {
    const Node& node = graph_.node(id);
    for (ValueId v : graph_.operands(id)) {
      if (v == kNoValue) continue;
      if (v >= graph_.value_count())
        return fail(Code::graph_invalid, "it reads value {}, but there are only {}", v, graph_.value_count());
      NodeId def = graph_.value(v).def;
      if (def != kNoNode && def >= id)
        return fail(Code::graph_invalid, "it reads {} before that is defined", graph_.describe_value(v));
    }
    for (uint16_t i = 0; i < node.n_results; ++i) {
      ValueId v = graph_.result(id, i);
      if (v >= graph_.value_count() || graph_.value(v).def != id || graph_.value(v).result != i)
        return fail(Code::graph_invalid, "its result {} does not belong to it", i);
      if (Status status = check_type(graph_.dims(), graph_.type(v)); !status)
        return tl::unexpected<Error>(std::move(status).error().within(fmt::format("checking its result {}", i)));
    }
    return {};
  }

  Status attributes(NodeId id) {
    const Node& node = graph_.node(id);
    const size_t given = node.attrs != nullptr ? node.attrs->values.size() : 0;
    if (given != static_cast<size_t>(node.op->attrs.size()))
      return fail(Code::attribute_invalid, "{} has {} attributes, but here {}", node.op->name, node.op->attrs.size(),
                  given);
    for (size_t i = 0; i < given; ++i) {
      const AttrValue& value = node.attrs->values[i];
      TESSERA_TRY(check_attribute(*node.op, node.op->attrs[static_cast<int>(i)], value));
      if (const View* view = std::get_if<View>(&value))
        TESSERA_TRY(check_view(*view, node.n_operands > 0 ? operand_type(id, 0) : nullptr));
    }
    if (node.op == &core::constant) {
      int64_t constant = std::get<int64_t>(node.attrs->values[0]);
      if (constant < 0 || static_cast<size_t>(constant) >= graph_.context().constant_count())
        return fail(Code::graph_invalid, "there is no constant {} among {}", constant,
                    graph_.context().constant_count());
    }
    return {};
  }

  Status regions(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.n_regions != node.op->regions)
      return fail(Code::arity, "{} has {} nested graphs, but here {}", node.op->name, node.op->regions, node.n_regions);
    std::vector<const Graph*> outer(options_.outer.begin(), options_.outer.end());
    outer.push_back(&graph_);
    VerifyOptions inside;
    inside.outer = outer;
    for (int i = 0; i < node.n_regions; ++i) {
      const Graph& region = graph_.regions(id)[static_cast<size_t>(i)];
      if (region.shared_context() != graph_.shared_context())
        return fail(Code::graph_invalid, "its nested graph {} has a context of its own", i);
      for (ValueId v : region.inputs) TESSERA_TRY(exists(region, v));
      for (ValueId v : region.outputs) TESSERA_TRY(exists(region, v));
      if (!options_.nested) continue;
      for (NodeId n = 0; n < region.node_count(); ++n)
        if (Status status = NodeVerifier(region, inside).check(n); !status)
          return tl::unexpected<Error>(
              std::move(status).error().within(fmt::format("checking its nested graph '{}'", region.name)));
    }
    return {};
  }

  static Status exists(const Graph& graph, ValueId v) {
    if (v < graph.value_count()) return {};
    return fail(Code::graph_invalid, "its nested graph '{}' has no value {}", graph.name, v);
  }

  Status inference(NodeId id) {
    static const Attrs kNone;
    const Node& node = graph_.node(id);
    std::vector<TypeRef> types;
    std::vector<const Shape*> contents;
    for (size_t i = 0; i < node.n_operands; ++i) {
      types.push_back(operand_type(id, i));
      auto known = graph_.contents.find(graph_.operands(id)[i]);
      contents.push_back(known == graph_.contents.end() ? nullptr : &known->second);
    }
    const int symbols_before = graph_.dims().symbol_count();
    Infer infer{*node.op, A(*node.op, node.attrs != nullptr ? *node.attrs : kNone), graph_.context(), types,
                graph_.regions(id)};
    infer.contents_list = contents;
    TESSERA_TRY(apply_signature(infer));
    if (node.op->infer != nullptr) TESSERA_TRY(node.op->infer(infer));
    return InferenceCheck(graph_, options_, symbols_before).check(node, infer);
  }

  TypeRef operand_type(NodeId id, size_t i) const {
    ValueId v = graph_.operands(id)[i];
    return v == kNoValue ? nullptr : graph_.type(v);
  }

  const Graph& graph_;
  const VerifyOptions& options_;
};

// Whether running the node uses up the states that it reads.
bool consumes_state(const Graph& graph, NodeId id) {
  for (int i = 0; i < graph.node(id).n_results; ++i)
    if (is_state(graph.type(graph.result(id, i)))) return true;
  for (const Graph& region : graph.regions(id))
    for (NodeId n = 0; n < region.node_count(); ++n)
      for (ValueId v : region.operands(n))
        if (v != kNoValue && is_state(region.type(v)) && consumes_state(region, n)) return true;
  return false;
}

// `graph` has passed check_ids.
Status check_state(const Graph& graph) {
  std::vector<NodeId> consumed_by(graph.value_count(), kNoNode);
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    bool consumes = false, known = false;
    for (ValueId v : graph.operands(n)) {
      if (v == kNoValue || !is_state(graph.type(v))) continue;
      if (consumed_by[v] != kNoNode)
        return fail(Code::graph_invalid, "{} uses the state {}, which {} has consumed", graph.describe(n),
                    graph.describe_value(v), consumed_by[v] == n ? "it" : graph.describe(consumed_by[v]));
      if (!known) consumes = consumes_state(graph, n), known = true;
      if (consumes) consumed_by[v] = n;
    }
  }
  for (ValueId v : graph.outputs)
    if (consumed_by[v] != kNoNode)
      return fail(Code::graph_invalid, "the state {} is given out, but {} has consumed it", graph.describe_value(v),
                  graph.describe(consumed_by[v]));
  return {};
}

Status check_contents(const Graph& graph) {
  for (const auto& [v, elements] : graph.contents) {
    if (v >= graph.value_count())
      return fail(Code::graph_invalid, "contents are known of value {}, but there are only {}", v, graph.value_count());
    const Type& type = *graph.type(v);
    if (!type.is_tensor() || !type.ranked || is_float(type.dtype) || is_block(type.dtype) ||
        type.dtype == DType::string)
      return fail(Code::graph_invalid, "contents are known of {}, which is no tensor of integers of known shape",
                  graph.describe_value(v));
    if (!graph.dims().proves_eq(product(type.shape), static_cast<int64_t>(elements.size())))
      return fail(Code::graph_invalid, "{} contents are known of {}", elements.size(), graph.describe_value(v));
  }
  return {};
}

// Everything that the other rules rely on: ids, types, names.
Status check_ids(const Graph& graph) {
  std::unordered_set<NameId> names;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    ValueId v = graph.inputs[i];
    if (v >= graph.value_count() || graph.value(v).def != kNoNode || graph.value(v).result != i)
      return fail(Code::graph_invalid, "input {} is value {}, which is none", i, v);
    NameId name = graph.value(v).name;
    if (name != 0 && !names.insert(name).second)
      return fail(Code::duplicate_name, "two inputs are named '{}'", graph.context().text(name));
    if (Status status = check_type(graph.dims(), graph.type(v)); !status)
      return tl::unexpected<Error>(std::move(status).error().within(fmt::format("checking input {}", i)));
    if (is_block(graph.type(v)->dtype))
      return fail(Code::graph_invalid, "input {} is {}, and only constants may be quantized", i,
                  to_string(*graph.type(v)));
  }
  for (ValueId v = 0; v < graph.value_count(); ++v)
    if (graph.type(v) == nullptr) return fail(Code::graph_invalid, "value {} has no type", v);
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    if (graph.node(n).op == nullptr) return fail(Code::graph_invalid, "node {} has no operator", n);
    for (ValueId v : graph.operands(n))
      if (v != kNoValue && v >= graph.value_count())
        return fail(Code::graph_invalid, "{} reads value {}, but there are only {}", graph.describe(n), v,
                    graph.value_count());
  }
  if (graph.output_names.size() != graph.outputs.size())
    return fail(Code::graph_invalid, "the graph has {} outputs but names for {}", graph.outputs.size(),
                graph.output_names.size());
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    if (graph.outputs[i] >= graph.value_count())
      return fail(Code::graph_invalid, "output {} is value {}, but there are only {}", i, graph.outputs[i],
                  graph.value_count());
  return {};
}

}  // namespace

Status verify_structure(const Graph& graph) {
  TESSERA_TRY(check_ids(graph));
  // Nested graphs first: whether a node consumes a state depends on them.
  for (NodeId n = 0; n < graph.node_count(); ++n)
    for (const Graph& region : graph.regions(n))
      if (Status status = verify_structure(region); !status)
        return tl::unexpected<Error>(std::move(status).error().within(
            fmt::format("checking the nested graph '{}' of {}", region.name, graph.describe(n))));
  TESSERA_TRY(check_state(graph));
  return check_contents(graph);
}

Status verify(const Graph& graph, const VerifyOptions& options) {
  NodeVerifier nodes(graph, options);
  if (options.nodes) {
    for (NodeId n : *options.nodes) TESSERA_TRY(nodes.check(n));
    return {};
  }
  TESSERA_TRY(verify_structure(graph));
  for (NodeId n = 0; n < graph.node_count(); ++n) TESSERA_TRY(nodes.check(n));
  return {};
}

}  // namespace tessera::ir
