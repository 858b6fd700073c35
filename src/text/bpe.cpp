// Byte-pair encoding (Sennrich et al. 2016): of all neighbours the pair of lowest rank merges first, the leftmost of
// equals, until none merges.
#include <algorithm>
#include <queue>

#include "base/result.h"
#include "text/model.h"
#include "text/normalizer.h"

namespace tessera::text {

void MergeTable::reserve(size_t merges) {
  size_t slots = 16;
  while (slots < merges * 2) slots *= 2;
  if (slots > slots_.size()) resize(slots);
}

void MergeTable::resize(size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  mask_ = slots - 1;
  shift_ = 64;
  while (slots > 1) {
    slots /= 2;
    --shift_;
  }
  for (const Slot& slot : old) {
    if (slot.key == kEmpty) continue;
    size_t i = place(slot.key);
    while (slots_[i].key != kEmpty) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

void MergeTable::add(uint32_t left, uint32_t right, Merge merge) {
  if ((count_ + 1) * 2 > slots_.size()) resize(std::max<size_t>(16, slots_.size() * 2));
  const uint64_t key = make_key(left, right);
  size_t i = place(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  if (slots_[i].key == kEmpty) ++count_;
  slots_[i] = {key, merge};
}

int parse_byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  const int high = digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

ByteTokens find_byte_tokens(const Vocabulary& vocabulary) {
  ByteTokens ids;
  for (size_t byte = 0; byte < 256; ++byte) ids[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte));
  return ids;
}

bool covers(const ByteTokens& tokens, std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [&](char c) { return tokens[static_cast<unsigned char>(c)] != Vocabulary::kNone; });
}

namespace {

struct Symbol {
  uint32_t id;
  Span span;
};

// Up to this many symbols a scan for the lowest rank is faster than a heap.
constexpr size_t kFewSymbols = 32;

void merge_few(const MergeTable& merges, std::vector<Symbol>& symbols) {
  std::array<MergeTable::Merge, kFewSymbols> pairs;  // of symbol i and its right neighbour
  const auto look_up = [&](size_t i) {
    const MergeTable::Merge* merge = merges.find(symbols[i].id, symbols[i + 1].id);
    pairs[i] = merge != nullptr ? *merge : MergeTable::Merge{};
  };
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == UINT32_MAX) break;
    symbols[best] = {pairs[best].id, {symbols[best].span.begin, symbols[best + 1].span.end}};
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  symbols.resize(count);
}

void merge_many(const MergeTable& merges, std::vector<Symbol>& symbols) {
  constexpr uint32_t none = UINT32_MAX;
  struct Links {
    uint32_t previous, next;
  };
  struct Candidate {
    uint32_t rank, left, left_id, right_id, id;
    bool operator<(const Candidate& other) const {  // of a heap whose top is the greatest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<Links> links(count);
  for (uint32_t i = 0; i < count; ++i) links[i] = {i == 0 ? none : i - 1, i + 1 == count ? none : i + 1};
  std::vector<Candidate> storage;
  storage.reserve(count);
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(storage));
  const auto consider = [&](uint32_t left) {
    const uint32_t right = links[left].next;
    if (right == none) return;
    if (const MergeTable::Merge* merge = merges.find(symbols[left].id, symbols[right].id))
      queue.push({merge->rank, left, symbols[left].id, symbols[right].id, merge->id});
  };
  for (uint32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.left];
    const uint32_t right = links[top.left].next;
    // Either side may have merged with another since: symbols that are gone have the id `none`.
    if (left.id != top.left_id || right == none || symbols[right].id != top.right_id) continue;
    left = {top.id, {left.span.begin, symbols[right].span.end}};
    symbols[right].id = none;
    links[top.left].next = links[right].next;
    if (links[right].next != none) links[links[right].next].previous = top.left;
    if (links[top.left].previous != none) consider(links[top.left].previous);
    consider(top.left);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id == none; });
}

// The tokens of pieces met before in one call. Text repeats its words; the memory is the call's own.
class PieceCache {
 public:
  PieceCache(std::string_view text, size_t pieces) : text_(text) {
    if (pieces >= 64) entries_.resize(kEntries);
  }
  // Appends the tokens of an equal piece to `out`, moved to this one.
  bool take(Span piece, uint64_t hash, std::vector<ModelToken>& out) const {
    if (entries_.empty()) return false;
    const Entry& entry = entries_[hash % kEntries];
    const size_t size = piece.end - piece.begin;
    if (entry.count == 0 || entry.piece.end - entry.piece.begin != size ||
        text_.substr(entry.piece.begin, size) != text_.substr(piece.begin, size))
      return false;
    for (size_t i = 0; i < entry.count; ++i) {
      ModelToken token = out[entry.first + i];
      token.span = {token.span.begin - entry.piece.begin + piece.begin,
                    token.span.end - entry.piece.begin + piece.begin};
      out.push_back(token);
    }
    return true;
  }
  void keep(Span piece, uint64_t hash, size_t first, size_t count) {
    if (!entries_.empty()) entries_[hash % kEntries] = {piece, first, count};
  }

