// Products that more than one operator asks for.
#pragma once

#include "import/onnx/node_import.h"

namespace tessera::onnx {

// numpy's matmul: an operand with one axis is a row on the left and a column on the right.
X any_matmul(NodeImport& n, X a, X b);
// alpha a' b' + beta c, as Gemm's attributes and inputs say.
Result<X> gemm(NodeImport& n);

}  // namespace tessera::onnx
