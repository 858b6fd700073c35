// The graph: a typed program in SSA form over tensors with symbolic sizes.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/attrs.h"
#include "ir/type.h"
#include "tensor/dim.h"
#include "tessera/tensor.h"

namespace tessera::ir {

struct OpDef;
class Graph;

using ValueId = uint32_t;
using NodeId = uint32_t;
using NameId = uint32_t;                   // 0 is ""
using LocId = uint32_t;                    // 0 is nowhere
constexpr ValueId kNoValue = ~ValueId{0};  // an absent optional operand
constexpr NodeId kNoNode = ~NodeId{0};

// Where a node came from, in the user's words.
struct Location {
  NameId node = 0;     // the node's name in the model, or its first output's where it has none
  NameId op_type = 0;  // the model's word for the operator: "Gemm"
  uint32_t index = 0;  // its position in the model's node list
  uint32_t also = 0;   // the other nodes whose work it does, see Context::covering; 0: none
  bool operator==(const Location&) const = default;
};

// What graphs share with the graphs nested in them: interned types, attributes, names, sizes and the constants.
class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;

  DimTable& dims() { return dims_; }
  const DimTable& dims() const { return dims_; }

  TypeRef type(Type type);
  TypeRef tensor(DType dtype, Shape shape) { return type({Kind::tensor, dtype, true, std::move(shape)}); }
  TypeRef scalar(DType dtype) { return tensor(dtype, {}); }
  TypeRef unranked(DType dtype) { return type({Kind::tensor, dtype, false}); }
  TypeRef sequence(TypeRef element) { return type({Kind::sequence, DType::f32, true, {}, element}); }
  TypeRef optional(TypeRef element) { return type({Kind::optional, DType::f32, true, {}, element}); }
  TypeRef nothing(DType dtype) { return type({Kind::nothing, dtype}); }
  AttrsRef attrs(Attrs attrs);
  // Of nodes that hold a view: the view `outer` of the view `inner`, or of a base where that is null, in its normal
  // form; null when they do not compose. Each pair is composed once: models repeat their layers.
  AttrsRef composed(AttrsRef inner, AttrsRef outer);
  // The types that an operator without nested graphs gave for operands of these types before, null when it is not
  // known; and what it gave, where that follows from the types and attributes alone.
  const std::vector<TypeRef>* known_results(const OpDef& op, AttrsRef attrs, std::span<const TypeRef> operands) const;
  void remember_results(const OpDef& op, AttrsRef attrs, std::span<const TypeRef> operands,
                        std::vector<TypeRef> results);
  NameId name(std::string_view text);
  std::string_view text(NameId id) const { return names_[id]; }
  LocId location(Location location);
  const Location& location(LocId id) const { return locations_[id]; }
  // The place of a node that does the work of the nodes from all these places: the first one's, the others remembered.
  LocId covering(std::span<const LocId> places);
  // The places that one made by covering() stands for, each once, its own first; nowhere is left out.
  std::vector<LocId> covered(LocId id) const;

  // Constants keep their tensor as it came (mapped or owned) and are read only when something needs their elements.
  uint32_t constant(Tensor tensor);
  const Tensor& constant(uint32_t id) const { return constants_[id]; }
  size_t constant_count() const { return constants_.size(); }

 private:
  struct Interner;
  DimTable dims_;
  std::unique_ptr<Interner> interner_;
  std::deque<std::string> names_;
  std::vector<Location> locations_;
  std::vector<std::vector<LocId>> also_;  // by Location::also
  std::deque<Tensor> constants_;
};

// 48 bytes: models have 100 000 of these.
struct Node {
  const OpDef* op = nullptr;
  AttrsRef attrs = nullptr;
  uint32_t operands = 0;  // index into the graph's operand pool
  uint16_t n_operands = 0;
  uint16_t n_results = 0;
  ValueId results = 0;  // first result; the others follow it
  LocId location = 0;
  uint32_t regions = 0;  // index into the graph's nested graphs
  uint16_t n_regions = 0;
};
static_assert(sizeof(Node) <= 64);

