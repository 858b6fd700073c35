// The import functions, declared from the list.
#pragma once

#include "import/onnx/node_import.h"

namespace tessera::onnx {

#define TESSERA_ONNX(domain, op_type, since, function) Status function(NodeImport& n);
#include "import/onnx/onnx_ops.def"
#undef TESSERA_ONNX

}  // namespace tessera::onnx
