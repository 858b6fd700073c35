// The importer's state: the model, its functions, and the scopes of names.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/name_table.h"
#include "import/onnx/import.h"
#include "import/onnx/node_import.h"
#include "import/onnx/tensor_proto.h"

namespace tessera::onnx {

// Names visible in one graph. A nested graph reaches names outside it through captures: each becomes an input of its
// own graph.
class Scope {
 public:
  // A scope of its own graph, or of the same graph as `outer` (function bodies, inlined branches).
  Scope(Builder& builder, Scope* outer) : builder_(builder), outer_(outer) {}
  Builder& builder() { return builder_; }

  void bind(std::string_view name, X x) { *names_.add(name, x).first = x; }
  void reserve(size_t more) { names_.reserve(names_.size() + more); }
  bool binds(std::string_view name) const { return names_.contains(name); }
  // The value of the name here; absent when no scope has it.
  X find(std::string_view name);

  struct Capture {
    X outer;            // in the enclosing graph
    ir::ValueId inner;  // the input of this graph
  };
  const std::vector<Capture>& captures() const { return captures_; }

  // What attributes that refer to the enclosing function's stand for.
  std::map<std::string_view, const AttributeProto*> function_attributes = {};
  // A function body sees only its own names.
  bool closed = false;
  const std::vector<OperatorSetIdProto>* opsets = nullptr;
  int depth = 0;

 private:
  Builder& builder_;
  Scope* outer_;
  NameTable<X> names_;
  std::vector<Capture> captures_;
};

// A nested graph, closed: its inputs are the formal ones, then what it captures.
struct NestedGraph {
  ir::Graph graph;
  std::vector<Scope::Capture> captures;
};

class Importer {
 public:
  Importer(const ModelProto& model, TensorSource source, const ImportOptions& options)
      : model_(model), source_(std::move(source)), options_(options) {
    source_.sparse_left = &sparse_left_;
  }
  Importer(const Importer&) = delete;
  Importer& operator=(const Importer&) = delete;

  Result<ir::Graph> run();

  // Imports a nested graph whose inputs have these types. `outer` is where it stands.
  Result<NestedGraph> nested(const GraphProto& proto, std::span<const ir::TypeRef> inputs, Scope& outer,
                             std::string_view name);
  // Adds a nested graph's nodes to the graph around it; gives its outputs.
  Result<Xs> inlined(const GraphProto& proto, Scope& outer);

  const TensorSource& source() const { return source_; }
  // The program that wrote the model, as it says.
  std::string_view producer() const { return model_.producer_name; }
  // The declared type of a graph input; sizes that have no name become symbols named after the input and axis.
  Result<ir::TypeRef> type_of(const TypeProto& proto, std::string_view name, ir::Context& context);

 private:
  Status add_initializers(const GraphProto& proto, Scope& scope);
  Status add_nodes(const std::vector<NodeProto>& nodes, Scope& scope);
  Status add_node(const NodeProto& node, uint32_t index, Scope& scope);
  Status add_function(const FunctionProto& function, const NodeProto& node, Scope& scope);
  Result<std::vector<uint32_t>> order(const std::vector<NodeProto>& nodes, const Scope& scope) const;
  Result<int64_t> version_of(std::string_view domain, const Scope& scope) const;

  const ModelProto& model_;
  TensorSource source_;
  const ImportOptions& options_;
  int64_t sparse_left_ = int64_t{1} << 28;  // bytes of sparse tensors of few values
  int64_t most_nodes_ = 0;                  // that may be added, in all graphs and functions
  int64_t nodes_left_ = 0;                  // of them
  std::set<std::string> dim_names_;         // of the inputs' sizes
};

}  // namespace tessera::onnx
