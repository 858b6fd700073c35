#include "text/sentencepiece.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>

#include "base/result.h"
#include "text/trie.h"

namespace tessera::text {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // ▁

// A piece of normalized text and the id that it was found under.
struct Segment {
  Span span;
  uint32_t id;
};

class SentencePieceEngine : public Engine {
 public:
  explicit SentencePieceEngine(SentencePieceModel model) : m_(std::move(model)) {}
  Status prepare();

  Status encode(const Request& request, std::vector<ModelToken>& out) const override;
  std::string decode(const std::vector<uint32_t>& ids) const override;

  size_t size() const override { return std::max(vocabulary_.size(), added_.size()); }
  std::string_view token(uint64_t id) const override {
    return added_.has(id) ? added_.content(id) : vocabulary_.token(id);
  }
  uint32_t find(std::string_view token) const override {
    const uint32_t added = added_.find(token);
    return added != Vocabulary::kNone ? added : vocabulary_.find(token);
  }
  bool is_special(uint64_t id) const override { return added_.is_special(id) || type(id) == PieceType::control; }
  std::string_view kind() const override {
    return m_.kind == SentencePieceModel::Kind::bpe ? "SentencePiece BPE" : "SentencePiece Unigram";
  }
  std::optional<uint32_t> unknown() const override { return unknown_; }

 private:
  struct Normalized {
    std::string text;
    std::vector<uint32_t> origin;  // [bytes + 1] where each byte came from
  };
  PieceType type(uint64_t id) const { return id < m_.types.size() ? m_.types[id] : PieceType::normal; }
  // What the beginning of `text` is replaced by, and how many bytes of it.
  std::pair<std::string_view, size_t> normalize_prefix(std::string_view text, size_t at) const;
  Normalized normalize(std::string_view text) const;
  void segment_bpe(std::string_view text, std::vector<Segment>& out) const;
  void segment_unigram(std::string_view text, std::vector<Segment>& out) const;
  void segment_words(std::string_view text, std::vector<Segment>& out) const;
  uint32_t id_of(std::string_view piece) const {
    const uint32_t id = words_.find(piece);
    return id == Vocabulary::kNone ? unknown_ : id;
  }
  void put(const Normalized& normalized, uint32_t base, const std::vector<Segment>& segments,
           std::vector<ModelToken>& out) const;

