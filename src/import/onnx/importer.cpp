#include "import/onnx/importer.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <queue>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "base/strings.h"
#include "import/onnx/onnx_inputs.h"
#include "import/onnx/supported.h"

namespace tessera::onnx {
namespace {

constexpr int kMaxDepth = 64;        // of nested graphs and function calls
constexpr size_t kMaxDimName = 256;  // longer names of dimensions are cut
// Functions that call each other, and loops in loops, unfold to exponentially many nodes in a small file. Real models
// call a function once a layer.
constexpr int64_t kMostUnfolded = 1 << 14;
constexpr int64_t kMostUnfoldedPerNode = 64;
constexpr size_t kMaxAxes = 64;  // as the graph's operators allow

// Names that the node's nested graphs use from outside.
void free_names(const GraphProto& graph, std::set<std::string_view>& used, int depth) {
  if (depth > kMaxDepth) return;
  std::unordered_set<std::string_view> own;
  for (const ValueInfoProto& v : graph.input) own.insert(v.name);
  for (const TensorProto& t : graph.initializer) own.insert(t.name);
  for (const SparseTensorProto& t : graph.sparse_initializer) own.insert(t.values.name);
  for (const NodeProto& node : graph.node)
    for (std::string_view name : node.output) own.insert(name);
  std::set<std::string_view> inner;
  for (const NodeProto& node : graph.node) {
    inner.insert(node.input.begin(), node.input.end());
    for (const AttributeProto& a : node.attribute) {
      if (const GraphProto* g = a.g()) free_names(*g, inner, depth + 1);
      if (const auto* gs = a.graphs())
        for (const GraphProto& g : *gs) free_names(g, inner, depth + 1);
    }
  }
  for (const ValueInfoProto& v : graph.output) inner.insert(v.name);
  for (std::string_view name : inner)
    if (!own.contains(name)) used.insert(name);
}

int64_t count_nodes(const std::vector<NodeProto>& nodes) {
  int64_t count = 0;
  for (const NodeProto& node : nodes) {
    ++count;
    for (const AttributeProto& a : node.attribute)
      if (const GraphProto* g = a.g()) count += count_nodes(g->node);
  }
  return count;
}

std::string node_title(const NodeProto& node) {
  std::string_view title = node.name;
  for (size_t i = 0; title.empty() && i < node.output.size(); ++i) title = node.output[i];
  return fmt::format("node '{}' ({})", title, node.op_type);
}

}  // namespace

X Scope::find(std::string_view name) {
  if (const X* found = names_.find(name)) return *found;
  X absent{&builder_, ir::kNoValue};
  if (outer_ == nullptr || closed) return absent;
  X x = outer_->find(name);
  if (!x) return absent;
  if (&outer_->builder_ == &builder_) return x;
  // Constants come along; everything else enters as an input.
  if (const Tensor* tensor = outer_->builder_.constant_of(x)) {
    X copy = builder_.constant(*tensor);
    bind(name, copy);
    return copy;
  }
  X input = builder_.input(x.type(), name);
  if (const Shape* known = outer_->builder_.contents(x)) builder_.graph().contents[input.id] = *known;
  captures_.push_back({x, input.id});
  bind(name, input);
  return input;
}

Result<int64_t> Importer::version_of(std::string_view domain, const Scope& scope) const {
  for (const OperatorSetIdProto& opset : *scope.opsets)
    if (normal_domain(opset.domain) == domain) return opset.version;
  if (scope.opsets != &model_.opset_import)
    for (const OperatorSetIdProto& opset : model_.opset_import)
      if (normal_domain(opset.domain) == domain) return opset.version;
  return fail(Code::opset_missing, "the model does not say which version of the operator set '{}' it uses",
              domain.empty() ? "ai.onnx" : domain);
}

Result<ir::TypeRef> Importer::type_of(const TypeProto& proto, std::string_view name, ir::Context& context) {
  switch (proto.kind) {
    case TypeProto::Kind::sequence:
    case TypeProto::Kind::optional: {
      TESSERA_ASSIGN(ir::TypeRef element, type_of(proto.element[0], name, context));
      return proto.kind == TypeProto::Kind::sequence ? context.sequence(element) : context.optional(element);
    }
    case TypeProto::Kind::tensor:
      break;
    case TypeProto::Kind::none:
      return fail(Code::model_malformed, "'{}' has no type", name);
    default:
      return fail(Code::unsupported_feature,
                  "'{}' is a map, a sparse tensor or opaque; only tensors, sequences and optionals are supported",
                  name);
  }
  TESSERA_ASSIGN(DType dtype, require_dtype(proto.elem_type, name));
  if (!proto.shape) return context.unranked(dtype);
  if (proto.shape->size() > kMaxAxes)
    return fail(Code::unsupported_feature, "'{}' has {} axes, more than {}", name, proto.shape->size(), kMaxAxes);
  Shape shape;
  for (size_t i = 0; i < proto.shape->size(); ++i) {
    const DimensionProto& d = (*proto.shape)[i];
    if (d.dim_value) {
      if (*d.dim_value < 0) return fail(Code::shape_invalid, "axis {} of '{}' has the size {}", i, name, *d.dim_value);
      shape.push_back(*d.dim_value);
      continue;
    }
    const bool unnamed = d.dim_param.empty();
    std::string dim_name = unnamed ? fmt::format("{}_{}", name.substr(0, kMaxDimName), i)
                                   : std::string(d.dim_param.substr(0, kMaxDimName));
    auto known = options_.dims.find(unnamed ? std::string_view(dim_name) : d.dim_param);
    if (known != options_.dims.end() && known->second.lo == known->second.hi) {
      shape.push_back(known->second.lo);
    } else {
      Dim symbol = unnamed ? context.dims().fresh(dim_name) : context.dims().symbol(dim_name);
      if (known != options_.dims.end()) TESSERA_TRY(context.dims().narrow(symbol, known->second));
      shape.push_back(symbol);
    }
    dim_names_.insert(unnamed ? std::move(dim_name) : std::string(d.dim_param));
  }
  return context.tensor(dtype, std::move(shape));
}

Status Importer::add_initializers(const GraphProto& proto, Scope& scope) {
  auto add = [&](std::string_view name, Result<Tensor> tensor) -> Status {
    if (!tensor) return tl::unexpected<Error>(std::move(tensor.error()));
    if (scope.binds(name))
      return fail(Code::duplicate_name, "'{}' is an initializer and also defined elsewhere in graph '{}'", name,
                  proto.name);
    if (tensor->dtype() == DType::string) return {};  // no operator reads it: an error names the node that does
    if (tensor->shape().size() > kMaxAxes)
      return fail(Code::unsupported_feature, "'{}' has {} axes, more than {}", name, tensor->shape().size(), kMaxAxes);
    X x = scope.builder().constant(std::move(*tensor));
    TESSERA_TRY(scope.builder().status());
    scope.builder().graph().set_name(x.id, name);
    scope.bind(name, x);
    return {};
  };
  for (const TensorProto& t : proto.initializer) TESSERA_TRY(add(t.name, to_tensor(t, source_)));
  for (const SparseTensorProto& t : proto.sparse_initializer) TESSERA_TRY(add(t.values.name, to_dense(t, source_)));
  return {};
}

// Positions of the nodes in an order that defines names before they are used, the file's own where it does.
Result<std::vector<uint32_t>> Importer::order(const std::vector<NodeProto>& nodes, const Scope& scope) const {
  NameTable<uint32_t> producer;
  producer.reserve(nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i)
    for (std::string_view name : nodes[i].output) {
      if (name.empty()) continue;
      if (scope.binds(name) || !producer.add(name, i).second)
        return fail(Code::duplicate_name, "'{}' is defined twice, the second time by {}", name, node_title(nodes[i]));
    }
  // Calls visit(producer, user) for each name that a node uses, also inside its nested graphs.
  auto for_each_use = [&](auto&& visit) {
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      for (std::string_view name : nodes[i].input)
        if (const uint32_t* from = producer.find(name)) visit(*from, i);
      std::set<std::string_view> inner;
      for (const AttributeProto& a : nodes[i].attribute)
        if (const GraphProto* g = a.g()) free_names(*g, inner, 0);
      for (std::string_view name : inner)
        if (const uint32_t* from = producer.find(name)) visit(*from, i);
    }
  };
  bool sorted = true;
  for_each_use([&](uint32_t from, uint32_t to) { sorted &= from < to; });
  std::vector<uint32_t> result;
  result.reserve(nodes.size());
  if (sorted) {
    for (uint32_t i = 0; i < nodes.size(); ++i) result.push_back(i);
    return result;
  }
  std::vector<uint32_t> missing(nodes.size(), 0);
  std::vector<std::vector<uint32_t>> users(nodes.size());
  for_each_use([&](uint32_t from, uint32_t to) { users[from].push_back(to), ++missing[to]; });
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t i = 0; i < nodes.size(); ++i)
    if (missing[i] == 0) ready.push(i);
  while (!ready.empty()) {
    uint32_t i = ready.top();
    ready.pop();
    result.push_back(i);
    for (uint32_t user : users[i])
      if (--missing[user] == 0) ready.push(user);
  }
  if (result.size() < nodes.size()) {
    std::string names;
    for (uint32_t i = 0, listed = 0; i < nodes.size() && listed < 4; ++i)
      if (missing[i] > 0) names += (listed++ ? ", " : "") + node_title(nodes[i]);
    return fail(Code::graph_cycle, "these nodes need each other's results: {}", names);
  }
  return result;
}

