// Compares the optimised model with the reference, and finds what made it differ.
#pragma once

#include <optional>

#include "engine/compare.h"
#include "tessera/session.h"

namespace tessera::engine {

// How far a value may be from the reference: max|a - b| / max|b|. Integers and booleans must be equal (0). A model is
// many kernels deep, so this is wider than what one operator is held to.
double verify_tolerance(DType dtype);

struct ValueVerdict {
  std::string name;
  bool output = false;  // of the model; else a value on the way that both graphs have
  bool ok = false;
  double tolerance = 0;
  std::optional<Distance> distance = {};  // of tensors whose types and shapes agree
  std::string why = {};                   // when not ok
};

// What made the optimised model differ.
struct Culprit {
  std::string pass;                      // "kernels" when a kernel is wrong, "memory" when kernels disturb each other
  std::string rule;                      // of the rewrite; the kernel's name
  std::string node;                      // the user's node, "" where it cannot be told
  std::string equation;                  // what was there = what took its place; of a kernel: the operator
  std::vector<std::string> covers = {};  // the user's nodes whose work a kernel does
  int64_t rewrite = -1;                  // how many came before it; -1 when it is no rewrite
  std::string value = {};                // the first value that differs
};

struct Verdict {
  bool ok = true;                    // all outputs agree and nothing is at fault
  std::vector<ValueVerdict> values;  // the outputs first, then those on the way, in order
  std::optional<Culprit> culprit;
  std::string note;  // where values differ and nothing is at fault: why
  // The value furthest beyond (or nearest to) its tolerance; nullptr when there is none.
  const ValueVerdict* worst() const;
};

// Runs the model as `options` say and on the reference interpreter, and compares all named values that both have. Where
// they differ, looks for the first rewrite whose graph gives another value on the reference interpreter, started from
// the nearest values that agree; then for a kernel that gives something else than the reference does for the kernel's
// own operands. `tolerance` replaces that of all float types when it is not 0.
Result<Verdict> verify(const Model& model, SessionOptions options, std::span<const NamedValue> inputs, double tolerance,
                       const std::atomic<bool>* stop = nullptr);

}  // namespace tessera::engine
