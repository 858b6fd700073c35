// Tokens that are found in the text before anything else is done to it.
#pragma once

#include <bitset>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"
#include "text/trie.h"
#include "text/vocabulary.h"

namespace tessera::text {

struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // and behind it
  bool normalized = false;   // found in the normalized text, in its own normalized form
  bool special = false;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  static Result<AddedTokens> make(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  struct Section {
    Span span;
    uint32_t id;  // of the added token, or Vocabulary::kNone for text between them
  };
  // Covers the text from left to right. `normalized` chooses which of the tokens are looked for; special ones are only
  // with `parse_special`.
  void split(std::string_view text, bool normalized, bool parse_special, std::vector<Section>& out) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // The content of the token with this id, or empty.
  std::string_view content(uint64_t id) const { return by_id_.token(id); }
  bool has(uint64_t id) const { return by_id_.has(id); }
  uint32_t find(std::string_view content) const { return by_id_.find(content); }
  bool is_special(uint64_t id) const;
  size_t size() const { return by_id_.size(); }
  bool any_normalized() const { return !searches_[1].trie.empty(); }

 private:
  struct Search {
    Trie trie;                    // values index tokens_
    std::bitset<256> first_byte;  // of any of them
  };
  std::vector<AddedToken> tokens_;
  Vocabulary by_id_;
  std::vector<bool> special_;  // by id
  Search searches_[2];         // [normalized]
};

}  // namespace tessera::text