Status Importer::add_nodes(const std::vector<NodeProto>& nodes, Scope& scope) {
  if (scope.depth > kMaxDepth)
    return fail(Code::model_malformed, "graphs or functions are nested more than {} deep, or a function calls itself",
                kMaxDepth);
  TESSERA_ASSIGN(std::vector<uint32_t> sequence, order(nodes, scope));
  scope.reserve(nodes.size());
  for (uint32_t i : sequence) {
    Status added = add_node(nodes[i], i, scope);
    if (!added) return tl::unexpected<Error>(std::move(added.error()).within("adding " + node_title(nodes[i])));
  }
  return {};
}

Status Importer::add_node(const NodeProto& node, uint32_t index, Scope& scope) {
  Builder& builder = scope.builder();
  ir::Context& context = builder.context();
  if (--nodes_left_ < 0)
    return fail(Code::out_of_memory, "the model's functions and nested graphs unfold to too many nodes, past {} at {}",
                most_nodes_, node_title(node));
  Xs given;
  given.reserve(node.input.size());
  for (size_t i = 0; i < node.input.size(); ++i) {
    given.push_back(node.input[i].empty() ? X{&builder, ir::kNoValue} : scope.find(node.input[i]));
    if (!node.input[i].empty() && !given.back())
      return fail(Code::unknown_name, "input {} is '{}', which nothing defines", i, node.input[i]);
  }
  if (const FunctionProto* function = find_function(model_, node)) return add_function(*function, node, scope);

  std::string_view domain = normal_domain(node.domain);
  TESSERA_ASSIGN(int64_t version, version_of(domain, scope));
  const OnnxOp* op = find_onnx_op(domain, node.op_type, version);
  if (op == nullptr)
    return fail(Code::unsupported_op, "'{}' does not exist in version {} of its operator set", node.op_type, version);
  const int most = domain.empty() ? most_inputs(node.op_type) : -1;
  if (most >= 0 && std::cmp_greater(node.input.size(), most))
    return fail(Code::arity, "'{}' takes at most {} inputs but is given {}", node.op_type, most, node.input.size());
  std::string_view title = node.name;
  for (size_t i = 0; title.empty() && i < node.output.size(); ++i) title = node.output[i];
  ir::LocId before = builder.location();
  builder.set_location(context.location({context.name(title), context.name(node.op_type), index}));
  NodeImport n(*this, scope, builder, node, std::move(given), version);
  Status added = op->function(n);
  Status formulas = builder.take_status();
  builder.set_location(before);
  TESSERA_TRY(added);
  TESSERA_TRY(formulas);
  for (size_t i = 0; i < node.output.size(); ++i)
    if (!node.output[i].empty() && !scope.binds(node.output[i]))
      return fail(Code::arity, "'{}' has no output {}, which the model calls '{}'", node.op_type, i, node.output[i]);
  return {};
}

