// What the operators of the com.microsoft domain share. Their rules: onnxruntime's docs/ContribOperators.md.
#pragma once

#include "import/onnx/node_import.h"

namespace tessera::onnx {

// E0402 when the attribute has any value but `only`.
Status only_attribute(NodeImport& n, std::string_view name, int64_t only);
// E0402 when input i is given; `what` names it.
Status no_input(NodeImport& n, int i, std::string_view what);
// E0402 when output i is asked for; `what` names it.
Status no_output(NodeImport& n, int i, std::string_view what);

// a b in f32, with a and b quantized integers whose scales and zero points may be absent: one for all, one a row of a
// [M], one a column of b [N]. bias [N] or absent.
struct Quantized {
  X x, scale, zero;
};
Result<X> dequantized_product(NodeImport& n, const Quantized& a, const Quantized& b, Opt bias);

}  // namespace tessera::onnx