 private:
  static constexpr size_t kEntries = 8192;  // with 24 bytes each they stay in L2
  struct Entry {
    Span piece;
    size_t first = 0;  // its tokens in `out`
    size_t count = 0;
  };
  std::string_view text_;
  std::vector<Entry> entries_;
};

class Bpe : public Model {
 public:
  Bpe(const Vocabulary& vocabulary, MergeTable merges, BpeRules rules)
      : vocabulary_(vocabulary), merges_(std::move(merges)), rules_(std::move(rules)) {
    if (rules_.byte_fallback) byte_tokens_ = find_byte_tokens(vocabulary);
    if (!rules_.takes_bytes) return;
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string letter;
      append_utf8(letter, byte_letter(static_cast<uint8_t>(byte)));
      byte_ids_[byte] = vocabulary.find(letter);
    }
  }

  std::string_view kind() const override { return "BPE"; }
  std::optional<uint32_t> unknown() const override { return rules_.unknown; }

  Status encode(std::string_view text, const std::vector<Span>& pieces, std::vector<ModelToken>& out) const override {
    PieceCache cache(text, pieces.size());
    std::vector<Symbol> symbols;
    for (const Span& piece : pieces) {
      const std::string_view word = text.substr(piece.begin, piece.end - piece.begin);
      const uint64_t hash = hash_bytes(word);
      if (cache.take(piece, hash, out)) continue;
      const size_t first = out.size();
      if (const uint32_t whole = rules_.ignore_merges ? find_whole(word) : Vocabulary::kNone;
          whole != Vocabulary::kNone) {
        out.push_back({whole, piece});
      } else {
        symbols.clear();
        rules_.takes_bytes ? add_bytes(text, piece, symbols) : add_characters(text, piece, symbols);
        symbols.size() <= kFewSymbols ? merge_few(merges_, symbols) : merge_many(merges_, symbols);
        for (const Symbol& symbol : symbols) out.push_back({symbol.id, symbol.span});
      }
      cache.keep(piece, hash, first, out.size() - first);
    }
    return {};
  }

 private:
  uint32_t find_whole(std::string_view word) const {
    if (!rules_.takes_bytes) return vocabulary_.find(word);
    if (word.size() > vocabulary_.longest()) return Vocabulary::kNone;
    std::string letters;
    for (char c : word) append_utf8(letters, byte_letter(static_cast<uint8_t>(c)));
    return vocabulary_.find(letters);
  }

  void add_bytes(std::string_view text, Span piece, std::vector<Symbol>& symbols) const {
    for (uint32_t i = piece.begin; i < piece.end; ++i) {
      const uint32_t id = byte_ids_[static_cast<unsigned char>(text[i])];
      id != Vocabulary::kNone ? symbols.push_back({id, {i, i + 1}}) : add_unknown({i, i + 1}, symbols);
    }
  }

  void add_characters(std::string_view text, Span piece, std::vector<Symbol>& symbols) const {
    std::string spelled;
    for (uint32_t at = piece.begin; at < piece.end;) {
      const uint32_t end = at + decode_at(text, at).length;
      std::string_view token = text.substr(at, end - at);
      const bool prefix = at != piece.begin && !rules_.continuing_prefix.empty();
      const bool suffix = end == piece.end && !rules_.word_suffix.empty();
      if (prefix || suffix) {
        spelled = prefix ? rules_.continuing_prefix : "";
        spelled += token;
        if (suffix) spelled += rules_.word_suffix;
        token = spelled;
      }
      if (const uint32_t id = vocabulary_.find(token); id != Vocabulary::kNone) {
        symbols.push_back({id, {at, end}});
      } else if (byte_tokens_ && covers(*byte_tokens_, token)) {
        for (char c : token) symbols.push_back({(*byte_tokens_)[static_cast<unsigned char>(c)], {at, end}});
      } else {
        add_unknown({at, end}, symbols);
      }
      at = end;
    }
  }

  void add_unknown(Span span, std::vector<Symbol>& symbols) const {
    if (!rules_.unknown) return;  // as if the character were not there
    const bool fused = rules_.fuse_unknown && !symbols.empty() && symbols.back().id == *rules_.unknown &&
                       symbols.back().span.end == span.begin;
    fused ? void(symbols.back().span.end = span.end) : symbols.push_back({*rules_.unknown, span});
  }

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  BpeRules rules_;
  std::array<uint32_t, 256> byte_ids_{};
  std::optional<ByteTokens> byte_tokens_;
};

}  // namespace

ModelPtr make_bpe(const Vocabulary& vocabulary, MergeTable merges, BpeRules rules) {
  return std::make_unique<Bpe>(vocabulary, std::move(merges), std::move(rules));
}

}  // namespace tessera::text