Status Importer::add_function(const FunctionProto& function, const NodeProto& node, Scope& scope) {
  Scope body(scope.builder(), &scope);
  body.closed = true;
  body.opsets = &function.opset_import;
  body.depth = scope.depth + 1;
  if (node.input.size() > function.input.size() || node.output.size() > function.output.size())
    return fail(Code::arity, "function '{}' takes {} inputs and gives {} outputs, but the node has {} and {}",
                function.name, function.input.size(), function.output.size(), node.input.size(), node.output.size());
  for (size_t i = 0; i < function.input.size(); ++i) {
    bool given = i < node.input.size() && !node.input[i].empty();
    body.bind(function.input[i], given ? scope.find(node.input[i]) : X{&scope.builder(), ir::kNoValue});
  }
  for (const AttributeProto& a : function.attribute_proto) body.function_attributes[a.name] = &a;
  for (const AttributeProto& a : node.attribute) {
    const AttributeProto* value = &a;
    if (!a.ref_attr_name.empty()) {
      auto found = scope.function_attributes.find(a.ref_attr_name);
      if (found == scope.function_attributes.end()) continue;
      value = found->second;
    }
    body.function_attributes[a.name] = value;
  }
  TESSERA_TRY(add_nodes(function.node, body));
  for (size_t i = 0; i < node.output.size(); ++i) {
    if (node.output[i].empty()) continue;
    X x = body.find(function.output[i]);
    if (!x)
      return fail(Code::unknown_name, "output '{}' of function '{}' is not defined in it", function.output[i],
                  function.name);
    scope.bind(node.output[i], x);
  }
  return {};
}

