// What models say about their inputs and outputs.
#include <unordered_set>

#include "base/result.h"
#include "engine/model.h"
#include "import/onnx/tensor_proto.h"
#include "plan/sizes.h"

namespace tessera::engine {
namespace {

ValueInfo::Kind kind_of(ir::Kind kind) {
  return kind == ir::Kind::sequence   ? ValueInfo::Kind::sequence
         : kind == ir::Kind::optional ? ValueInfo::Kind::optional
                                      : ValueInfo::Kind::tensor;
}

std::string element_text(DType dtype, const ValueInfo& info) {
  std::string text(name(dtype));
  text += '[';
  if (!info.ranked) text += '*';
  for (size_t i = 0; i < info.shape.size(); ++i) text += (i == 0 ? "" : ", ") + info.shape[i];
  return text + ']';
}

ValueInfo describe(const plan::Routine& routine, plan::ValueId id, std::string name) {
  const plan::Value& value = routine.values[id];
  ValueInfo info;
  info.name = std::move(name);
  info.dtype = value.dtype;
  if (value.kind == plan::Kind::sequence || value.kind == plan::Kind::optional) {
    const bool sequence = value.kind == plan::Kind::sequence;
    info.kind = sequence ? ValueInfo::Kind::sequence : ValueInfo::Kind::optional;
    info.ranked = false;
    info.type = (sequence ? "seq<" : "opt<") + element_text(value.dtype, info) + ">";
    return info;
  }
  info.ranked = value.ranked;
  for (const plan::ExprId size : routine.shape(id)) {
    const plan::Expr& expr = routine.exprs[size];
    info.shape.push_back(plan::print(routine, size));
    info.sizes.push_back(expr.op == plan::ExprOp::constant ? expr.value : -1);
  }
  info.type = element_text(value.dtype, info);
  return info;
}

Result<ValueInfo> declared(const onnx::ValueInfoProto& proto) {
  ValueInfo info;
  info.name = proto.name;
  const onnx::TypeProto* type = &proto.type;
  std::string ends;
  while (type->kind == onnx::TypeProto::Kind::sequence || type->kind == onnx::TypeProto::Kind::optional) {
    const bool sequence = type->kind == onnx::TypeProto::Kind::sequence;
    if (ends.empty()) info.kind = sequence ? ValueInfo::Kind::sequence : ValueInfo::Kind::optional;
    info.type += sequence ? "seq<" : "opt<";
    ends += '>';
    type = &type->element[0];
  }
  if (type->kind != onnx::TypeProto::Kind::tensor)
    return fail(Code::unsupported_feature, "'{}' is a map, a sparse tensor or opaque", proto.name);
  TESSERA_ASSIGN(info.dtype, onnx::require_dtype(type->elem_type, proto.name));
  info.ranked = type->shape.has_value();
  for (size_t i = 0; info.ranked && i < type->shape->size(); ++i) {
    const onnx::DimensionProto& dim = (*type->shape)[i];
    info.shape.push_back(dim.dim_value           ? std::to_string(*dim.dim_value)
                         : dim.dim_param.empty() ? info.name + "_" + std::to_string(i)
                                                 : std::string(dim.dim_param));
    info.sizes.push_back(dim.dim_value.value_or(-1));
  }
  info.type += element_text(info.dtype, info) + ends;
  if (info.kind != ValueInfo::Kind::tensor) info.shape.clear(), info.sizes.clear(), info.ranked = false;
  return info;
}

}  // namespace

ValueInfo describe(ir::TypeRef type, std::string name) {
  ValueInfo info;
  info.name = std::move(name);
  info.type = ir::to_string(*type);
  info.kind = kind_of(type->kind);
  if (info.kind != ValueInfo::Kind::tensor) {
    info.ranked = false;
    while (type->element != nullptr) type = type->element;
    info.dtype = type->dtype;
    return info;
  }
  info.dtype = type->dtype;
  info.ranked = type->ranked;
  for (const Dim& size : type->shape) {
    info.shape.push_back(to_string(size));
    const DimBounds bounds = size.is_const() ? DimBounds{size.value(), size.value()} : size.table()->bounds(size);
    info.sizes.push_back(bounds.lo == bounds.hi ? bounds.lo : -1);
  }
  return info;
}

std::vector<ValueInfo> describe_inputs(const ir::Graph& graph) {
  std::vector<ValueInfo> infos;
  for (ir::ValueId id : graph.inputs) infos.push_back(describe(graph.type(id), std::string(graph.value_name(id))));
  return infos;
}

std::vector<ValueInfo> describe_outputs(const ir::Graph& graph) {
  std::vector<ValueInfo> infos;
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    infos.push_back(describe(graph.type(graph.outputs[i]), std::string(graph.context().text(graph.output_names[i]))));
  return infos;
}

std::vector<ValueInfo> describe_inputs(const plan::Plan& plan) {
  std::vector<ValueInfo> infos;
  const plan::Routine& main = plan.main();
  for (plan::ValueId id : main.inputs) infos.push_back(describe(main, id, main.values[id].name));
  return infos;
}

std::vector<ValueInfo> describe_outputs(const plan::Plan& plan) {
  std::vector<ValueInfo> infos;
  const plan::Routine& main = plan.main();
  for (size_t i = 0; i < main.outputs.size(); ++i)
    infos.push_back(describe(main, main.outputs[i], i < main.output_names.size() ? main.output_names[i] : ""));
  return infos;
}

Result<std::vector<ValueInfo>> declared_inputs(const onnx::ModelProto& model) {
  std::unordered_set<std::string_view> initialised;
  for (const onnx::TensorProto& tensor : model.graph.initializer) initialised.insert(tensor.name);
  for (const onnx::SparseTensorProto& tensor : model.graph.sparse_initializer) initialised.insert(tensor.values.name);
  std::vector<ValueInfo> infos;
  for (const onnx::ValueInfoProto& input : model.graph.input) {
    if (initialised.contains(input.name)) continue;
    TESSERA_ASSIGN(ValueInfo info, declared(input));
    infos.push_back(std::move(info));
  }
  return infos;
}

Result<std::vector<ValueInfo>> declared_outputs(const onnx::ModelProto& model) {
  std::vector<ValueInfo> infos;
  for (const onnx::ValueInfoProto& output : model.graph.output) {
    TESSERA_ASSIGN(ValueInfo info, declared(output));
    infos.push_back(std::move(info));
  }
  return infos;
}

}  // namespace tessera::engine
