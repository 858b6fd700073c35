// The models that look words and their parts up: WordPiece, Unigram, WordLevel.
#include <algorithm>
#include <limits>

#include "base/result.h"
#include "text/model.h"
#include "text/trie.h"

namespace tessera::text {
namespace {

std::vector<std::pair<std::string_view, uint32_t>> all_tokens(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, uint32_t>> entries;
  entries.reserve(vocabulary.size());
  for (uint32_t id = 0; id < vocabulary.size(); ++id)
    if (vocabulary.has(id)) entries.emplace_back(vocabulary.token(id), id);
  return entries;
}

// The longest token from the left, then the longest that continues, and so on (Schuster & Nakajima 2012; BERT). A word
// that cannot be covered is unknown as a whole.
class WordPiece : public Model {
 public:
  WordPiece(const Vocabulary& vocabulary, WordPieceRules rules)
      : trie_(all_tokens(vocabulary)),
        rules_(std::move(rules)),
        continuing_(trie_.walk(Trie::kRoot, rules_.continuing_prefix)) {}

  std::string_view kind() const override { return "WordPiece"; }
  std::optional<uint32_t> unknown() const override { return rules_.unknown; }

  Status encode(std::string_view text, const std::vector<Span>& pieces, std::vector<ModelToken>& out) const override {
    for (const Span& piece : pieces) {
      const size_t first = out.size();
      const std::string_view word = text.substr(piece.begin, piece.end - piece.begin);
      if (count_code_points(word) > rules_.max_characters || !cover(text, piece, out)) {
        out.resize(first);
        out.push_back({rules_.unknown, piece});
      }
    }
    return {};
  }

 private:
  bool cover(std::string_view text, Span piece, std::vector<ModelToken>& out) const {
    for (uint32_t at = piece.begin; at < piece.end;) {
      uint32_t node = at == piece.begin ? Trie::kRoot : continuing_;
      uint32_t end = 0, id = Trie::kNone;
      for (uint32_t i = at; i < piece.end && node != Trie::kNone; ++i) {
        node = trie_.step(node, text[i]);
        if (node == Trie::kNone || trie_.value(node) == Trie::kNone) continue;
        if (i + 1 < piece.end && is_continuation(text[i + 1])) continue;  // only whole characters
        end = i + 1;
        id = trie_.value(node);
      }
      if (id == Trie::kNone) return false;
      out.push_back({id, {at, end}});
      at = end;
    }
    return true;
  }

  Trie trie_;
  WordPieceRules rules_;
  uint32_t continuing_;  // the node behind the prefix
};

// The segmentation of highest likelihood (Kudo 2018), by Viterbi's algorithm over the bytes.
class Unigram : public Model {
 public:
  Unigram(const Vocabulary& vocabulary, UnigramRules rules) : trie_(all_tokens(vocabulary)), rules_(std::move(rules)) {
    // How much worse than the worst token an unknown character is: the constant of the reference.
    constexpr double penalty = 10.0;
    double lowest = std::numeric_limits<double>::infinity();
    for (double score : rules_.scores) lowest = std::min(lowest, score);
    unknown_score_ = lowest - penalty;
    if (rules_.byte_fallback) byte_tokens_ = find_byte_tokens(vocabulary);
  }

  std::string_view kind() const override { return "Unigram"; }
  std::optional<uint32_t> unknown() const override { return rules_.unknown; }

  Status encode(std::string_view text, const std::vector<Span>& pieces, std::vector<ModelToken>& out) const override {
    std::vector<Best> best;
    std::vector<ModelToken> reversed;
    for (const Span& piece : pieces) {
      search(text, piece, best);
      reversed.clear();
      for (uint32_t end = piece.end; end > piece.begin;) {
        const Best& node = best[end - piece.begin];
        const uint32_t begin = piece.begin + node.begin;
        // Unknown characters in a row are one.
        const bool fused = node.id == kUnknown && !reversed.empty() && reversed.back().id == kUnknown;
        fused ? void(reversed.back().span.begin = begin) : reversed.push_back({node.id, {begin, end}});
        end = begin;
      }
      for (auto token = reversed.rbegin(); token != reversed.rend(); ++token) TESSERA_TRY(put(text, *token, out));
    }
    return {};
  }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  struct Best {
    double score = 0;
    uint32_t begin = kUnknown;  // kUnknown: nothing ends here
    uint32_t id = 0;
  };