struct ValueInfo {
  TypeRef type = nullptr;
  NodeId def = kNoNode;  // kNoNode: an input of the graph
  uint16_t result = 0;   // which result of `def`, or which input
  NameId name = 0;       // the user's name, 0 when it never had one
};

// Something the graph assumes about its sizes that could not be proved: checked for each concrete shape.
struct Guard {
  enum class Kind : uint8_t { equal, not_equal, at_most, divisible } kind;  // a == b, a != b, a <= b, a % b == 0
  Dim a, b;
  LocId location = 0;
  bool operator==(const Guard&) const = default;
};

class Graph {
 public:
  explicit Graph(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;
  Graph clone() const;  // deep: nested graphs too; shares the context

  Context& context() const { return *context_; }
  const std::shared_ptr<Context>& shared_context() const { return context_; }
  DimTable& dims() const { return context_->dims(); }

  std::string name;

  // Values.
  ValueId add_input(TypeRef type, std::string_view name);
  // Puts the inputs into this order; `order` holds each of them once.
  void reorder_inputs(std::vector<ValueId> order);
  size_t value_count() const { return values_.size(); }
  const ValueInfo& value(ValueId id) const { return values_[id]; }
  TypeRef type(ValueId id) const { return values_[id].type; }
  std::string_view value_name(ValueId id) const { return context_->text(values_[id].name); }
  void set_name(ValueId id, std::string_view name) { values_[id].name = context_->name(name); }
  void copy_name(ValueId from, ValueId to) { values_[to].name = values_[from].name; }
  // Only for import and Retype, which keep the graph consistent.
  void set_type(ValueId id, TypeRef type) { values_[id].type = type; }

  // Nodes. In a verified graph operands are defined before use: ids ascend along every edge after compact().
  NodeId add_node(const OpDef& op, std::span<const ValueId> operands, AttrsRef attrs, std::span<const TypeRef> results,
                  LocId location, std::vector<Graph> regions = {});
  size_t node_count() const { return nodes_.size(); }
  const Node& node(NodeId id) const { return nodes_[id]; }
  std::span<const ValueId> operands(NodeId id) const {
    return {operand_pool_.data() + nodes_[id].operands, nodes_[id].n_operands};
  }
  std::span<ValueId> mutable_operands(NodeId id) {
    return {operand_pool_.data() + nodes_[id].operands, nodes_[id].n_operands};
  }
  ValueId result(NodeId id, int index) const { return nodes_[id].results + index; }
  std::span<const Graph> regions(NodeId id) const {
    return {regions_.data() + nodes_[id].regions, nodes_[id].n_regions};
  }
  std::span<Graph> mutable_regions(NodeId id) { return {regions_.data() + nodes_[id].regions, nodes_[id].n_regions}; }
  void set_location(NodeId id, LocId location) { nodes_[id].location = location; }

  // "node 'layer3.ffn.up' (Gemm)", for messages.
  std::string describe(NodeId id) const;
  std::string describe_value(ValueId id) const;

  std::vector<ValueId> inputs;  // in the order of add_input
  std::vector<ValueId> outputs;
  std::vector<NameId> output_names;  // parallel to outputs: a model may give one value out under two names
  std::vector<Guard> guards;         // of the outermost graph; nested graphs add to their parent's

  // Elements of small integer tensors as Dims, where they are known: shape arithmetic that needs no run.
  std::unordered_map<ValueId, Shape> contents;

  // Removes the nodes that no output needs, and renumbers in a topological order that keeps the present order where
  // it can. E0204 on a cycle, naming the nodes. Invalidates all ids. Inputs stay.
  Status compact();

 private:
  std::shared_ptr<Context> context_;
  std::vector<Node> nodes_;
  std::vector<ValueInfo> values_;
  std::vector<ValueId> operand_pool_;
  std::vector<Graph> regions_;
};

}  // namespace tessera::ir
