// Tokenizers as models ship them: text to token ids and back.
//
// Text is UTF-8. Invalid parts are read as U+FFFD first (unicode.h says how many). Offsets are bytes of the text as it
// was given, half-open, on character boundaries: where a token holds a part of a character, its span is that whole
// character; tokens that stand for no text have an empty span. A Tokenizer never changes once made and may be used from
// any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"
#include "text/unicode.h"

namespace tessera::gguf {
class File;
}

namespace tessera::text {

using TokenId = int32_t;

struct Encoding {
  std::vector<TokenId> ids;       // [T]
  std::vector<int32_t> type_ids;  // [T] 1 for the second text of a pair, where the model tells them apart
  std::vector<uint8_t> inserted;  // [T] 1 where the token belongs to the model's frame, not to the text
  std::vector<Span> offsets;      // [T] when asked for, else empty
  bool cut = false;               // whether a limit left tokens of the text out
};

struct EncodeOptions {
  bool frame = true;          // what the model puts around a text: <s>, [CLS] ... [SEP]
  bool parse_special = true;  // "<|im_end|>" in the text is that token; false reads it as ordinary text
  bool offsets = false;
  bool file_limits = false;  // truncate and pad as the tokenizer.json says
  size_t max_tokens = 0;     // and leave the end of the text out, so that no more remain with the frame; 0: no limit
};

struct DecodeOptions {
  bool skip_special = true;
  bool clean_up_spaces = false;  // "a ." becomes "a.", as clean_up_tokenization_spaces of Hugging Face
};

// Token ids with a meaning, where the files say so.
struct SpecialTokens {
  std::optional<TokenId> bos, eos, unk, pad, cls, sep, mask;
  std::vector<TokenId> end_of_turn;  // others that end an answer (GGUF's eot, eom)
};

// A template of chat_template.h, and the name that tokenizer_config.json gives it ("default" where it has none).
struct NamedTemplate {
  std::string name;
  std::string source;
};

struct TokenizerState;  // tokenizer_state.h

class Tokenizer {
 public:
  // A model's folder, a tokenizer.json, a SentencePiece model, a vocab.txt or a GGUF file. In a folder tokenizer.json
  // stands before tokenizer.model, spiece.model and sentencepiece.bpe.model, then vocab.json with merges.txt, then
  // vocab.txt; tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat_template.jinja are read
  // beside them.
  // E0101, E0104, E0209 for files that contradict themselves, E0402 for parts that Tessera does not know.
  static Result<Tokenizer> load(const std::string& path);
  // Of parts that a reader of this folder has put together.
  explicit Tokenizer(TokenizerState state);
  // From the metadata of a GGUF file.
  static Result<Tokenizer> from_gguf(const gguf::File& file);
  // From the texts of tokenizer.json and tokenizer_config.json (may be empty).
  static Result<Tokenizer> from_json(std::string_view tokenizer, std::string_view config = {});

  Result<Encoding> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Two texts in one sequence, as rerankers take them. Offsets are of the text that the token is from.
  Result<Encoding> encode_pair(std::string_view first, std::string_view second,
                               const EncodeOptions& options = {}) const;
  // The ids alone, without a frame.
  Result<std::vector<TokenId>> encode_ids(std::string_view text) const;

  // Valid UTF-8. Ids that the vocabulary lacks stand for nothing.
  std::string decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  // Ids are in [0, size()): the largest id + 1, which may be less than the model's rows.
  size_t size() const;
  // The token as the vocabulary spells it ("Ġthe", "▁the", "##the"); empty where there is none.
  std::string_view token(TokenId id) const;
  std::optional<TokenId> find(std::string_view token) const;
  // Whether decoding with skip_special leaves it out.
  bool is_special(TokenId id) const;
  const SpecialTokens& special() const;

  const std::vector<NamedTemplate>& chat_templates() const;
  // "BPE, 151669 tokens": for people.
  std::string description() const;

 private:
  friend class StreamDecoder;
  Result<Encoding> encode_texts(std::string_view first, const std::string_view* second,
                                const EncodeOptions& options) const;
  void decode_bytes(std::span<const TokenId> ids, const DecodeOptions& options, std::string& out) const;

  std::shared_ptr<const TokenizerState> state_;
};

// Decodes tokens as they come. The pieces are valid UTF-8 and together equal decode() of all ids: a character that is
// not complete yet is held back.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options = {});
  // The text that this token completes; may be empty.
  std::string push(TokenId id);
  // What is still held back: U+FFFD for a character that was never completed.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::vector<TokenId> window_;  // the last ids: what stands before a token may change its text
  std::string before_;           // their bytes
  std::string held_;             // the beginning of a character
};

}  // namespace tessera::text
