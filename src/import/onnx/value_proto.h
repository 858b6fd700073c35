// Files of ONNX test data: a TensorProto, SequenceProto or OptionalProto each (onnx-data.proto). The bytes do not tell
// which of the three they are; the model's type of the input or output does.
#pragma once

#include <string>
#include <string_view>

#include "import/onnx/tensor_proto.h"

namespace tessera::onnx {

enum class ValueKind : uint8_t { tensor, sequence, optional };

// Reads a value of the expected kind. `element` is the type that an empty sequence gets. E0103, E0104 when the bytes
// are no message of that kind, E0402 for maps, and to_tensor's errors.
Result<Value> parse_value(Bytes file, ValueKind kind, DType element, const TensorSource& source);

// The value as a serialised message of its kind.
std::string serialize(const Value& value, std::string_view name);

}  // namespace tessera::onnx
