// Reads the elements of constants in the graph's text form.
#pragma once

#include <functional>
#include <string>

#include "ir/text_reader.h"

namespace tessera::ir {

// Elements that lie outside of the text: bytes [offset, offset + length) of `file`, a path relative to the folder that
// the graph's file is in.
struct ExternalData {
  std::string file;
  int64_t offset = 0;
  int64_t length = 0;
  bool operator==(const ExternalData&) const = default;
};

// Gives such elements. The tensor must have this type and shape, whose elements take `data.length` bytes.
using ExternalLoader = std::function<Result<Tensor>(const ExternalData& data, DType dtype, const Dims& shape)>;

// "[1, 2, 3]", "all 0" or "file "w" offset 0 length 12". `uniform_bytes_left`: what constants written "all x" may still
// take together.
Result<Tensor> read_constant(TextReader& reader, DType dtype, const Dims& shape, size_t& uniform_bytes_left,
                             const ExternalLoader& load);

}  // namespace tessera::ir
