#include "text/trie.h"

namespace tessera::text {

Trie::Trie(std::vector<std::pair<std::string_view, uint32_t>> entries) {
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.resize(1);
  // Breadth first: node i holds the strings [begin, end), which agree in their first `depth` bytes.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, entries.size(), 0}};
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    while (begin < end && entries[begin].first.size() == depth) {
      if (nodes_[node].value == kNone) nodes_[node].value = entries[begin].second;
      ++begin;
    }
    nodes_[node].first_child = static_cast<uint32_t>(labels_.size());
    while (begin < end) {
      const char label = entries[begin].first[depth];
      size_t next = begin + 1;
      while (next < end && entries[next].first[depth] == label) ++next;
      labels_.push_back(static_cast<uint8_t>(label));
      nodes_.emplace_back();
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[node].children;
      begin = next;
    }
  }
}

std::pair<size_t, uint32_t> Trie::longest(std::string_view text, size_t at) const {
  std::pair<size_t, uint32_t> best = {0, kNone};
  uint32_t node = kRoot;
  for (size_t i = at; i < text.size(); ++i) {
    node = step(node, text[i]);
    if (node == kNone) break;
    if (value(node) != kNone) best = {i + 1 - at, value(node)};
  }
  return best;
}

}  // namespace tessera::text
