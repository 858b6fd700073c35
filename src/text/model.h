// From pieces of text to token ids: the `model` of tokenizer.json.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/error.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace tessera::text {

struct ModelToken {
  uint32_t id;
  Span span;  // bytes of the text that the pieces are of
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the tokens of each piece of `text`. E0209 when a piece has no token and the model has none for unknown
  // ones.
  virtual Status encode(std::string_view text, const std::vector<Span>& pieces, std::vector<ModelToken>& out) const = 0;
  virtual std::string_view kind() const = 0;
  virtual std::optional<uint32_t> unknown() const = 0;
};
using ModelPtr = std::unique_ptr<const Model>;

// Ids of "<0x00>" ... "<0xFF>"; Vocabulary::kNone for those that the vocabulary lacks.
using ByteTokens = std::array<uint32_t, 256>;
ByteTokens find_byte_tokens(const Vocabulary& vocabulary);
// Whether there is a token for each of the bytes.
bool covers(const ByteTokens& tokens, std::string_view bytes);
// "<0x0A>" is 10; -1 for all else, "<0x-1>" among them.
int parse_byte_token(std::string_view token);

// Pairs of ids and what they become, found by hash.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = UINT32_MAX;  // lower goes first
    uint32_t id = 0;
  };
  void reserve(size_t merges);
  // A pair that is there already takes the new rank.
  void add(uint32_t left, uint32_t right, Merge merge);
  // Begins to fetch what add() and find() read.
  void prefetch(uint32_t left, uint32_t right) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[place(make_key(left, right))]);
  }
  // Null where the pair does not merge.
  const Merge* find(uint32_t left, uint32_t right) const {
    if (slots_.empty()) return nullptr;
    const uint64_t key = make_key(left, right);
    for (size_t i = place(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].merge;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;  // ids are below 2^24
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t make_key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
  size_t place(uint64_t key) const { return (key * 0x9E3779B97F4A7C15) >> shift_; }  // 2^64 / golden ratio
  void resize(size_t slots);

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t mask_ = 0;
  int shift_ = 0;
  size_t count_ = 0;
};

struct BpeRules {
  std::string continuing_prefix;  // stands before every character of a word but its first
  std::string word_suffix;        // stands behind its last
  std::optional<uint32_t> unknown;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a piece that is a token is that token
  bool takes_bytes = false;    // pieces are bytes that the vocabulary spells in the byte-level alphabet
};
// `vocabulary` must outlive the model.
ModelPtr make_bpe(const Vocabulary& vocabulary, MergeTable merges, BpeRules rules);

struct WordPieceRules {
  std::string continuing_prefix = "##";
  size_t max_characters = 100;  // longer words are unknown
  uint32_t unknown = 0;
};
ModelPtr make_word_piece(const Vocabulary& vocabulary, WordPieceRules rules);

struct UnigramRules {
  std::vector<double> scores;  // by id
  std::optional<uint32_t> unknown;
  bool byte_fallback = false;
};
ModelPtr make_unigram(const Vocabulary& vocabulary, UnigramRules rules);

ModelPtr make_word_level(const Vocabulary& vocabulary, std::optional<uint32_t> unknown);

}  // namespace tessera::text
