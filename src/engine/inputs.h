// Matching what a caller gives with what a model takes.
#pragma once

#include "tessera/session.h"

namespace tessera::engine {

// Whether a size of this name may be `size`: E0316 names both when one of `dims` says no.
Status check_dim(std::span<const DimRange> dims, std::string_view name, int64_t size, std::string_view input);

// The values in the model's order. E0501 names all that are missing, E0502 one that the model does not have, E0203 one
// given twice, E0302, E0303 and E0312 a type or shape that the model does not take or sizes of one name that differ,
// E0316 a size outside of what `dims` declare.
// Optional inputs that are not given are absent.
Result<std::vector<Value>> bind_inputs(const std::vector<ValueInfo>& inputs, std::span<const NamedValue> given,
                                       std::span<const DimRange> dims = {});

// "f32[2, 3]": the type of a value as it is.
std::string type_text(const Value& value);

}  // namespace tessera::engine
