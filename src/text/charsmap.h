// SentencePiece's precompiled map of normalisation: a double-array trie (darts-clone) from byte strings to
// replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera::text {

class Charsmap {
 public:
  Charsmap() = default;
  // `blob`: the trie's size in bytes (u32), the trie, and the replacements, each ended by a zero byte. E0103, E0104.
  static Result<Charsmap> parse(std::string_view blob);

  bool empty() const { return units_.empty(); }

  struct Match {
    size_t length;  // bytes of the text
    std::string_view replacement;
  };
  // The longest, or the shortest, key that text has at `at`.
  std::optional<Match> longest(std::string_view text, size_t at) const { return find(text, at, false); }
  std::optional<Match> shortest(std::string_view text, size_t at) const { return find(text, at, true); }

 private:
  std::optional<Match> find(std::string_view text, size_t at, bool first) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace tessera::text
