// The reference interpreter: the one semantics. It evaluates primitives in exact arithmetic (doubles, exact integers)
// and composites through their meaning, and rounds each result to its declared type.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/array.h"
#include "ir/op_def.h"

namespace tessera::ir {

// What a ReferenceFn sees and sets.
class Eval {
 public:
  const OpDef& op;
  A attrs;
  std::span<const RefValue* const> operands;  // nullptr where absent
  std::span<const Graph> regions;
  Context* context;                      // null while running on concrete values only
  const class Interpreter* interpreter;  // runs regions
  TypeRef result_type(int i) const { return result_types[i]; }
  std::span<const TypeRef> result_types;  // declared types; shapes may hold symbols
  std::vector<RefValue> results = {};     // to be set

  bool has(int i) const { return i < static_cast<int>(operands.size()) && operands[i] != nullptr; }
  const Array& in(int i) const { return operands[i]->array(); }
  void out(Array array);
  void out(RefValue value) { results.push_back(std::move(value)); }
  // A Dim under the bindings of this run.
  Result<int64_t> evaluate(Dim d) const;
  const DimBindings* bindings = nullptr;
};

struct InterpreterOptions {
  bool round = true;                        // round each result to its declared type
  int64_t max_iterations = 1 << 24;         // of one loop
  const std::atomic<bool>* stop = nullptr;  // E0504 once it is true: looked at before each graph and after each node
  // Called with each node's results, in the graph's own words; stops the run when it returns an error.
  std::function<Status(const Graph&, NodeId, std::span<const RefValue>)> on_node = {};
};

class Interpreter {
 public:
  explicit Interpreter(InterpreterOptions options = {}) : options_(std::move(options)) {}

  // Runs a graph on concrete inputs. Checks the inputs against the graph's types (E0302, E0303, E0312 name the input).
  Result<std::vector<RefValue>> run(const Graph& graph, std::span<const RefValue> inputs) const;
  // Runs one operator. `types` are its declared result types (may be empty for composites).
  Result<std::vector<RefValue>> run_node(const OpDef& op, const Attrs& attrs, std::span<const RefValue* const> operands,
                                         std::span<const TypeRef> types, std::span<const Graph> regions,
                                         Context* context, const DimBindings* bindings) const;
  // Runs a nested graph; symbols of the graph around it are bound as `bindings` says.
  Result<std::vector<RefValue>> run_region(const Graph& region, std::span<const RefValue> inputs,
                                           const DimBindings* bindings) const;
  const InterpreterOptions& options() const { return options_; }

 private:
  Result<std::vector<RefValue>> run_bound(const Graph& graph, std::span<const RefValue> inputs,
                                          DimBindings bindings) const;
  InterpreterOptions options_;
};

// Checks the guards that the sizes of these inputs decide, and nothing else. E0312 says which one they break: the graph
// was made under an assumption that does not hold for them.
Status check_guards(const Graph& graph, std::span<const RefValue> inputs);

// Runs a node over Dims: shape folding. nullopt when the op does not fold or a comparison cannot be decided.
std::optional<std::vector<Shape>> fold_dims(const OpDef& op, const Attrs& attrs, std::span<const TypeRef> types,
                                            std::span<const Shape* const> contents, std::span<const TypeRef> results,
                                            Context& context);

Result<RefValue> to_ref(const Value& value);
Result<Value> from_ref(const RefValue& value);

}  // namespace tessera::ir
