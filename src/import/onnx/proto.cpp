#include "import/onnx/proto.h"

#include "base/result.h"

namespace tessera::onnx {
namespace {

using protobuf::Reader;

Status parse(Reader r, AttributeProto& out);
Status parse(Reader r, FunctionProto& out);
Status parse(Reader r, GraphProto& out);
Status parse(Reader r, NodeProto& out);
Status parse(Reader r, TypeProto& out);

Status parse(Reader r, StringStringEntryProto& out) {
  while (r.next()) {
    switch (r.number()) {
      case 1:
        out.key = r.string();
        break;
      case 2:
        out.value = r.string();
        break;
    }
  }
  return r.status();
}

Status parse(Reader r, OperatorSetIdProto& out) {
  while (r.next()) {
    switch (r.number()) {
      case 1:
        out.domain = r.string();
        break;
      case 2:
        out.version = r.int64();
        break;
    }
  }
  return r.status();
}

Status parse(Reader r, DimensionProto& out) {
  while (r.next()) {
    // The two are a oneof: the later one counts.
    switch (r.number()) {
      case 1:
        out.dim_value = r.int64();
        out.dim_param = {};
        break;
      case 2:
        out.dim_param = r.string();
        out.dim_value.reset();
        break;
    }
  }
  return r.status();
}

Status parse(Reader r, std::vector<DimensionProto>& out) {
  while (r.next()) {
    if (r.number() == 1) TESSERA_TRY(parse(r.message(), out.emplace_back()));
  }
  return r.status();
}

// TypeProto.Tensor and TypeProto.SparseTensor.
Status parse_tensor_type(Reader r, TypeProto& out) {
  while (r.next()) {
    switch (r.number()) {
      case 1:
        out.elem_type = r.int32();
        break;
      case 2:
        if (!out.shape) out.shape.emplace();
        TESSERA_TRY(parse(r.message(), *out.shape));
        break;
    }
  }
  return r.status();
}

// TypeProto.Sequence, Optional and Map: the element's type stands in field `element`, a map's key in field 1.
Status parse_container_type(Reader r, uint32_t element, TypeProto& out) {
  out.element.resize(1);
  while (r.next()) {
    if (r.number() == element) {
      TESSERA_TRY(parse(r.message(), out.element[0]));
    } else if (r.number() == 1) {
      out.elem_type = r.int32();
    }
  }
  return r.status();
}

Status parse(Reader r, TypeProto& out) {
  using Kind = TypeProto::Kind;
  auto start = [&](Kind kind) {
    if (out.kind != kind) out = TypeProto();
    out.kind = kind;
    return r.message();
  };
  while (r.next()) {
    switch (r.number()) {
      case 1:
        TESSERA_TRY(parse_tensor_type(start(Kind::tensor), out));
        break;
      case 8:
        TESSERA_TRY(parse_tensor_type(start(Kind::sparse_tensor), out));
        break;
      case 4:
        TESSERA_TRY(parse_container_type(start(Kind::sequence), 1, out));
        break;
      case 9:
        TESSERA_TRY(parse_container_type(start(Kind::optional), 1, out));
        break;
      case 5:
        TESSERA_TRY(parse_container_type(start(Kind::map), 2, out));
        break;
      case 7:
        start(Kind::opaque);
        break;
    }
  }
  return r.status();
}

Status parse(Reader r, ValueInfoProto& out) {
  while (r.next()) {
    switch (r.number()) {
      case 1:
        out.name = r.string();
        break;
      case 2:
        TESSERA_TRY(parse(r.message(), out.type));
        break;
    }
  }
  return r.status();
}

template <class T>
Status append(Reader& r, std::vector<T>& list) {
  return parse(r.message(), list.emplace_back());
}

std::string quoted(std::string_view kind, std::string_view name) {
  return name.empty() ? fmt::format("a nameless {}", kind) : fmt::format("{} '{}'", kind, name);
}

// The kind of value that a field of AttributeProto holds; undefined for its other fields.
AttributeType value_kind(uint32_t field) {
  switch (field) {
    case 2:
      return AttributeType::f32;
    case 3:
      return AttributeType::i64;
    case 4:
      return AttributeType::string;
    case 5:
      return AttributeType::tensor;
    case 6:
      return AttributeType::graph;
    case 7:
      return AttributeType::floats;
    case 8:
      return AttributeType::ints;
    case 9:
      return AttributeType::strings;
    case 10:
      return AttributeType::tensors;
    case 11:
      return AttributeType::graphs;
    case 14:
      return AttributeType::type_proto;
    case 15:
      return AttributeType::type_protos;
    case 22:
      return AttributeType::sparse_tensor;
    case 23:
      return AttributeType::sparse_tensors;
  }
  return AttributeType::undefined;
}

// Gives the attribute the empty value of its type; proto3 writers leave out zeros and empty lists.
Status set_empty(AttributeProto& out) {
  switch (out.type) {
    case AttributeType::f32:
      out.value = 0.0f;
      break;
    case AttributeType::i64:
      out.value = int64_t{0};
      break;
    case AttributeType::string:
      out.value = std::string_view();
      break;
    case AttributeType::floats:
      out.value = std::vector<float>();
      break;
    case AttributeType::ints:
      out.value = std::vector<int64_t>();
      break;
    case AttributeType::strings:
      out.value = std::vector<std::string_view>();
      break;
    case AttributeType::tensors:
      out.value = std::vector<TensorProto>();
      break;
    case AttributeType::graphs:
      out.value = std::vector<GraphProto>();
      break;
    case AttributeType::sparse_tensors:
      out.value = std::vector<SparseTensorProto>();
      break;
    case AttributeType::type_protos:
      out.value = std::vector<TypeProto>();
      break;
    default:
      return fail(Code::model_malformed, "attribute '{}' is of type {} but holds no value", out.name, name(out.type));
  }
  return {};
}

// The attribute's list of T, made when it is not there yet.
template <class T>
std::vector<T>& list_of(AttributeProto& out) {
  if (!std::holds_alternative<std::vector<T>>(out.value)) out.value.emplace<std::vector<T>>();
  return std::get<std::vector<T>>(out.value);
}

// The attribute's single T. A second occurrence of the field merges into the first, as protobuf says.
template <class T>
Status parse_single(Reader& r, AttributeProto& out) {
  std::vector<T>& list = list_of<T>(out);
  if (list.empty()) list.emplace_back();
  return parse(r.message(), list[0]);
}

Status parse_value(Reader& r, AttributeType kind, AttributeProto& out) {
  switch (kind) {
    case AttributeType::f32:
      out.value = r.float32();
      break;
    case AttributeType::i64:
      out.value = r.int64();
      break;
    case AttributeType::string:
      out.value = r.string();
      break;
    case AttributeType::floats:
      r.append(list_of<float>(out));
      break;
    case AttributeType::ints:
      r.append(list_of<int64_t>(out));
      break;
    case AttributeType::strings:
      list_of<std::string_view>(out).push_back(r.string());
      break;
    case AttributeType::tensor:
      return parse_single<TensorProto>(r, out);
    case AttributeType::graph:
      return parse_single<GraphProto>(r, out);
    case AttributeType::sparse_tensor:
      return parse_single<SparseTensorProto>(r, out);
    case AttributeType::type_proto:
      return parse_single<TypeProto>(r, out);
    case AttributeType::tensors:
      return append(r, list_of<TensorProto>(out));
    case AttributeType::graphs:
      return append(r, list_of<GraphProto>(out));
    case AttributeType::sparse_tensors:
      return append(r, list_of<SparseTensorProto>(out));
    case AttributeType::type_protos:
      return append(r, list_of<TypeProto>(out));
    case AttributeType::undefined:
      break;
  }
  return {};
}

Status parse(Reader r, AttributeProto& out) {
  AttributeType held = AttributeType::undefined;
  while (r.next()) {
    switch (r.number()) {
      case 1:
        out.name = r.string();
        continue;
      case 20:
        out.type = static_cast<AttributeType>(r.int32());
        continue;
      case 21:
        out.ref_attr_name = r.string();
        continue;
    }
    const AttributeType kind = value_kind(r.number());
    if (kind == AttributeType::undefined) continue;
    if (held != AttributeType::undefined && kind != held)
      return fail(Code::model_malformed, "attribute '{}' holds two values, {} and {}", out.name, name(held),
                  name(kind));
    held = kind;
    TESSERA_TRY(parse_value(r, kind, out));
  }
  TESSERA_TRY(r.status());
  if (out.name.empty()) return fail(Code::model_malformed, "an attribute has no name");
  if (!out.ref_attr_name.empty()) {
    out.value = std::monostate();
    return {};
  }
  // IR version 1 had no type field: there the value tells the type.
  if (out.type == AttributeType::undefined) out.type = held;
  if (held == AttributeType::undefined) return set_empty(out);
  if (out.type != held)
    return fail(Code::model_malformed, "attribute '{}' says that it is of type {} but holds {}", out.name,
                name(out.type), name(held));
  return {};
}

Status parse(Reader r, NodeProto& out) {
  while (r.next()) {
    switch (r.number()) {
      case 1:
        out.input.push_back(r.string());
        break;
      case 2:
        out.output.push_back(r.string());
        break;
      case 3:
        out.name = r.string();
        break;
      case 4:
        out.op_type = r.string();
        break;
      case 5:
        if (Status s = append(r, out.attribute); !s)
          return tl::unexpected(std::move(s).error().within(fmt::format(
              "reading {}", quoted(out.op_type.empty() ? "node" : fmt::format("{} node", out.op_type), out.name))));
        break;
      case 7:
        out.domain = r.string();
        break;
      case 8:
        out.overload = r.string();
        break;
      case 9:
        TESSERA_TRY(append(r, out.metadata_props));
        break;
    }
  }
  TESSERA_TRY(r.status());
  if (out.op_type.empty()) return fail(Code::model_malformed, "{} names no operator", quoted("node", out.name));
  return {};
}

Status parse(Reader r, GraphProto& out) {
  while (r.next()) {
    switch (r.number()) {
      case 1:
        TESSERA_TRY(append(r, out.node));
        break;
      case 2:
        out.name = r.string();
        break;
      case 5:
        TESSERA_TRY(append(r, out.initializer));
        break;
      case 11:
        TESSERA_TRY(append(r, out.input));
        break;
      case 12:
        TESSERA_TRY(append(r, out.output));
        break;
      case 13:
        TESSERA_TRY(append(r, out.value_info));
        break;
      case 15:
        TESSERA_TRY(append(r, out.sparse_initializer));
        break;
      case 16:
        TESSERA_TRY(append(r, out.metadata_props));
        break;
    }
  }
  return r.status();
}

Status parse(Reader r, FunctionProto& out) {
  while (r.next()) {
    switch (r.number()) {
      case 1:
        out.name = r.string();
        break;
      case 4:
        out.input.push_back(r.string());
        break;
      case 5:
        out.output.push_back(r.string());
        break;
      case 6:
        out.attribute.push_back(r.string());
        break;
      case 7:
        TESSERA_TRY(append(r, out.node));
        break;
      case 9:
        TESSERA_TRY(append(r, out.opset_import));
        break;
      case 10:
        out.domain = r.string();
        break;
      case 11:
        TESSERA_TRY(append(r, out.attribute_proto));
        break;
      case 12:
        TESSERA_TRY(append(r, out.value_info));
        break;
      case 13:
        out.overload = r.string();
        break;
    }
  }
  return r.status();
}

}  // namespace

std::string_view name(AttributeType type) {
  constexpr std::string_view kNames[] = {
      "UNDEFINED", "FLOAT",   "INT",    "STRING",        "TENSOR",         "GRAPH",      "FLOATS",     "INTS",
      "STRINGS",   "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"};
  const auto index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

Status parse(Reader r, TensorProto& out) {
  if (out.message.data() != nullptr) return fail(Code::model_malformed, "tensor '{}' is given in two parts", out.name);
  out.message = r.rest();
  while (r.next()) {
    switch (r.number()) {
      case 1:
        r.append(out.dims);
        break;
      case 2:
        out.data_type = r.int32();
        break;
      case 3:
        out.segmented = true;
        break;
      case 8:
        out.name = r.string();
        break;
      case 9:
        out.raw_data = r.bytes();
        break;
      case 13:
        TESSERA_TRY(append(r, out.external_data));
        break;
      case 14:
        out.external = r.int32() == 1;
        break;
    }
  }
  return r.status();
}

Status parse(Reader r, SparseTensorProto& out) {
  while (r.next()) {
    switch (r.number()) {
      case 1:
        TESSERA_TRY(parse(r.message(), out.values));
        break;
      case 2:
        TESSERA_TRY(parse(r.message(), out.indices));
        break;
      case 3:
        r.append(out.dims);
        break;
    }
  }
  return r.status();
}

Result<ModelProto> parse_model(Bytes file) {
  ModelProto out;
  bool has_graph = false;
  Reader r(file);
  while (r.next()) {
    switch (r.number()) {
      case 1:
        out.ir_version = r.int64();
        break;
      case 2:
        out.producer_name = r.string();
        break;
      case 3:
        out.producer_version = r.string();
        break;
      case 4:
        out.domain = r.string();
        break;
      case 5:
        out.model_version = r.int64();
        break;
      case 7:
        has_graph = true;
        TESSERA_TRY(parse(r.message(), out.graph));
        break;
      case 8:
        TESSERA_TRY(append(r, out.opset_import));
        break;
      case 14:
        TESSERA_TRY(append(r, out.metadata_props));
        break;
      case 25:
        TESSERA_TRY(append(r, out.functions));
        break;
    }
  }
  TESSERA_TRY(r.status());
  if (!has_graph) return fail(Code::model_malformed, "the {} bytes hold no graph", file.size());
  return out;
}

Result<TensorProto> parse_tensor(Bytes message) {
  TensorProto out;
  TESSERA_TRY(parse(Reader(message), out));
  return out;
}

}  // namespace tessera::onnx
