// NumPy's .npy files (NEP 1, format versions 1 to 3).
//
// Types that NumPy lacks are stored as the ml_dtypes package stores them: bf16 as raw bytes of two ('|V2'), the float8
// and float4 types one element a byte ('|V1'); `array.view(ml_dtypes.bfloat16)` gives their meaning back. The packed
// integers are stored as plain int8 and uint8 values.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tessera/tensor.h"

namespace tessera {

// The array of a whole file, borrowing its bytes (kept alive by `keep`) when their order and alignment allow.
// `expected` is the type that the caller wants: '|V1' is read as that type, and int8 values become a packed integer
// type; otherwise it is not looked at, and the result has the file's type. Raw bytes of two are bf16 without being
// asked. E0103 when the data ends early, E0104 when the file is no .npy, E0313 for impossible shapes, E0402 for types
// that are not numbers, E0505 for an integer that the packed type cannot hold.
Result<Tensor> parse_npy(std::span<const std::byte> file, std::shared_ptr<const void> keep = nullptr,
                         std::optional<DType> expected = std::nullopt);
Result<Tensor> read_npy(const std::string& path, std::optional<DType> expected = std::nullopt);

// The file appears whole or not at all. E0402 for strings.
Status write_npy(const std::string& path, const Tensor& tensor);

}  // namespace tessera
