#include "import/onnx/node_import.h"

#include <algorithm>
#include <unordered_map>

#include "import/onnx/importer.h"
#include "import/onnx/onnx_ops.h"
#include "tensor/scalar.h"

namespace tessera::onnx {
namespace {

constexpr OnnxOp kOps[] = {
#define TESSERA_ONNX(domain, op_type, since, function) {domain, op_type, since, function},
#include "import/onnx/onnx_ops.def"
#undef TESSERA_ONNX
};

}  // namespace

std::span<const OnnxOp> all_onnx_ops() { return kOps; }

const OnnxOp* find_onnx_op(std::string_view domain, std::string_view op_type, int64_t version) {
  static const auto* const by_name = [] {
    auto* map = new std::unordered_multimap<std::string_view, const OnnxOp*>();
    for (const OnnxOp& op : kOps) map->emplace(op.op_type, &op);
    return map;
  }();
  const OnnxOp* best = nullptr;
  auto [begin, end] = by_name->equal_range(op_type);
  for (auto it = begin; it != end; ++it) {
    const OnnxOp* op = it->second;
    if (op->domain == domain && op->since <= version && (best == nullptr || op->since > best->since)) best = op;
  }
  return best;
}

void NodeImport::sticky(tl::unexpected<Error> error) { b.fail_with(std::move(error.value())); }

bool NodeImport::has(int i) const { return i < inputs() && given[static_cast<size_t>(i)]; }
bool NodeImport::wants(int i) const { return i < outputs() && !node.output[static_cast<size_t>(i)].empty(); }

X NodeImport::any(int i) { return has(i) ? given[static_cast<size_t>(i)] : X{&b, ir::kNoValue}; }

X NodeImport::in(int i) {
  X x = any(i);
  if (!x) return x;
  std::string_view name = node.input[static_cast<size_t>(i)];
  if (!x.type()->is_tensor()) {
    sticky(fail(Code::dtype_mismatch, "input {} '{}' is {}, not a tensor", i, name, to_string(*x.type())));
    return {&b, ir::kNoValue};
  }
  if (!x.type()->ranked) {
    sticky(fail(Code::unsupported_feature,
                "the number of axes of input {} '{}' is only known during the run, which '{}' does not support", i,
                name, node.op_type));
    return {&b, ir::kNoValue};
  }
  return x;
}

X NodeImport::need(int i) {
  if (!has(i)) sticky(fail(Code::arity, "input {} is missing", i));
  return in(i);
}

Xs NodeImport::all() {
  Xs xs;
  for (int i = 0; i < inputs(); ++i) xs.push_back(need(i));
  if (xs.empty()) sticky(fail(Code::arity, "needs at least one input"));
  if (!b.ok()) xs.assign(1, X{&b, ir::kNoValue});
  return xs;
}

const Shape* NodeImport::sizes(int i) {
  X x = any(i);
  if (!x) return nullptr;
  if (const ir::Type& type = *x.type(); !type.is_tensor() || !(is_int(type.dtype) || type.dtype == DType::boolean)) {
    sticky(fail(Code::dtype_mismatch, "input {} '{}' must hold integers but is {}", i,
                node.input[static_cast<size_t>(i)], to_string(type)));
    return nullptr;
  }
  return b.contents(x);
}

std::optional<std::vector<int64_t>> NodeImport::ints(int i) {
  const Shape* known = sizes(i);
  if (known == nullptr) return std::nullopt;
  std::vector<int64_t> values;
  for (Dim d : *known) {
    if (!d.is_const()) return std::nullopt;
    values.push_back(d.value());
  }
  return values;
}

std::optional<std::vector<double>> NodeImport::reals(int i) {
  const Tensor* tensor = b.constant_of(any(i));
  if (tensor == nullptr || tensor->dtype() == DType::string) return std::nullopt;
  std::vector<double> values(static_cast<size_t>(tensor->count()));
  decode_all(tensor->dtype(), tensor->data(), values);
  return values;
}

const AttributeProto* NodeImport::attribute(std::string_view name) {
  for (const AttributeProto& a : node.attribute) {
    if (a.name != name) continue;
    if (a.ref_attr_name.empty()) return &a;
    auto found = scope.function_attributes.find(a.ref_attr_name);
    return found == scope.function_attributes.end() ? nullptr : found->second;
  }
  return nullptr;
}

namespace {

tl::unexpected<Error> wrong_type(std::string_view name, AttributeType is, std::string_view wanted) {
  return fail(Code::attribute_invalid, "attribute '{}' is {} but must be {}", name, onnx::name(is), wanted);
}

}  // namespace

int64_t NodeImport::integer(std::string_view name, int64_t otherwise) {
  const AttributeProto* a = attribute(name);
  if (a == nullptr) return otherwise;
  if (a->i() == nullptr) sticky(wrong_type(name, a->type, "INT"));
  return a->i() ? *a->i() : otherwise;
}

double NodeImport::real(std::string_view name, double otherwise) {
  const AttributeProto* a = attribute(name);
  if (a == nullptr) return otherwise;
  if (a->f() == nullptr) sticky(wrong_type(name, a->type, "FLOAT"));
  return a->f() ? *a->f() : otherwise;
}

std::string_view NodeImport::text(std::string_view name, std::string_view otherwise) {
  const AttributeProto* a = attribute(name);
  if (a == nullptr) return otherwise;
  if (a->s() == nullptr) sticky(wrong_type(name, a->type, "STRING"));
  return a->s() ? *a->s() : otherwise;
}

std::vector<int64_t> NodeImport::integers(std::string_view name, std::vector<int64_t> otherwise) {
  const AttributeProto* a = attribute(name);
  if (a == nullptr) return otherwise;
  if (a->ints() != nullptr) return *a->ints();
  if (a->i() != nullptr) return {*a->i()};
  sticky(wrong_type(name, a->type, "INTS"));
  return otherwise;
}

std::vector<double> NodeImport::reals(std::string_view name, std::vector<double> otherwise) {
  const AttributeProto* a = attribute(name);
  if (a == nullptr) return otherwise;
  if (a->floats() != nullptr) return {a->floats()->begin(), a->floats()->end()};
  if (a->f() != nullptr) return {*a->f()};
  sticky(wrong_type(name, a->type, "FLOATS"));
  return otherwise;
}

std::vector<std::string_view> NodeImport::texts(std::string_view name) {
  const AttributeProto* a = attribute(name);
  if (a == nullptr) return {};
  if (a->strings() != nullptr) return *a->strings();
  sticky(wrong_type(name, a->type, "STRINGS"));
  return {};
}

const GraphProto* NodeImport::graph(std::string_view name) {
  const AttributeProto* a = attribute(name);
  if (a != nullptr && a->g() != nullptr) return a->g();
  sticky(fail(Code::attribute_invalid, "attribute '{}' must be a graph", name));
  return nullptr;
}

DType NodeImport::dtype(std::string_view name, DType otherwise) {
  const AttributeProto* a = attribute(name);
  if (a == nullptr) return otherwise;
  int64_t number = integer(name, 0);
  Result<DType> type = require_dtype(static_cast<int32_t>(std::clamp<int64_t>(number, -1, 1 << 20)), name);
  if (type) return *type;
  sticky(tl::unexpected<Error>(std::move(type.error())));
  return otherwise;
}

Result<Tensor> NodeImport::tensor(std::string_view name) {
  const AttributeProto* a = attribute(name);
  if (a == nullptr || a->t() == nullptr) return fail(Code::attribute_invalid, "attribute '{}' must be a tensor", name);
  return to_tensor(*a->t(), importer.source());
}

Result<int> NodeImport::normal_axis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    return fail(Code::axis_out_of_range, "axis {} is outside [-{}, {})", axis, rank, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Result<int> NodeImport::axis(std::string_view name, int64_t otherwise, int rank) {
  return normal_axis(integer(name, otherwise), rank);
}

tl::unexpected<Error> NodeImport::value_unknown(int i) {
  return fail(Code::value_unknown,
              "input {} '{}' decides the structure of the graph, but its elements are only known during the run", i,
              i < inputs() ? node.input[static_cast<size_t>(i)] : std::string_view());
}

void NodeImport::out(int i, X x) {
  if (!wants(i) || !x) return;
  std::string_view name = node.output[static_cast<size_t>(i)];
  if (b.graph().value(x.id).name == 0) b.graph().set_name(x.id, name);
  scope.bind(name, x);
}

}  // namespace tessera::onnx