Result<NestedGraph> Importer::nested(const GraphProto& proto, std::span<const ir::TypeRef> inputs, Scope& outer,
                                     std::string_view name) {
  NestedGraph result{ir::Graph(outer.builder().graph().shared_context()), {}};
  result.graph.name = name;
  Builder builder(result.graph);
  builder.set_location(outer.builder().location());
  Scope scope(builder, &outer);
  scope.opsets = outer.opsets;
  scope.function_attributes = outer.function_attributes;
  scope.depth = outer.depth + 1;
  if (proto.input.size() != inputs.size())
    return fail(Code::arity, "its {} takes {} inputs but is given {}", name, proto.input.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (scope.binds(proto.input[i].name))
      return fail(Code::duplicate_name, "its {} has two inputs '{}'", name, proto.input[i].name);
    scope.bind(proto.input[i].name, builder.input(inputs[i], proto.input[i].name));
  }
  auto in_graph = [&](Error error) {
    return tl::unexpected<Error>(std::move(error).within(fmt::format("importing its {}", name)));
  };
  if (Status added = add_initializers(proto, scope); !added) return in_graph(std::move(added.error()));
  if (Status added = add_nodes(proto.node, scope); !added) return in_graph(std::move(added.error()));
  for (const ValueInfoProto& v : proto.output) {
    X x = scope.find(v.name);
    if (!x) return fail(Code::unknown_name, "output '{}' of its {} is not defined", v.name, name);
    result.graph.outputs.push_back(x.id);
    result.graph.output_names.push_back(builder.context().name(v.name));
  }
  result.captures = scope.captures();
  return result;
}

Result<Xs> Importer::inlined(const GraphProto& proto, Scope& outer) {
  Scope scope(outer.builder(), &outer);
  scope.opsets = outer.opsets;
  scope.function_attributes = outer.function_attributes;
  scope.depth = outer.depth + 1;
  TESSERA_TRY(add_initializers(proto, scope));
  TESSERA_TRY(add_nodes(proto.node, scope));
  Xs results;
  for (const ValueInfoProto& v : proto.output) {
    X x = scope.find(v.name);
    if (!x) return fail(Code::unknown_name, "output '{}' of graph '{}' is not defined", v.name, proto.name);
    results.push_back(x);
  }
  return results;
}

