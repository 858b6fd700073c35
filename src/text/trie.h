// A set of byte strings, each with a value, for finding all that begin at a place of a text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::text {

class Trie {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  Trie() : nodes_(1) {}
  // Of equal strings the first one's value stays. Empty strings are left out.
  explicit Trie(std::vector<std::pair<std::string_view, uint32_t>> entries);

  static constexpr uint32_t kRoot = 0;
  // The node one byte further, or kNone.
  uint32_t step(uint32_t node, char byte) const {
    const Node& n = nodes_[node];
    const auto first = labels_.begin() + n.first_child;
    const auto last = first + n.children;
    const auto label = static_cast<unsigned char>(byte);
    const auto found = n.children <= 8 ? std::find(first, last, label) : std::lower_bound(first, last, label);
    return found == last || *found != label ? kNone : static_cast<uint32_t>(found - labels_.begin()) + 1;
  }
  // The node after all of `bytes`, or kNone.
  uint32_t walk(uint32_t node, std::string_view bytes) const {
    for (size_t i = 0; i < bytes.size() && node != kNone; ++i) node = step(node, bytes[i]);
    return node;
  }
  // The value of the string that ends at this node, or kNone.
  uint32_t value(uint32_t node) const { return nodes_[node].value; }
  bool empty() const { return nodes_.size() == 1; }

  // The longest string that text has at `at`: its length (0: none) and value.
  std::pair<size_t, uint32_t> longest(std::string_view text, size_t at) const;

 private:
  // Node i's children stand next to each other; labels_[c - 1] is the byte that leads to node c.
  struct Node {
    uint32_t first_child = 0;  // an index into labels_
    uint32_t children = 0;
    uint32_t value = kNone;
  };
  std::vector<Node> nodes_;
  std::vector<uint8_t> labels_;
};

}  // namespace tessera::text
