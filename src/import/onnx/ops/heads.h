// What the attention operators share: heads in and out of columns, and columns turned by their position.
#pragma once

#include "import/onnx/node_import.h"

namespace tessera::onnx {

// x [B, T, H * D] as [B, H, T, D]; `which` names the attribute that says how many heads there are.
Result<X> split_heads(NodeImport& n, X x, int64_t heads, std::string_view which);
// x [B, H, T, D] as [B, T, H * D].
X join_heads(X x);
// The first 2 * half columns of x [B, H, T, D] in pairs, turned by the angles whose cosines and sines are c and s
// [B|1, 1, T|1, half]: column i with column half + i, or, interleaved, 2 i with 2 i + 1. Su et al. 2021.
X rotated(X x, X c, X s, Dim half, bool interleaved);

}  // namespace tessera::onnx
