// What the quantized operators share.
#pragma once

#include "import/onnx/node_import.h"

namespace tessera::onnx {

// x - zero in i32 (f32 for float8); the zero point may be absent.
X centred(X x, Opt zero);
// The f32 value rounded to the nearest (even) of an integer type's values, past its ends to the end; float types round
// as Cast does.
X saturated(X x, DType to, bool saturate = true);
// sum * scale + zero in zero's type.
X requantized(X sum, X scale, X zero);

}  // namespace tessera::onnx
