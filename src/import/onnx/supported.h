// Which operators of a model have no import.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "import/onnx/proto.h"

namespace tessera::onnx {

// ai.onnx has two spellings, of which one is empty.
std::string_view normal_domain(std::string_view domain);

// The function of the model that the node calls; nullptr when it is an operator.
const FunctionProto* find_function(const ModelProto& model, const NodeProto& node);

struct UnsupportedOp {
  std::string op;  // with its domain, except for ai.onnx's
  std::vector<std::string> nodes;
};
// All of them, nested graphs and functions included, in the order of their names.
std::vector<UnsupportedOp> unsupported_ops(const ModelProto& model);
// E0401 that lists them, with counts and the first nodes' names.
Status check_supported(const ModelProto& model);

}  // namespace tessera::onnx
