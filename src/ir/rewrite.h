// Edits of a graph: the only way in which passes change one.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "ir/builder.h"

namespace tessera::ir {

// True when both types hold the same values for all sizes within the symbols' bounds.
bool provably_equal(const Context& context, TypeRef a, TypeRef b);

// One accepted replacement, for reports and for bisecting.
struct Edit {
  std::string rule;
  NodeId node = kNoNode;  // the node whose result was replaced
  LocId location = 0;     // of the node
  // Of the last edit that the limit allows: the node's description, and what was there and what took its place.
  std::string place = {};
  std::string equation = {};
};

// Gives a wrong value of the same type in place of one that a rule is about to put into the graph, or that one back:
// for tests of what looks for faults.
using Spoiler = std::function<ValueId(Builder&, ValueId, std::string_view rule)>;

// What a pass may do.
struct EditLimit {
  EditLimit(int64_t most = INT64_MAX, const Spoiler* s = nullptr) : edits(most), spoiler(s) {}
  int64_t edits;
  const Spoiler* spoiler;
};

// Collects replacements and makes them at once: until finish() the graph keeps its old uses, and new nodes, which the
// builder appends, may read old values. Ids stay valid until finish().
class Rewrite {
 public:
  // At most `limit` replacements are accepted.
  explicit Rewrite(Graph& graph, EditLimit limit = {})
      : graph_(graph), builder_(graph), limit_(limit), first_new_(static_cast<NodeId>(graph.node_count())) {}

  Graph& graph() { return graph_; }
  Builder& builder() { return builder_; }

  // What the uses of `value` will read after finish().
  ValueId resolve(ValueId value) const;
  // Lets the uses of `from` read `to`. False, and nothing changes, when the types are not provably equal, when both are
  // the same value already, or when the limit is reached. `to` must not depend on `from`.
  bool replace(ValueId from, ValueId to, std::string_view rule);
  bool exhausted() const { return static_cast<int64_t>(journal_.size()) >= limit_.edits; }
  const std::vector<Edit>& journal() const { return journal_; }

  // Rewires the uses, drops what nothing needs and renumbers: all ids become invalid.
  Status finish();

 private:
  Graph& graph_;
  Builder builder_;
  EditLimit limit_;
  NodeId first_new_;              // nodes before it were there before this rewrite
  std::vector<ValueId> forward_;  // by value; kNoValue or past the end: itself
  std::vector<Edit> journal_;
};

}  // namespace tessera::ir
