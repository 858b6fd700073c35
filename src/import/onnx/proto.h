// The messages of an ONNX file (onnx.proto up to IR version 13), parsed in place: all text and tensor bytes point into
// the file, which must outlive them. Field names are ONNX's. What Tessera has no use for is skipped: doc strings,
// training information, quantization annotations, device configurations.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/protobuf.h"
#include "tessera/error.h"

namespace tessera::onnx {

using protobuf::Bytes;

// TensorProto.DataType.
enum class DataType : int32_t {
  undefined = 0,
  f32 = 1,
  u8 = 2,
  i8 = 3,
  u16 = 4,
  i16 = 5,
  i32 = 6,
  i64 = 7,
  string = 8,
  boolean = 9,
  f16 = 10,
  f64 = 11,
  u32 = 12,
  u64 = 13,
  complex64 = 14,
  complex128 = 15,
  bf16 = 16,
  f8e4m3fn = 17,
  f8e4m3fnuz = 18,
  f8e5m2 = 19,
  f8e5m2fnuz = 20,
  u4 = 21,
  i4 = 22,
  f4e2m1 = 23,
  f8e8m0 = 24,
  u2 = 25,
  i2 = 26,
};

struct StringStringEntryProto {
  std::string_view key, value;
};

struct OperatorSetIdProto {
  std::string_view domain;  // empty for ai.onnx
  int64_t version = 0;
};

struct TensorProto {
  std::string_view name;
  std::vector<int64_t> dims;
  int32_t data_type = 0;  // a DataType, or a number that we do not know
  std::optional<Bytes> raw_data;
  Bytes message;  // the whole message: the typed data fields are read from here when they are needed
  std::vector<StringStringEntryProto> external_data;
  bool external = false;   // data_location is EXTERNAL
  bool segmented = false;  // only part of a tensor
};

// Values at `indices`, zero elsewhere. Its name is that of `values`.
struct SparseTensorProto {
  TensorProto values;   // [NNZ]
  TensorProto indices;  // [NNZ] linear, or [NNZ, rank]
  std::vector<int64_t> dims;
};

struct DimensionProto {
  std::optional<int64_t> dim_value;
  std::string_view dim_param;  // empty when the dimension is unknown and unnamed
};

struct TypeProto {
  enum class Kind : uint8_t { none, tensor, sparse_tensor, sequence, optional, map, opaque };

  Kind kind = Kind::none;
  int32_t elem_type = 0;                             // of tensors (a DataType); of maps, the key's
  std::optional<std::vector<DimensionProto>> shape;  // of tensors; absent when even the rank is unknown
  std::vector<TypeProto> element;                    // one for sequences, optionals and maps (the value's type)
};

struct ValueInfoProto {
  std::string_view name;
  TypeProto type;
};

struct GraphProto;

// AttributeProto.AttributeType.
enum class AttributeType : int32_t {
  undefined = 0,
  f32 = 1,
  i64 = 2,
  string = 3,
  tensor = 4,
  graph = 5,
  floats = 6,
  ints = 7,
  strings = 8,
  tensors = 9,
  graphs = 10,
  sparse_tensor = 11,
  sparse_tensors = 12,
  type_proto = 13,
  type_protos = 14,
};
// "INTS", ...: as ONNX spells it.
std::string_view name(AttributeType type);

struct AttributeProto {
  std::string_view name;
  std::string_view ref_attr_name;  // set in function bodies: the value is the function's attribute of this name
  AttributeType type = AttributeType::undefined;
  // What `type` says; single tensors, graphs, ... are vectors of one. Empty only for references.
  std::variant<std::monostate, float, int64_t, std::string_view, std::vector<float>, std::vector<int64_t>,
               std::vector<std::string_view>, std::vector<TensorProto>, std::vector<GraphProto>,
               std::vector<SparseTensorProto>, std::vector<TypeProto>>
      value;

