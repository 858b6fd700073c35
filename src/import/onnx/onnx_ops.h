// The import functions, declared from the list, and what several of them write.
#pragma once

#include "import/onnx/node_import.h"

namespace tessera::onnx {

#define TESSERA_ONNX(domain, op_type, since, function) Status function(NodeImport& n);
#include "import/onnx/onnx_ops.def"
#undef TESSERA_ONNX

inline X apply(const ir::OpDef& op, X x, std::vector<AttrValue> attrs = {}) {
  return x.builder->add1(op, {x}, std::move(attrs));
}
inline X apply(const ir::OpDef& op, X a, X b) { return a.builder->add1(op, {a, b}); }
// ONNX lets one element of rank 1 stand where a scalar is meant.
inline X scalar_of(X x) { return x && x.type()->is_tensor() && x.rank() > 0 ? reshape(x, {}) : x; }
inline X as_f64(Builder& b, Dim size) { return cast(b.size(size), DType::f64); }

}  // namespace tessera::onnx
