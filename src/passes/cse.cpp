// Common subexpressions: nodes of the same operator, attributes and operands become one.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/result.h"
#include "ir/core_ops.h"
#include "passes/pipeline.h"

namespace tessera::passes {
namespace {

// Of larger constants only the two ends are hashed, a page each, and the rest is read where those agree: reading all
// weights would bring the whole model into memory.
constexpr size_t kHashedBytes = 65536;
constexpr size_t kEnd = 4096;

const Tensor& tensor_of(const ir::Graph& graph, ir::NodeId n) {
  return graph.context().constant(static_cast<uint32_t>(std::get<int64_t>(graph.node(n).attrs->values[0])));
}

bool same_tensor(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.dtype() == DType::string) return a.strings() == b.strings();
  if (a.bytes() != b.bytes()) return false;
  if (a.data() == b.data() || a.bytes() == 0) return true;
  return std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

uint64_t mix(uint64_t seed, uint64_t value) { return (seed ^ value) * 0x9e3779b97f4a7c15u + (seed >> 29); }

class Table {
 public:
  Table(ir::Rewrite& rewrite, size_t nodes) : rewrite_(rewrite), graph_(rewrite.graph()) {
    size_t size = 16;
    while (size < 2 * nodes) size *= 2;
    slots_.resize(size);
  }

  // The earlier node that computes what n does; n itself when there is none.
  ir::NodeId find(ir::NodeId n) {
    key_operands(n, operands_);
    const uint64_t wide = hash(n, operands_);
    const auto hash = static_cast<uint32_t>(wide ^ (wide >> 32));
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    for (; slots_[at].node != ir::kNoNode; at = (at + 1) & mask)
      if (slots_[at].hash == hash && same(slots_[at].node, n)) return slots_[at].node;
    slots_[at] = {hash, n};
    return n;
  }

 private:
  // Operands as they will be; in ascending order where the order makes no difference to any bit.
  void key_operands(ir::NodeId n, std::vector<ir::ValueId>& operands) const {
    operands.clear();
    for (ir::ValueId v : graph_.operands(n)) operands.push_back(rewrite_.resolve(v));
    if (graph_.node(n).op->commutative && operands.size() == 2 && operands[0] > operands[1])
      std::swap(operands[0], operands[1]);
  }

  uint64_t hash(ir::NodeId n, const std::vector<ir::ValueId>& operands) const {
    const ir::Node& node = graph_.node(n);
    uint64_t seed = reinterpret_cast<uintptr_t>(node.op);
    if (node.op == &ir::core::constant) {
      const Tensor& tensor = tensor_of(graph_, n);
      seed = mix(seed, static_cast<uint64_t>(tensor.dtype()));
      seed = mix(seed, tensor.bytes());
      if (tensor.dtype() == DType::string) return seed;
      const std::string_view bytes(static_cast<const char*>(tensor.data()), tensor.bytes());
      const std::hash<std::string_view> hash;
      if (bytes.size() <= kHashedBytes) return mix(seed, hash(bytes));
      return mix(mix(seed, hash(bytes.substr(0, kEnd))), hash(bytes.substr(bytes.size() - kEnd)));
    }
    seed = mix(seed, reinterpret_cast<uintptr_t>(node.attrs));
    for (ir::ValueId v : operands) seed = mix(seed, v);
    return seed;
  }

  // Whether a is what b is, whose operands are in operands_.
  bool same(ir::NodeId a, ir::NodeId b) {
    const ir::Node &x = graph_.node(a), &y = graph_.node(b);
    if (x.op != y.op || x.n_results != y.n_results) return false;
    if (x.op == &ir::core::constant) return same_tensor(tensor_of(graph_, a), tensor_of(graph_, b));
    if (x.attrs != y.attrs) return false;
    key_operands(a, others_);
    return others_ == operands_;
  }

  ir::Rewrite& rewrite_;
  ir::Graph& graph_;
  struct Slot {
    uint32_t hash = 0;
    ir::NodeId node = ir::kNoNode;
  };
  std::vector<Slot> slots_;  // an open hash table: a power of two, at most half of it taken
  std::vector<ir::ValueId> operands_, others_;
};

}  // namespace

Result<std::vector<ir::Edit>> merge_equal(ir::Graph& graph, const PassContext& context) {
  ir::Rewrite rewrite(graph, context.limit);
  const size_t count = graph.node_count();
  Table table(rewrite, count);
  for (ir::NodeId n = 0; n < count && !rewrite.exhausted(); ++n) {
    const ir::Node& node = graph.node(n);
    if (!node.op->pure || node.n_regions > 0) continue;
    const ir::NodeId earlier = table.find(n);
    if (earlier == n) continue;
    if (node.op != &ir::core::constant) {
      const ir::LocId places[] = {graph.node(earlier).location, node.location};
      graph.set_location(earlier, graph.context().covering(places));
    }
    const int results = node.n_results;  // a planted fault adds nodes, and `node` moves
    for (int i = 0; i < results; ++i) rewrite.replace(graph.result(n, i), graph.result(earlier, i), "cse");
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

}  // namespace tessera::passes
