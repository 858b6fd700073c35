// From tokens back to text: the `decoder` of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/regex.h"

namespace tessera::text {

// A token's text on its way. It may hold bytes that are no UTF-8 yet: what is invalid is repaired when all is joined.
struct DecodedToken {
  std::string text;
  bool added = false;  // an added token: bytes are not spelled in it
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<DecodedToken>& tokens) const = 0;
};
using DecoderPtr = std::unique_ptr<const Decoder>;

DecoderPtr make_byte_level_decoder();
DecoderPtr make_word_piece_decoder(std::string prefix, bool clean_up);
DecoderPtr make_metaspace_decoder(std::string replacement, bool strip_first);
DecoderPtr make_bpe_decoder(std::string suffix);
DecoderPtr make_ctc_decoder(std::string pad, std::string word_delimiter, bool clean_up);
DecoderPtr make_byte_fallback_decoder();
DecoderPtr make_fuse_decoder();
// Removes at most `left` and `right` times the character `content` at the ends of each token.
DecoderPtr make_strip_decoder(std::string content, size_t left, size_t right);
DecoderPtr make_replace_decoder(Pattern pattern, std::string content);
DecoderPtr make_decoder_sequence(std::vector<DecoderPtr> parts);
// Where a tokenizer has none, its tokens are joined by spaces.
DecoderPtr make_spaced_decoder();

// "a . b" becomes "a. b", and so on.
std::string clean_up_spaces(std::string_view text);

}  // namespace tessera::text
