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
// (x - zero) * scale in f32, with one scale and zero point; the zero point may be absent.
X dequantized(X x, X scale, Opt zero);
// A scale or zero point that is one number, as a scalar.
X one_number(X s);
// (a - a0)(b - b0) in i32, as numpy's matmul: a0 is one number or one a row [M], b0 one number or one a column [N].
X integer_product(NodeImport& n, X a, Opt a0, X b, Opt b0);

}  // namespace tessera::onnx
