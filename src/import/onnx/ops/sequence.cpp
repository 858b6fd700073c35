// Sequences and optionals.
#include "import/onnx/importer.h"
#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

// An operand of any kind; E0301 when it is absent.
Result<X> given(NodeImport& n, int i) {
  X x = n.any(i);
  if (!x) return n.fail(Code::arity, "input {} is missing", i);
  return x;
}

Status add_all(NodeImport& n, const ir::OpDef& op, std::vector<AttrValue> attrs = {}) {
  Xs xs;
  for (int i = 0; i < n.inputs(); ++i) {
    X x = n.any(i);
    // Positions are scalars.
    bool position = i > 0 && x && x.type()->is_tensor() && is_int(x.dtype()) && x.type()->ranked && x.rank() == 1;
    xs.push_back(position && (&op != &ops::seq_make_op) && !(&op == &ops::seq_insert_op && i == 1) ? scalar_of(x) : x);
  }
  n.out(n.b.add(op, xs, std::move(attrs))[0]);
  return {};
}

}  // namespace

Status import_sequence_construct(NodeImport& n) { return add_all(n, ops::seq_make_op); }
Status import_sequence_empty(NodeImport& n) {
  n.out(n.b.add(ops::seq_make_op, {}, {static_cast<int64_t>(n.dtype("dtype", DType::f32))})[0]);
  return {};
}
Status import_sequence_at(NodeImport& n) { return add_all(n, ops::seq_at_op); }
Status import_sequence_insert(NodeImport& n) { return add_all(n, ops::seq_insert_op); }
Status import_sequence_erase(NodeImport& n) { return add_all(n, ops::seq_erase_op); }
Status import_sequence_length(NodeImport& n) { return add_all(n, ops::seq_length_op); }
Status import_concat_from_sequence(NodeImport& n) {
  if (!n.has_attribute("axis")) return n.fail(Code::attribute_invalid, "axis is missing");
  return add_all(n, ops::seq_concat_op, {n.integer("axis", 0), n.integer("new_axis", 0)});
}

Status import_split_to_sequence(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", 0, x.rank()));
  X split = n.in(1);
  bool one_each = !split;
  X parts = one_each ? n.b.integer(1) : cast(split, DType::i64);
  bool drop = one_each && n.integer("keepdims", 1) == 0;
  n.out(n.b.add1(ops::seq_split_op, {x, parts}, {static_cast<int64_t>(axis), int64_t{drop}}));
  return {};
}

// Runs the body for each item; every output is a sequence of its results. Sequences step together, tensors are the same
// each time.
Status import_sequence_map(NodeImport& n) {
  const GraphProto* body = n.graph("body");
  TESSERA_TRY(n.b.status());
  Xs inputs;
  for (int i = 0; i < n.inputs(); ++i) {
    TESSERA_ASSIGN(X x, given(n, i));
    inputs.push_back(x);
  }
  if (inputs.empty() || inputs[0].type()->kind != ir::Kind::sequence)
    return n.fail(Code::dtype_mismatch, "input 0 must be a sequence");
  X trips = n.b.add1(ops::seq_length_op, {inputs[0]});

  // A loop that carries the result sequences.
  ir::Graph region(n.b.graph().shared_context());
  region.name = "body";
  Builder inner(region);
  inner.set_location(n.b.location());
  Scope scope(inner, &n.scope);
  scope.opsets = n.scope.opsets;
  scope.depth = n.scope.depth + 1;
  X index = inner.input(inner.context().scalar(DType::i64), "i");
  X go = inner.input(inner.context().scalar(DType::boolean), "go");
  size_t results = body->output.size();
  Xs carried, initial;
  for (const ValueInfoProto& v : body->output) {
    TESSERA_ASSIGN(ir::TypeRef type, n.importer.type_of(v.type, v.name, inner.context()));
    if (!type->is_tensor())
      return n.fail(Code::unsupported_feature, "the body gives {}, not a tensor", to_string(*type));
    X empty = n.b.add(ops::seq_make_op, {}, {static_cast<int64_t>(type->dtype)})[0];
    TESSERA_TRY(n.b.status());
    initial.push_back(empty);
    carried.push_back(inner.input(empty.type(), ""));
  }
  Xs outer_inputs = inputs, captured;
  for (X x : inputs) captured.push_back(inner.input(x.type(), ""));
  if (body->input.size() != inputs.size())
    return n.fail(Code::arity, "the body takes {} inputs but the node has {}", body->input.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    bool list = inputs[i].type()->kind == ir::Kind::sequence;
    X item = list ? inner.add1(ops::seq_at_op, {captured[i], index}) : captured[i];
    scope.bind(body->input[i].name, item);
  }
  TESSERA_TRY(inner.status());
  TESSERA_ASSIGN(Xs made, n.importer.inlined(*body, scope));
  region.outputs.push_back(go.id);
  for (size_t i = 0; i < results; ++i) {
    X grown = inner.add1(ops::seq_insert_op, {carried[i], made[i]});
    TESSERA_TRY(inner.status());
    region.outputs.push_back(grown.id);
  }
  region.output_names.assign(region.outputs.size(), 0);
  Xs operands = {trips, X{&n.b, ir::kNoValue}};
  operands.insert(operands.end(), initial.begin(), initial.end());
  operands.insert(operands.end(), outer_inputs.begin(), outer_inputs.end());
  // What the body itself captured stands behind, in the order in which it became an input.
  for (const Scope::Capture& c : scope.captures()) operands.push_back(c.outer);
  std::vector<ir::Graph> regions;
  regions.push_back(std::move(region));
  Xs outputs = n.b.add(ops::loop_op, operands, {static_cast<int64_t>(results)}, std::move(regions));
  for (size_t i = 0; i < results; ++i) n.out(static_cast<int>(i), outputs[i]);
  return {};
}

Status import_optional(NodeImport& n) {
  if (n.has(0)) return add_all(n, ops::opt_make_op);
  const AttributeProto* type = n.attribute("type");
  DType dtype = DType::f32;
  bool list = false;
  if (type != nullptr && type->tp() != nullptr) {
    const TypeProto* proto = type->tp();
    list = proto->kind == TypeProto::Kind::sequence;
    while (!proto->element.empty()) proto = &proto->element[0];
    if (std::optional<DType> t = dtype_of(proto->elem_type)) dtype = *t;
  }
  n.out(n.b.add(ops::opt_make_op, {}, {static_cast<int64_t>(dtype), int64_t{list}})[0]);
  return {};
}
Status import_optional_get_element(NodeImport& n) { return add_all(n, ops::opt_get_op); }
Status import_optional_has_element(NodeImport& n) { return add_all(n, ops::opt_has_op); }

}  // namespace tessera::onnx
