#include "text/added_tokens.h"

namespace tessera::text {

Result<AddedTokens> AddedTokens::make(std::vector<AddedToken> tokens, const Normalizer* normalizer) {
  AddedTokens added;
  added.tokens_ = std::move(tokens);
  std::vector<std::string> forms(added.tokens_.size());
  std::vector<std::pair<std::string_view, uint32_t>> entries[2];
  for (uint32_t i = 0; i < added.tokens_.size(); ++i) {
    const AddedToken& token = added.tokens_[i];
    if (token.content.empty()) continue;
    TESSERA_TRY(added.by_id_.add(token.content, token.id));
    if (token.special) {
      if (added.special_.size() <= token.id) added.special_.resize(token.id + 1);
      added.special_[token.id] = true;
    }
    forms[i] = token.content;
    const bool normalized = token.normalized && normalizer != nullptr;
    if (normalized) {
      Aligned text(token.content, 0, false);
      TESSERA_TRY(normalizer->apply(text));
      forms[i] = text.text();
    }
    entries[normalized].emplace_back(forms[i], i);
    if (!forms[i].empty()) added.searches_[normalized].first_byte.set(static_cast<unsigned char>(forms[i][0]));
  }
  for (const size_t normalized : {0, 1}) added.searches_[normalized].trie = Trie(std::move(entries[normalized]));
  return added;
}

bool AddedTokens::is_special(uint64_t id) const { return id < special_.size() && special_[id]; }

void AddedTokens::split(std::string_view text, bool normalized, bool parse_special, std::vector<Section>& out) const {
  const Search& search = searches_[normalized];
  uint32_t done = 0;
  const auto size = static_cast<uint32_t>(text.size());
  for (uint32_t at = 0; at < size && !search.trie.empty();) {
    if (!search.first_byte[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const auto [length, index] = search.trie.longest(text, at);
    if (length == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[index];
    uint32_t begin = at, end = at + static_cast<uint32_t>(length);
    at = end;
    if (token.special && !parse_special) continue;
    if (token.single_word) {
      const bool word_before = begin > 0 && is_word(decode_before(text, begin).code_point);
      const bool word_behind = end < size && is_word(decode_at(text, end).code_point);
      if (word_before || word_behind) continue;
    }
    if (token.lstrip)
      while (begin > done && is_space(decode_before(text, begin).code_point))
        begin -= decode_before(text, begin).length;
    if (token.rstrip)
      while (end < size && is_space(decode_at(text, end).code_point)) end += decode_at(text, end).length;
    if (done < begin) out.push_back({{done, begin}, Vocabulary::kNone});
    out.push_back({{begin, end}, token.id});
    done = at = end;
  }
  if (done < size) out.push_back({{done, size}, Vocabulary::kNone});
}

}  // namespace tessera::text
