// The patterns of tokenizers: strings, and regular expressions in Oniguruma's syntax as tokenizer.json has them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tessera/error.h"
#include "text/unicode.h"

struct pcre2_real_match_data_8;

namespace tessera::text {

// The expression in PCRE2's syntax, meaning what Oniguruma (Ruby syntax, UTF-8) means, over Unicode 17. (?i) folds
// ASCII letters only. E0402 for what has no counterpart.
Result<std::string> translate_oniguruma(std::string_view expression);

// Where the match at `at` ends, for an expression that matches at every place of every text.
using Scanner = size_t (*)(std::string_view text, size_t at);
// The hand-written equivalent of an expression that many models share, or null.
Scanner find_scanner(std::string_view expression);

class Pattern {
 public:
  static Pattern literal(std::string text);
  // E0402 when the expression cannot be translated or compiled.
  static Result<Pattern> regex(std::string_view expression);
  // Always through PCRE2: what the scanners are compared with.
  static Result<Pattern> compiled_regex(std::string_view expression);
  static Pattern scanner(Scanner scanner);
  bool is_literal() const { return scanner_ == nullptr && code_ == nullptr; }

 private:
  friend class Matcher;
  struct Compiled;
  Pattern() = default;

  std::string literal_;
  Scanner scanner_ = nullptr;
  std::shared_ptr<const Compiled> code_;
};

// Finds a pattern's matches in a text from left to right. The pattern and the text must outlive it.
class Matcher {
 public:
  Matcher(const Pattern& pattern, std::string_view text);
  Matcher(const Matcher&) = delete;
  ~Matcher();

  // From here on matches are those of `text`.
  void restart(std::string_view text);
  // False when there is no further match. Matches do not overlap; they may be empty, but not right behind another.
  // E0506 when the expression backtracks beyond all use.
  Result<bool> next(Span& match);

 private:
  Result<bool> next_regex(Span& match);

  const Pattern& pattern_;
  std::string_view text_;
  size_t at_ = 0;
  size_t last_end_ = SIZE_MAX;
  pcre2_real_match_data_8* data_ = nullptr;
};

}  // namespace tessera::text
