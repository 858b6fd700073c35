#include "ir/equation.h"

#include <algorithm>
#include <unordered_set>

#include "base/result.h"
#include "ir/core_ops.h"
#include "tensor/scalar.h"

namespace tessera::ir {
namespace {

constexpr size_t kMostText = 600;  // a few lines of a terminal
constexpr int kMostDepth = 24;

struct Infix {
  std::string_view op, sign;
};
constexpr Infix kInfix[] = {{"add", " + "}, {"sub", " - "}, {"mul", " * "}, {"div", " / "}};

class Formula {
 public:
  Formula(const Graph& graph, const std::unordered_set<ValueId>& leaves) : graph_(graph), leaves_(leaves) {}

  std::string of(ValueId root) {
    text_.clear();
    write(root, 0, true);
    return std::move(text_);
  }

 private:
  void write(ValueId v, int depth, bool root = false) {
    if (v == kNoValue) {
      text_ += "none";
      return;
    }
    const NodeId def = graph_.value(v).def;
    if (def != kNoNode && graph_.node(def).op == &core::constant) return constant(v);
    if (def == kNoNode || (!root && leaves_.contains(v))) return name(v);
    if (depth > kMostDepth || text_.size() > kMostText) {
      text_ += "...";
      return;
    }
    const Node& node = graph_.node(def);
    const auto operands = graph_.operands(def);
    if (operands.size() == 2)
      for (const auto& [op, sign] : kInfix)
        if (node.op->name == op) {
          if (!root) text_ += '(';
          write(operands[0], depth + 1);
          text_ += sign;
          write(operands[1], depth + 1);
          if (!root) text_ += ')';
          return;
        }
    text_ += node.op->name;
    text_ += '(';
    for (size_t i = 0; i < operands.size(); ++i) {
      if (i > 0) text_ += ", ";
      write(operands[i], depth + 1);
    }
    text_ += ')';
    if (node.n_results > 1) text_ += fmt::format("[{}]", graph_.value(v).result);
  }

  void constant(ValueId v) {
    const auto id = static_cast<uint32_t>(std::get<int64_t>(graph_.node(graph_.value(v).def).attrs->values[0]));
    const Tensor& tensor = graph_.context().constant(id);
    if (tensor.count() == 1 && tensor.dtype() != DType::string && !is_block(tensor.dtype())) {
      text_ += fmt::format("{:.9g}", decode(tensor.dtype(), tensor.data(), 0));
    } else {
      name(v);
    }
  }

  // What the user calls it, or its type.
  void name(ValueId v) {
    const std::string_view user = graph_.value_name(v);
    text_ += user.empty() ? fmt::format("%{} {}", v, to_string(*graph_.type(v))) : fmt::format("'{}'", user);
  }

  const Graph& graph_;
  const std::unordered_set<ValueId>& leaves_;
  std::string text_;
};

}  // namespace

std::string equation(const Graph& graph, ValueId before, ValueId after, NodeId first_new) {
  std::unordered_set<ValueId> leaves;
  std::vector<ValueId> stack = {after};
  std::unordered_set<ValueId> seen = {after};
  while (!stack.empty()) {
    const ValueId v = stack.back();
    stack.pop_back();
    const NodeId def = graph.value(v).def;
    // An older value is spelled out only where it is the whole of the right side.
    if (def == kNoNode || (def < first_new && v != after)) {
      leaves.insert(v);
      continue;
    }
    for (ValueId operand : graph.operands(def))
      if (operand != kNoValue && operand != before && seen.insert(operand).second) stack.push_back(operand);
  }
  if (graph.value(after).def == kNoNode || graph.value(after).def < first_new) leaves.insert(after);
  Formula formula(graph, leaves);
  std::string left = formula.of(before);
  return left + " = " + formula.of(after);
}

std::string formula(const Graph& graph, ValueId value) {
  std::unordered_set<ValueId> leaves = {value};
  if (const NodeId def = graph.value(value).def; def != kNoNode)
    leaves.insert(graph.operands(def).begin(), graph.operands(def).end());
  return Formula(graph, leaves).of(value);
}

}  // namespace tessera::ir
