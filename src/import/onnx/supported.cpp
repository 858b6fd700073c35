#include "import/onnx/supported.h"

#include <fmt/format.h>

#include <map>
#include <span>

#include "base/result.h"
#include "base/strings.h"
#include "import/onnx/import.h"
#include "import/onnx/node_import.h"

namespace tessera::onnx {
namespace {

constexpr int kMaxNested = 64;    // of nested graphs
constexpr size_t kMostNamed = 4;  // nodes of one operator that an error names

using Opsets = std::vector<OperatorSetIdProto>;

class Search {
 public:
  explicit Search(const ModelProto& model) : model_(model) {}

  void walk(const std::vector<NodeProto>& nodes, const Opsets& opsets, int depth) {
    if (depth > kMaxNested) return;
    for (const NodeProto& node : nodes) {
      look_at(node, opsets);
      for (const AttributeProto& attribute : node.attribute) {
        if (const GraphProto* graph = attribute.g()) walk(graph->node, opsets, depth + 1);
        if (const auto* graphs = attribute.graphs())
          for (const GraphProto& graph : *graphs) walk(graph.node, opsets, depth + 1);
      }
    }
  }

  std::map<std::string, std::vector<std::string>> missing;  // names of nodes, by operator

 private:
  static int64_t version_in(const Opsets& opsets, std::string_view domain) {
    for (const OperatorSetIdProto& opset : opsets)
      if (normal_domain(opset.domain) == domain) return opset.version;
    return 0;
  }

  void look_at(const NodeProto& node, const Opsets& opsets) {
    if (find_function(model_, node) != nullptr) return;
    const std::string_view domain = normal_domain(node.domain);
    int64_t version = version_in(opsets, domain);
    if (version == 0) version = version_in(model_.opset_import, domain);
    if (find_onnx_op(domain, node.op_type, version == 0 ? kNewestOpset : version) != nullptr) return;
    const std::string op = domain.empty() ? std::string(node.op_type) : fmt::format("{}.{}", domain, node.op_type);
    missing[op].emplace_back(node.name.empty() && !node.output.empty() ? node.output[0] : node.name);
  }

  const ModelProto& model_;
};

}  // namespace

std::string_view normal_domain(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

const FunctionProto* find_function(const ModelProto& model, const NodeProto& node) {
  for (const FunctionProto& f : model.functions)
    if (f.name == node.op_type && normal_domain(f.domain) == normal_domain(node.domain) && f.overload == node.overload)
      return &f;
  return nullptr;
}

std::vector<UnsupportedOp> unsupported_ops(const ModelProto& model) {
  Search search(model);
  search.walk(model.graph.node, model.opset_import, 0);
  for (const FunctionProto& f : model.functions) search.walk(f.node, f.opset_import, 0);
  std::vector<UnsupportedOp> found;
  for (auto& [op, nodes] : search.missing) found.push_back({op, std::move(nodes)});
  return found;
}

Status check_supported(const ModelProto& model) {
  std::string list;
  for (const UnsupportedOp& missing : unsupported_ops(model)) {
    const auto named = std::span(missing.nodes).first(std::min(missing.nodes.size(), kMostNamed));
    list += fmt::format("{}{} ({} node{}: '{}'{})", list.empty() ? "" : ", ", missing.op, missing.nodes.size(),
                        missing.nodes.size() == 1 ? "" : "s", joined(named, "', '"),
                        missing.nodes.size() > kMostNamed ? ", ..." : "");
  }
  if (list.empty()) return {};
  return fail(Code::unsupported_op, "not supported: {}", list);
}

}  // namespace tessera::onnx
