// Matching what a caller gives with what a model takes.
#pragma once

#include "tessera/session.h"

namespace tessera::engine {

// The values in the model's order. E0501 names all that are missing, E0502 one that the model does not have, E0203 one
// given twice, E0302, E0303 and E0312 a type or shape that the model does not take or sizes of one name that differ.
// Optional inputs that are not given are absent.
Result<std::vector<Value>> bind_inputs(const std::vector<ValueInfo>& inputs, std::span<const NamedValue> given);

// "f32[2, 3]": the type of a value as it is.
std::string type_text(const Value& value);

}  // namespace tessera::engine
