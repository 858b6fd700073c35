// Cutting text into pieces that no token crosses: the `pre_tokenizer` of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/aligned.h"
#include "text/regex.h"

namespace tessera::text {

// A section of a text (what stands between added tokens), and the pieces of it: ascending, not empty.
struct Pieces {
  Aligned& text;
  std::vector<Span> spans;
  bool at_start;  // the section begins where the whole text does
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual Status apply(Pieces& pieces) const = 0;
};
using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

// What becomes of the matches of a pattern.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// `invert`: the matches are what stands between the pattern's.
PreTokenizerPtr make_split(Pattern pattern, SplitBehavior behavior, bool invert);
// Splits at code points of a class.
using CodePointClass = bool (*)(uint32_t);
PreTokenizerPtr make_class_split(CodePointClass matches, SplitBehavior behavior);
// \w+|[^\w\s]+ with the word characters of Rust's expressions.
PreTokenizerPtr make_whitespace();
// Spaces removed, punctuation isolated.
PreTokenizerPtr make_bert_pre_tokenizer();
// Digits are the categories N*.
PreTokenizerPtr make_digits(bool individual);
enum class PrependScheme { always, first, never };
PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme scheme, bool split);
struct ByteLevelRules {
  bool add_prefix_space = true;
  bool use_regex = true;
  bool to_letters = true;  // spell bytes in the byte-level alphabet; false leaves bytes to a model that takes them
};
PreTokenizerPtr make_byte_level_pre_tokenizer(ByteLevelRules rules);
// Splits where the script changes; Hiragana and Katakana count as Han.
Result<PreTokenizerPtr> make_unicode_scripts();
// Pieces of `length` code points.
PreTokenizerPtr make_fixed_length(size_t length);
PreTokenizerPtr make_pre_tokenizer_sequence(std::vector<PreTokenizerPtr> parts);

}  // namespace tessera::text
