// SentencePiece's models (github.com/google/sentencepiece): BPE by scores and Unigram, with its own normalisation and
// offsets. GGUF files of model "llama" and "t5" hold the same.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/charsmap.h"
#include "text/engine.h"
#include "text/tokenizer_state.h"

namespace tessera::text {

enum class PieceType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct SentencePieceModel {
  enum class Kind : uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  Kind kind = Kind::unigram;
  std::vector<std::string> pieces;  // by id
  std::vector<float> scores;
  std::vector<PieceType> types;
  Charsmap charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool whitespace_is_suffix = false;
  bool byte_fallback = false;
  std::string unknown_surface = " \xE2\x81\x87 ";
  std::optional<TokenId> bos, eos, unk, pad;
  std::vector<AddedToken> added;  // looked for in the text before all else
};

// The protobuf of a .model file. E0103, E0104, E0209.
Result<SentencePieceModel> parse_sentencepiece(std::string_view file);
// E0209 when the vocabulary lacks what the model needs.
Result<std::unique_ptr<const Engine>> make_sentencepiece_engine(SentencePieceModel model);

}  // namespace tessera::text
