// Compares the optimised model with the reference.
#pragma once

#include <optional>

#include "engine/compare.h"
#include "tessera/session.h"

namespace tessera::engine {

// How far an output may be from the reference: max|a - b| / max|b|. Integers and booleans must be equal (0). A model is
// many kernels deep, so this is wider than what one operator is held to.
double verify_tolerance(DType dtype);

struct OutputVerdict {
  std::string name;
  bool ok = false;
  double tolerance = 0;
  std::optional<Distance> distance;  // of tensors whose types and shapes agree
  std::string why;                   // when not ok
};

struct Verdict {
  bool ok = true;
  std::vector<OutputVerdict> outputs;
  // The output furthest beyond (or nearest to) its tolerance; nullptr when there is none.
  const OutputVerdict* worst() const;
};

// Runs the model twice, as `options` say and on the reference interpreter. `tolerance` replaces that of all float types
// when it is not 0.
Result<Verdict> verify(const Model& model, SessionOptions options, std::span<const NamedValue> inputs, double tolerance,
                       const std::atomic<bool>* stop = nullptr);

}  // namespace tessera::engine
