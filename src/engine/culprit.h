// Which rewrite or kernel made a value differ.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>

#include "engine/compiled.h"
#include "engine/verify.h"
#include "ir/interpreter.h"

namespace tessera::engine {

// What the reference says of a model at some inputs.
struct Reference {
  const ir::Graph& graph;  // as imported
  std::vector<ir::RefValue> inputs;
  std::vector<ir::RefValue> outputs = {};
  std::unordered_map<ir::NameId, ir::RefValue> named = {};
  const std::atomic<bool>* stop = nullptr;
};

// A value of the model that both graphs have: a named one, or an output.
struct Compared {
  ir::NameId name = 0;
  int output = -1;  // its position; -1: it is none
  bool agrees = false;
};

// Whether a value is what the reference says, up to the tolerance of its type.
using Agrees = std::function<bool(const ir::RefValue& actual, const ir::RefValue& expected)>;

// Looks among the rewrites: the value that differs first when the optimised graph runs on the reference interpreter
// from the values that agree, and the rewrite that made it so. Nothing when no rewrite is at fault.
Result<std::optional<Culprit>> guilty_rewrite(const Reference& reference, std::span<const Compared> values,
                                              const CompileOptions& options, const Agrees& agrees);

// The values of a plan's own run, and which step made each.
struct Traced {
  const ir::Graph& graph;           // the one that was lowered
  std::vector<ir::ValueId> values;  // in order
  std::vector<ir::RefValue> actual;
  std::unordered_map<ir::NodeId, std::string> kernels;  // by node
  std::unordered_map<ir::NodeId, ir::LocId> places;     // of the nodes and the views that they read through
};

// Looks among the kernels: the first that does not give what the reference gives for the kernel's own operands.
Result<std::optional<Culprit>> guilty_kernel(const Reference& reference, const Traced& traced, const Agrees& agrees);

}  // namespace tessera::engine
