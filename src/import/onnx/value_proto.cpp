#include "import/onnx/value_proto.h"

#include "base/result.h"

namespace tessera::onnx {
namespace {

using protobuf::Reader;

// SequenceProto and OptionalProto have the same fields; the sequence's are repeated. Field 2 says which is used:
// 1 tensor, 2 sparse tensor, 3 sequence, 4 map, 5 optional: the field's number less 2.
constexpr uint32_t kName = 1, kElementKind = 2, kTensor = 3, kSparseTensor = 4, kSequence = 5, kMap = 6, kOptional = 7;

struct Context {
  DType element;
  const TensorSource& source;
};

Result<Value> read_optional(Reader r, const Context& context);

Result<Value> read_tensor_value(Reader r, const Context& context) {
  TensorProto proto;
  TESSERA_TRY(parse(r, proto));
  TESSERA_ASSIGN(Tensor tensor, to_tensor(proto, context.source));
  return Value(std::move(tensor));
}

// The element type of the tensors inside a value; nothing when there are none.
std::optional<DType> element_of(const Value& value) {
  if (const Tensor* tensor = value.tensor()) return tensor->dtype();
  if (const Sequence* sequence = value.sequence()) {
    for (const Value& item : sequence->items)
      if (std::optional<DType> found = element_of(item)) return found;
    return std::nullopt;
  }
  const Optional* optional = value.optional();
  return optional->value != nullptr ? element_of(*optional->value) : std::nullopt;
}

Result<Value> read_sequence(Reader r, const Context& context);

// The value in one of the fields above.
Result<Value> read_item(Reader& r, const Context& context) {
  switch (r.number()) {
    case kTensor:
      return read_tensor_value(r.message(), context);
    case kSparseTensor: {
      SparseTensorProto proto;
      TESSERA_TRY(parse(r.message(), proto));
      TESSERA_ASSIGN(Tensor tensor, to_dense(proto, context.source));
      return Value(std::move(tensor));
    }
    case kSequence:
      return read_sequence(r.message(), context);
    case kOptional:
      return read_optional(r.message(), context);
    case kMap:
      return fail(Code::unsupported_feature, "the value holds a map, which Tessera has no values for");
  }
  return fail(Code::internal, "field {} holds no value", r.number());
}

Result<Value> read_sequence(Reader r, const Context& context) {
  Sequence sequence{context.element, {}};
  while (r.next()) {
    if (r.number() < kTensor || r.number() > kOptional) continue;
    TESSERA_ASSIGN(Value item, read_item(r, context));
    sequence.items.push_back(std::move(item));
  }
  TESSERA_TRY(r.status());
  std::optional<DType> element;
  for (const Value& item : sequence.items) {
    const std::optional<DType> own = element_of(item);
    if (item.held.index() != sequence.items[0].held.index())
      return fail(Code::model_malformed, "a sequence mixes tensors, sequences and optionals");
    if (element && own && *element != *own)
      return fail(Code::model_malformed, "a sequence mixes elements of type {} and {}", name(*element), name(*own));
    if (own) element = own;
  }
  if (element) sequence.element = *element;
  return Value(std::move(sequence));
}

Result<Value> read_optional(Reader r, const Context& context) {
  Optional optional;
  int32_t kind = 0;
  while (r.next()) {
    if (r.number() == kElementKind) kind = r.int32();
    if (r.number() < kTensor || r.number() > kOptional) continue;
    TESSERA_ASSIGN(Value item, read_item(r, context));
    optional.value = std::make_shared<const Value>(std::move(item));
  }
  TESSERA_TRY(r.status());
  if (kind != 0 && optional.value == nullptr)
    return fail(Code::model_malformed, "an optional says that it holds a value of kind {} but holds none", kind);
  return Value(std::move(optional));
}

// Appends the value under the field of its kind.
void write_item(protobuf::Writer& out, const Value& value) {
  const uint32_t field = value.tensor() != nullptr ? kTensor : value.sequence() != nullptr ? kSequence : kOptional;
  out.string(field, serialize(value, {}));
}

// The kind that field 2 tells; 0 for none.
int64_t kind_of(const Value* value) {
  if (value == nullptr) return 0;
  return (value->tensor() != nullptr ? kTensor : value->sequence() != nullptr ? kSequence : kOptional) - 2;
}

}  // namespace

Result<Value> parse_value(Bytes file, ValueKind kind, DType element, const TensorSource& source) {
  const Context context{element, source};
  switch (kind) {
    case ValueKind::tensor:
      return read_tensor_value(Reader(file), context);
    case ValueKind::sequence:
      return read_sequence(Reader(file), context);
    case ValueKind::optional:
      return read_optional(Reader(file), context);
  }
  return fail(Code::internal, "a value of kind {}", static_cast<int>(kind));
}

std::string serialize(const Value& value, std::string_view name) {
  if (const Tensor* tensor = value.tensor()) return serialize(*tensor, name);
  protobuf::Writer out;
  if (!name.empty()) out.string(kName, name);
  if (const Sequence* sequence = value.sequence()) {
    // An empty sequence is one of tensors.
    out.int64(kElementKind, sequence->items.empty() ? kTensor - 2 : kind_of(&sequence->items[0]));
    for (const Value& item : sequence->items) write_item(out, item);
  } else {
    const Value* held = value.optional()->value.get();
    out.int64(kElementKind, kind_of(held));
    if (held != nullptr) write_item(out, *held);
  }
  return out.take();
}

}  // namespace tessera::onnx
