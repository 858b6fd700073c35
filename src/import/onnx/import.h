// ONNX models as graphs.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "ir/graph.h"

namespace tessera::onnx {

struct ImportOptions {
  // What is known of the model's named dimensions: one value (lo == hi), or a range.
  std::map<std::string, DimBounds, std::less<>> dims = {};
  // Fixes whole input shapes by input name; wins over `dims`. Used to compile for one concrete shape.
  std::map<std::string, Dims, std::less<>> input_shapes = {};
  // Fixes the elements of small integer inputs by name: what a model reads axes or sizes from. A model for which that
  // is needed fails with E0317 without them; the graph then holds only for runs with these very values.
  std::map<std::string, std::vector<int64_t>, std::less<>> input_values = {};
};

// Reads a model file: every operator becomes primitives and composites of src/ops. Weights stay in the mapped file.
// Errors name the user's node and file. Operators that are not supported are all listed at once (E0401).
Result<ir::Graph> import_onnx(const std::string& path, const ImportOptions& options = {});

// The same from bytes that `keep` keeps alive; external data is looked for in `folder` (none is allowed when it is
// empty).
Result<ir::Graph> import_onnx(std::span<const std::byte> bytes, std::shared_ptr<const void> keep,
                              const std::string& folder, const ImportOptions& options = {});

// The newest operator set that is understood.
constexpr int64_t kNewestOpset = 27;

}  // namespace tessera::onnx
