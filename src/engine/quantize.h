// Files of weights in smaller types.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "tessera/error.h"

namespace tessera::engine {

struct QuantizeOptions {
  std::string recipe;          // as find_recipe takes it
  ThreadPool* pool = nullptr;  // null: one thread
  // Told before each tensor; stops the work when it returns an error.
  std::function<Status(size_t tensor, size_t of)> progress = {};
};

struct QuantizedKind {
  std::string type;
  int64_t tensors = 0;
  int64_t bytes = 0;
  double error = 0;  // what rounding moved, relative to the values, as root mean squares
};

struct QuantizeReport {
  int64_t bytes_before = 0;  // of all tensors
  int64_t bytes_after = 0;
  std::vector<QuantizedKind> kinds;  // by type, in the order in which they were met
};

// Reads a GGUF file, or a folder as Hugging Face's libraries write it, and writes a GGUF file with the same metadata
// and its matrices in the recipe's types. Vectors, and matrices whose rows divide into no block, stay as they are.
// E0801 for an unknown recipe, E0402 for a model that GGUF cannot hold, and what reading, converting and writing find
// wrong.
Result<QuantizeReport> quantize(const std::string& from, const std::string& to, const QuantizeOptions& options);

}  // namespace tessera::engine
