// What a tokenizer does to text before it is cut: the `normalizer` of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/aligned.h"
#include "text/charsmap.h"
#include "text/regex.h"

namespace tessera::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Changes the text; spans follow it.
  virtual Status apply(Aligned& text) const = 0;
};
using NormalizerPtr = std::unique_ptr<const Normalizer>;

enum class NormalForm { nfc, nfd, nfkc, nfkd };
// Unicode Standard Annex #15.
NormalizerPtr make_normal_form(NormalForm form);
// Code point by code point, in any context alike: a final sigma is no other letter.
NormalizerPtr make_lowercase();
// Removes marks (categories M*).
NormalizerPtr make_strip_accents();
NormalizerPtr make_strip(bool left, bool right);
// Both leave empty texts alone.
NormalizerPtr make_prepend(std::string content);
NormalizerPtr make_append(std::string content);
NormalizerPtr make_replace(Pattern pattern, std::string content);
// Removes controls and makes odd spaces plain ones, as the NMT training of SentencePiece did.
NormalizerPtr make_nmt();
struct BertRules {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};
NormalizerPtr make_bert(BertRules rules);
// Replaces graphemes, then code points, by a SentencePiece map.
NormalizerPtr make_precompiled(Charsmap charsmap);
// Each byte becomes its letter in the byte-level alphabet.
NormalizerPtr make_byte_level();
NormalizerPtr make_sequence(std::vector<NormalizerPtr> parts);

// The byte-level alphabet (GPT-2): printable Latin-1 stands for itself, other bytes for 256, 257 ... in order.
uint32_t byte_letter(uint8_t byte);
// The byte of a letter, or -1.
int letter_byte(uint32_t code_point);
// The bytes of a token that is spelled in the alphabet; false where a letter is not of it.
bool letters_to_bytes(std::string_view token, std::string& bytes);

}  // namespace tessera::text