Result<ir::Graph> Importer::run() {
  for (const OperatorSetIdProto& opset : model_.opset_import)
    if (normal_domain(opset.domain).empty() && (opset.version < 1 || opset.version > kNewestOpset))
      return fail(Code::unsupported_feature,
                  "the model uses version {} of the operator set ai.onnx; 1 to {} are understood", opset.version,
                  kNewestOpset);
  TESSERA_TRY(check_supported(model_));
  most_nodes_ = count_nodes(model_.graph.node);
  for (const FunctionProto& function : model_.functions) most_nodes_ += count_nodes(function.node);
  nodes_left_ = most_nodes_ = most_nodes_ * kMostUnfoldedPerNode + kMostUnfolded;
  ir::Graph graph(std::make_shared<ir::Context>());
  graph.name = model_.graph.name;
  Builder builder(graph);
  Scope scope(builder, nullptr);
  scope.opsets = &model_.opset_import;

  std::unordered_set<std::string_view> initialized;
  for (const TensorProto& t : model_.graph.initializer) initialized.insert(t.name);
  for (const SparseTensorProto& t : model_.graph.sparse_initializer) initialized.insert(t.values.name);
  for (const ValueInfoProto& v : model_.graph.input) {
    if (initialized.contains(v.name)) continue;  // an input with a default: the model's own value is used
    if (scope.binds(v.name)) return fail(Code::duplicate_name, "two inputs are called '{}'", v.name);
    TESSERA_ASSIGN(ir::TypeRef type, type_of(v.type, v.name, graph.context()));
    if (auto fixed = options_.input_shapes.find(v.name); fixed != options_.input_shapes.end() && type->is_tensor())
      type = graph.context().tensor(type->dtype, Shape(fixed->second.begin(), fixed->second.end()));
    X input = builder.input(type, v.name);
    if (auto values = options_.input_values.find(v.name); values != options_.input_values.end())
      graph.contents[input.id] = Shape(values->second.begin(), values->second.end());
    scope.bind(v.name, input);
  }
  for (const auto& [name, range] : options_.dims)
    if (!dim_names_.contains(name))
      return tl::unexpected<Error>(
          tessera::dim_unknown(name, std::vector<std::string>(dim_names_.begin(), dim_names_.end())));
  TESSERA_TRY(add_initializers(model_.graph, scope));
  TESSERA_TRY(add_nodes(model_.graph.node, scope));
  for (const ValueInfoProto& v : model_.graph.output) {
    X x = scope.find(v.name);
    if (!x) return fail(Code::unknown_name, "output '{}' of the model is not defined", v.name);
    graph.outputs.push_back(x.id);
    graph.output_names.push_back(graph.context().name(v.name));
  }
  TESSERA_TRY(graph.compact());
  return graph;
}

Result<ir::Graph> import_onnx(std::span<const std::byte> bytes, std::shared_ptr<const void> keep,
                              const std::string& folder, const ImportOptions& options) {
  TESSERA_ASSIGN(ModelProto model, parse_model(bytes));
  ExternalFiles external(folder);
  // Nothing downstream trusts the alignment of constants: the reference decodes, kernels pack, sessions align.
  TensorSource source{std::move(keep), folder.empty() ? nullptr : &external, true};
  return Importer(model, source, options).run();
}

Result<ir::Graph> import_onnx(const std::string& path, const ImportOptions& options) {
  auto in_file = [&](Error error) {
    return tl::unexpected<Error>(std::move(error).within(fmt::format("importing '{}'", path)));
  };
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file) return in_file(std::move(file.error()));
  std::string folder = std::filesystem::path(path).parent_path().string();
  Result<ir::Graph> graph = import_onnx((*file)->bytes(), *file, folder.empty() ? "." : folder, options);
  if (!graph) return in_file(std::move(graph.error()));
  return graph;
}

}  // namespace tessera::onnx