  void search(std::string_view text, Span piece, std::vector<Best>& best) const {
    const uint32_t size = piece.end - piece.begin;
    best.assign(size + 1, {});
    const auto offer = [&](uint32_t begin, uint32_t end, double score, uint32_t id) {
      Best& node = best[end];
      if (node.begin == kUnknown || score > node.score) node = {score, begin, id};
    };
    for (uint32_t at = 0; at < size;) {
      const double here = best[at].score;
      const uint32_t length = decode_at(text, piece.begin + at).length;
      bool single = false;
      uint32_t node = Trie::kRoot;
      for (uint32_t i = at; i < size; ++i) {
        node = trie_.step(node, text[piece.begin + i]);
        if (node == Trie::kNone) break;
        const uint32_t id = trie_.value(node);
        if (id == Trie::kNone || (i + 1 < size && is_continuation(text[piece.begin + i + 1]))) continue;
        const bool is_unknown = rules_.unknown && id == *rules_.unknown;
        offer(at, i + 1, here + rules_.scores[id], is_unknown ? kUnknown : id);
        single = single || i + 1 - at == length;
      }
      if (!single) offer(at, at + length, here + unknown_score_, kUnknown);
      at += length;
    }
  }

  Status put(std::string_view text, const ModelToken& token, std::vector<ModelToken>& out) const {
    if (token.id != kUnknown) {
      out.push_back(token);
    } else if (byte_tokens_ &&
               covers(*byte_tokens_, text.substr(token.span.begin, token.span.end - token.span.begin))) {
      for (uint32_t i = token.span.begin; i < token.span.end; ++i)
        out.push_back({(*byte_tokens_)[static_cast<unsigned char>(text[i])], token.span});
    } else if (rules_.unknown) {
      out.push_back({*rules_.unknown, token.span});
    } else {
      return fail(Code::tokenizer_invalid, "no token covers '{}', and the model has none for the unknown",
                  text.substr(token.span.begin, token.span.end - token.span.begin));
    }
    return {};
  }

  Trie trie_;
  UnigramRules rules_;
  double unknown_score_ = 0;
  std::optional<ByteTokens> byte_tokens_;
};

class WordLevel : public Model {
 public:
  WordLevel(const Vocabulary& vocabulary, std::optional<uint32_t> unknown)
      : vocabulary_(vocabulary), unknown_(unknown) {}

  std::string_view kind() const override { return "WordLevel"; }
  std::optional<uint32_t> unknown() const override { return unknown_; }

  Status encode(std::string_view text, const std::vector<Span>& pieces, std::vector<ModelToken>& out) const override {
    for (const Span& piece : pieces) {
      const std::string_view word = text.substr(piece.begin, piece.end - piece.begin);
      uint32_t id = vocabulary_.find(word);
      if (id == Vocabulary::kNone) {
        if (!unknown_)
          return fail(Code::tokenizer_invalid, "no token is '{}', and the model has none for the unknown", word);
        id = *unknown_;
      }
      out.push_back({id, piece});
    }
    return {};
  }

 private:
  const Vocabulary& vocabulary_;
  std::optional<uint32_t> unknown_;
};

}  // namespace

ModelPtr make_word_piece(const Vocabulary& vocabulary, WordPieceRules rules) {
  return std::make_unique<WordPiece>(vocabulary, std::move(rules));
}
ModelPtr make_unigram(const Vocabulary& vocabulary, UnigramRules rules) {
  return std::make_unique<Unigram>(vocabulary, std::move(rules));
}
ModelPtr make_word_level(const Vocabulary& vocabulary, std::optional<uint32_t> unknown) {
  return std::make_unique<WordLevel>(vocabulary, unknown);
}

}  // namespace tessera::text