  // The value when the attribute is of the type asked for; null otherwise.
  const float* f() const { return std::get_if<float>(&value); }
  const int64_t* i() const { return std::get_if<int64_t>(&value); }
  const std::string_view* s() const { return std::get_if<std::string_view>(&value); }
  const std::vector<float>* floats() const { return std::get_if<std::vector<float>>(&value); }
  const std::vector<int64_t>* ints() const { return std::get_if<std::vector<int64_t>>(&value); }
  const std::vector<std::string_view>* strings() const { return std::get_if<std::vector<std::string_view>>(&value); }
  const TensorProto* t() const { return one<TensorProto>(AttributeType::tensor); }
  const GraphProto* g() const;
  const SparseTensorProto* sparse_tensor() const { return one<SparseTensorProto>(AttributeType::sparse_tensor); }
  const TypeProto* tp() const { return one<TypeProto>(AttributeType::type_proto); }
  const std::vector<TensorProto>* tensors() const { return list<TensorProto>(AttributeType::tensors); }
  const std::vector<GraphProto>* graphs() const { return list<GraphProto>(AttributeType::graphs); }
  const std::vector<TypeProto>* type_protos() const { return list<TypeProto>(AttributeType::type_protos); }
  const std::vector<SparseTensorProto>* sparse_tensors() const {
    return list<SparseTensorProto>(AttributeType::sparse_tensors);
  }

 private:
  template <class T>
  const std::vector<T>* list(AttributeType wanted) const {
    return type == wanted ? std::get_if<std::vector<T>>(&value) : nullptr;
  }
  template <class T>
  const T* one(AttributeType wanted) const {
    const std::vector<T>* values = list<T>(wanted);
    return values == nullptr ? nullptr : &values->front();
  }
};

struct NodeProto {
  std::vector<std::string_view> input;  // an empty name is an absent input
  std::vector<std::string_view> output;
  std::string_view name;  // may be empty
  std::string_view op_type;
  std::string_view domain;  // empty for ai.onnx
  std::string_view overload;
  std::vector<AttributeProto> attribute;
  std::vector<StringStringEntryProto> metadata_props;
};

struct GraphProto {
  std::string_view name;
  std::vector<NodeProto> node;
  std::vector<TensorProto> initializer;
  std::vector<SparseTensorProto> sparse_initializer;
  std::vector<ValueInfoProto> input;
  std::vector<ValueInfoProto> output;
  std::vector<ValueInfoProto> value_info;
  std::vector<StringStringEntryProto> metadata_props;
};

inline const GraphProto* AttributeProto::g() const { return one<GraphProto>(AttributeType::graph); }

struct FunctionProto {
  std::string_view domain;
  std::string_view name;
  std::string_view overload;
  std::vector<std::string_view> input;
  std::vector<std::string_view> output;
  std::vector<std::string_view> attribute;      // that the caller must give
  std::vector<AttributeProto> attribute_proto;  // that have defaults
  std::vector<NodeProto> node;
  std::vector<OperatorSetIdProto> opset_import;
  std::vector<ValueInfoProto> value_info;
};

struct ModelProto {
  int64_t ir_version = 0;
  std::vector<OperatorSetIdProto> opset_import;
  std::string_view producer_name;
  std::string_view producer_version;
  std::string_view domain;
  int64_t model_version = 0;
  GraphProto graph;
  std::vector<FunctionProto> functions;
  std::vector<StringStringEntryProto> metadata_props;
};

// E0103 or E0104 when the bytes are no protobuf message of this kind (with the position); E0201 when they break ONNX's
// own rules: no graph, a node without an operator, an attribute without a name or with two values. Names, types and
// shapes are not looked at. Takes time linear in the file, and memory at most a small multiple of it.
Result<ModelProto> parse_model(Bytes file);
Result<TensorProto> parse_tensor(Bytes message);

// The parsers of the parts that the readers of test data need.
Status parse(protobuf::Reader reader, TensorProto& out);
Status parse(protobuf::Reader reader, SparseTensorProto& out);

}  // namespace tessera::onnx