  SentencePieceModel m_;
  Vocabulary vocabulary_;  // all pieces
  Vocabulary words_;       // those that text is made of: normal, user-defined, unused
  Trie trie_;              // of words_, for Unigram
  Trie user_defined_;
  AddedTokens added_;
  uint32_t unknown_ = 0;
  float lowest_ = 0, highest_ = 0;  // scores of normal pieces
  std::optional<ByteTokens> byte_tokens_;
};

Status SentencePieceEngine::prepare() {
  if (m_.pieces.empty()) return fail(Code::tokenizer_invalid, "the model has no pieces");
  std::vector<std::pair<std::string_view, uint32_t>> words, user_defined;
  lowest_ = std::numeric_limits<float>::infinity();
  highest_ = std::numeric_limits<float>::min();  // what the library begins with, above all usual scores
  bool has_unknown = false;
  for (uint32_t id = 0; id < m_.pieces.size(); ++id) {
    const std::string& piece = m_.pieces[id];
    if (piece.empty()) continue;  // GGUF files pad their vocabularies
    TESSERA_TRY(vocabulary_.add(piece, id));
    switch (m_.types[id]) {
      case PieceType::unknown:
        has_unknown = true;
        unknown_ = id;
        break;
      case PieceType::normal:
        lowest_ = std::min(lowest_, m_.scores[id]);
        highest_ = std::max(highest_, m_.scores[id]);
        [[fallthrough]];
      case PieceType::user_defined:
      case PieceType::unused:
        if (!is_valid_utf8(piece)) break;  // can never be found
        TESSERA_TRY(words_.add(piece, id));
        words.emplace_back(piece, id);
        if (m_.types[id] == PieceType::user_defined) user_defined.emplace_back(piece, id);
        break;
      case PieceType::control:
      case PieceType::byte:
        break;
    }
  }
  if (!has_unknown && m_.unk) {
    unknown_ = static_cast<uint32_t>(*m_.unk);
    has_unknown = true;
  }
  if (m_.byte_fallback) byte_tokens_ = find_byte_tokens(vocabulary_);
  const bool all_bytes = byte_tokens_ && std::count(byte_tokens_->begin(), byte_tokens_->end(), Vocabulary::kNone) == 0;
  if (!has_unknown && !all_bytes) return fail(Code::tokenizer_invalid, "the model has no piece for the unknown");
  if (!has_unknown) unknown_ = Vocabulary::kNone;
  if (m_.kind == SentencePieceModel::Kind::unigram) trie_ = Trie(std::move(words));
  user_defined_ = Trie(std::move(user_defined));
  TESSERA_ASSIGN(added_, AddedTokens::make(std::move(m_.added), nullptr));
  return {};
}

std::pair<std::string_view, size_t> SentencePieceEngine::normalize_prefix(std::string_view text, size_t at) const {
  if (const auto [length, id] = user_defined_.longest(text, at); length > 0) return {text.substr(at, length), length};
  if (const auto match = m_.charsmap.longest(text, at)) return {match->replacement, match->length};
  const uint32_t length = decode_at(text, at).length;
  return {text.substr(at, length), length};
}

SentencePieceEngine::Normalized SentencePieceEngine::normalize(std::string_view text) const {
  Normalized out;
  size_t at = 0;
  const std::string_view space = m_.escape_whitespaces ? kSpaceSymbol : std::string_view(" ");
  const auto put = [&](std::string_view bytes) {
    out.text += bytes;
    out.origin.insert(out.origin.end(), bytes.size(), static_cast<uint32_t>(at));
  };
  if (m_.remove_extra_whitespaces)
    while (at < text.size() && normalize_prefix(text, at).first == " ") at += normalize_prefix(text, at).second;
  if (at == text.size()) return out;
  if (m_.add_dummy_prefix && !m_.whitespace_is_suffix) put(space);
  bool after_space = m_.remove_extra_whitespaces;
  while (at < text.size()) {
    auto [replacement, length] = normalize_prefix(text, at);
    while (after_space && replacement.starts_with(' ')) replacement.remove_prefix(1);
    if (!replacement.empty()) {
      for (const char& c : replacement) put(c == ' ' ? space : std::string_view(&c, 1));
      after_space = m_.remove_extra_whitespaces && replacement.ends_with(' ');
    }
    at += length;
  }
  if (m_.remove_extra_whitespaces) {
    while (out.text.ends_with(space)) {
      at = out.origin[out.text.size() - space.size()];
      out.text.erase(out.text.size() - space.size());
      out.origin.resize(out.text.size());
    }
  }
  if (m_.add_dummy_prefix && m_.whitespace_is_suffix) put(space);
  out.origin.push_back(static_cast<uint32_t>(at));
  // The replacements of a hostile map need not be text: bytes that are none become unknown characters of one byte.
  if (!is_valid_utf8(out.text)) out.text = std::string(out.text.size(), '?');
  return out;
}

// Of all neighbours whose concatenation is a piece, the one of the highest score merges first, the leftmost of equals.
// Unused pieces take part, and are taken apart again at the end. User-defined ones are whole from the start.
void SentencePieceEngine::segment_bpe(std::string_view text, std::vector<Segment>& out) const {
  constexpr uint32_t none = UINT32_MAX;
  struct Symbol {
    Span span;
    uint32_t previous, next;
    bool frozen;
  };
  struct Candidate {
    float score;
    uint32_t left, right, size;
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  std::vector<Symbol> symbols;
  for (uint32_t at = 0; at < text.size();) {
    const auto [length, id] = user_defined_.longest(text, at);
    const uint32_t end = at + (length > 0 ? static_cast<uint32_t>(length) : decode_at(text, at).length);
    const auto index = static_cast<uint32_t>(symbols.size());
    symbols.push_back({{at, end}, index == 0 ? none : index - 1, end == text.size() ? none : index + 1, length > 0});
    at = end;
  }
  std::priority_queue<Candidate> queue;
  std::unordered_map<uint32_t, uint32_t> parts;  // of unused pieces: how long the left one is
  const auto view = [&](Span span) { return text.substr(span.begin, span.end - span.begin); };
  const auto consider = [&](uint32_t left, uint32_t right) {
    if (left == none || right == none || symbols[left].frozen || symbols[right].frozen) return;
    const Span span = {symbols[left].span.begin, symbols[right].span.end};
    if (span.end - span.begin > words_.longest()) return;
    const uint32_t id = words_.find(view(span));
    if (id == Vocabulary::kNone) return;
    queue.push({m_.scores[id], left, right, span.end - span.begin});
    if (type(id) == PieceType::unused) parts[id] = symbols[left].span.end - symbols[left].span.begin;
  };
  for (uint32_t i = 1; i < symbols.size(); ++i) consider(i - 1, i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.left];
    Symbol& right = symbols[top.right];
    // Symbols that are gone are empty.
    if (left.span.begin == left.span.end || right.span.begin == right.span.end ||
        right.span.end - left.span.begin != top.size || left.next != top.right)
      continue;
    left.span.end = right.span.end;
    left.next = right.next;
    if (right.next != none) symbols[right.next].previous = top.left;
    right.span = {};
    consider(left.previous, top.left);
    consider(top.left, left.next);
  }
  std::vector<Span> stack;
  for (uint32_t i = symbols.empty() ? none : 0; i != none; i = symbols[i].next) {
    stack.push_back(symbols[i].span);
    while (!stack.empty()) {
      const Span span = stack.back();
      stack.pop_back();
      const uint32_t id = id_of(view(span));
      const auto found = id != unknown_ && type(id) == PieceType::unused ? parts.find(id) : parts.end();
      if (found == parts.end()) {
        out.push_back({span, id});
        continue;
      }
      const uint32_t middle = span.begin + found->second;
      stack.push_back({middle, span.end});
      stack.push_back({span.begin, middle});
    }
  }
}

// Viterbi's algorithm as the library does it, in its precision: scores are floats, a candidate is a double.
void SentencePieceEngine::segment_unigram(std::string_view text, std::vector<Segment>& out) const {
  constexpr float penalty = 10.0f;  // how much worse than the worst piece an unknown character is
  constexpr uint32_t none = UINT32_MAX;
  struct Best {
    float score = 0;
    uint32_t begin = none;
    uint32_t id = 0;
  };
  const auto size = static_cast<uint32_t>(text.size());
  std::vector<Best> best(size + 1);
  const auto offer = [&](uint32_t begin, uint32_t end, double score, uint32_t id) {
    Best& node = best[end];
    if (node.begin == none || score > static_cast<double>(node.score)) node = {static_cast<float>(score), begin, id};
  };
  const float unknown_score = lowest_ - penalty;
  for (uint32_t at = 0; at < size;) {
    const float here = best[at].score;
    const uint32_t length = decode_at(text, at).length;
    bool single = false;
    uint32_t node = Trie::kRoot;
    for (uint32_t i = at; i < size; ++i) {
      node = trie_.step(node, text[i]);
      if (node == Trie::kNone) break;
      const uint32_t id = trie_.value(node);
      if (id == Trie::kNone || type(id) == PieceType::unused) continue;
      const uint32_t bytes = i + 1 - at;
      // A user-defined piece gets a bonus, so that it always wins.
      const double score = type(id) == PieceType::user_defined
                               ? static_cast<double>(static_cast<float>(bytes) * highest_) - 0.1
                               : static_cast<double>(m_.scores[id]);
      offer(at, i + 1, score + static_cast<double>(here), id);
      single = single || bytes == length;
    }
    if (!single) offer(at, at + length, static_cast<double>(unknown_score + here), unknown_);
    at += length;
  }
  const size_t first = out.size();
  for (uint32_t end = size; end > 0; end = best[end].begin) out.push_back({{best[end].begin, end}, best[end].id});
  std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
}

// Words are what begins with a space symbol; characters are single.
void SentencePieceEngine::segment_words(std::string_view text, std::vector<Segment>& out) const {
  for (uint32_t at = 0; at < text.size();) {
    uint32_t end = at + decode_at(text, at).length;
    if (m_.kind == SentencePieceModel::Kind::word) {
      const size_t next = text.find(kSpaceSymbol, end);
      end = static_cast<uint32_t>(std::min(next, text.size()));
    }
    out.push_back({{at, end}, id_of(text.substr(at, end - at))});
    at = end;
  }
}

void SentencePieceEngine::put(const Normalized& normalized, uint32_t base, const std::vector<Segment>& segments,
                              std::vector<ModelToken>& out) const {
  bool after_unknown = false;
  for (const Segment& segment : segments) {
    const Span span = {base + normalized.origin[segment.span.begin], base + normalized.origin[segment.span.end]};
    const bool is_unknown = segment.id == unknown_;
    const std::string_view bytes =
        std::string_view(normalized.text).substr(segment.span.begin, segment.span.end - segment.span.begin);
    if (is_unknown && byte_tokens_ && covers(*byte_tokens_, bytes)) {
      // The last of its bytes stands for the character, the others for nothing.
      for (uint32_t i = segment.span.begin; i < segment.span.end; ++i) {
        const bool last = i + 1 == segment.span.end;
        out.push_back({(*byte_tokens_)[static_cast<unsigned char>(normalized.text[i])],
                       last ? span : Span{span.begin, span.begin}});
      }
    } else if (is_unknown && after_unknown) {
      out.back().span.end = span.end;
    } else {
      out.push_back({segment.id, span});
    }
    after_unknown = is_unknown;
  }
}

Status SentencePieceEngine::encode(const Request& request, std::vector<ModelToken>& out) const {
  std::vector<AddedTokens::Section> sections;
  added_.split(request.text, false, request.parse_special, sections);
  std::vector<Segment> segments;
  for (const AddedTokens::Section& section : sections) {
    if (section.id != Vocabulary::kNone) {
      out.push_back({section.id, section.span});
      continue;
    }
    const Normalized text = normalize(request.text.substr(section.span.begin, section.span.end - section.span.begin));
    segments.clear();
    switch (m_.kind) {
      case SentencePieceModel::Kind::bpe:
        segment_bpe(text.text, segments);
        break;
      case SentencePieceModel::Kind::unigram:
        segment_unigram(text.text, segments);
        break;
      default:
        segment_words(text.text, segments);
        break;
    }
    put(text, section.span.begin, segments, out);
  }
  return {};
}

std::string SentencePieceEngine::decode(const std::vector<uint32_t>& ids) const {
  std::string out;
  bool first = true;
  for (uint32_t id : ids) {
    std::string_view piece = token(id);
    if (piece.empty()) continue;
    const int byte = type(id) == PieceType::byte ? parse_byte_token(piece) : -1;
    if (byte >= 0) {
      out.push_back(static_cast<char>(byte));
    } else if (added_.has(id) || type(id) == PieceType::control) {
      out += piece;
      continue;  // the text begins behind it
    } else if (id == unknown_) {
      out += m_.unknown_surface;
    } else {
      if (first && (m_.add_dummy_prefix || m_.remove_extra_whitespaces) && piece.starts_with(kSpaceSymbol)) {
        piece.remove_prefix(kSpaceSymbol.size());
        if (piece.empty() && m_.remove_extra_whitespaces) continue;  // all blanks in front go
      }
      while (!piece.empty()) {
        const size_t space = std::min(piece.find(kSpaceSymbol), piece.size());
        out += piece.substr(0, space);
        piece.remove_prefix(space);
        if (piece.empty()) break;
        out += ' ';
        piece.remove_prefix(kSpaceSymbol.size());
      }
    }
    first = false;
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<const Engine>> make_sentencepiece_engine(SentencePieceModel model) {
  auto engine = std::make_unique<SentencePieceEngine>(std::move(model));
  TESSERA_TRY(engine->prepare());
  return engine;
}

}  // namespace tessera::text
