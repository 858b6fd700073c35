// The readers of tokenizer files. Each fills the parts that its file tells. Included only by sources of this folder.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer_state.h"

namespace tessera::gguf {
class File;
}

namespace simdjson::dom {
class element;
}

namespace tessera::text {

// tokenizer.json: all but special ids and chat templates.
Status read_tokenizer_json(std::string_view text, TokenizerState& state);

// The metadata of a GGUF file: all.
Status read_gguf_tokenizer(const gguf::File& file, TokenizerState& state);

// tokenizer_config.json: the special tokens' texts and flags, and the chat templates.
struct TokenizerConfig {
  struct Named {
    std::string role;  // "bos_token"
    AddedToken token;  // id is set only in `added`
  };
  std::vector<Named> special;
  std::vector<AddedToken> added;  // added_tokens_decoder
  std::vector<NamedTemplate> chat_templates;
  std::string tokenizer_class;
  std::string source_language;  // src_lang: of texts, where a tokenizer has several
  std::optional<bool> add_bos, add_eos, lowercase, add_prefix_space, strip_accents, chinese_characters;

  const AddedToken* find(std::string_view role) const;
};
Status read_tokenizer_config(std::string_view text, TokenizerConfig& config);

// {"text": id}: the tokens of added_tokens.json.
Status read_added_tokens_file(std::string_view text, TokenizerConfig& config);

// A vocabulary alone, and what the configuration's class makes of it; `config` gets the roles that it leaves open.
// E0402 for classes that are not known.
Status read_word_piece_files(std::string_view vocab_txt, TokenizerConfig& config, TokenizerState& state);
Status read_byte_level_files(std::string_view vocab_json, std::string_view merges_txt, TokenizerConfig& config,
                             TokenizerState& state);

// {"token": id, ...}
Status read_vocabulary(const simdjson::dom::element& json, Vocabulary& vocabulary);
// What surrounds a text: bos A eos; in a pair `between` stands before the second text where no eos ends the first.
void make_frame(std::optional<TokenId> before, std::optional<TokenId> behind, std::optional<TokenId> between,
                int32_t second_type, Frame& frame);

// Puts a second `separator` before the second text of a pair, as RoBERTa has it.
void double_separator(TokenId separator, Frame& frame);

// Finds the ids of the special tokens that the config names.
void name_special_tokens(const TokenizerConfig& config, TokenizerState& state);

}  // namespace tessera::text
