// Tokens of the graph's text form. The grammar stands in docs/ir.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/error.h"

namespace tessera::ir {

enum class TokenKind : uint8_t {
  end,          // of the text
  word,         // batch, f32, layer.1
  label,        // %12, %w; `text` without the %
  number,       // -1, 2.5e-3, 0x7fc0, inf, -inf, nan
  string,       // "..."; `text` between the quotes, still escaped
  punctuation,  // one of { } [ ] ( ) < > , : = ! @ # % + * - |, or == != <=
  unknown,      // a byte that starts no token, or a string that does not end on its line
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text = {};
  size_t begin = 0;  // offset of its first byte in the whole text
};

// Reads tokens one at a time, seeing one ahead. Skips blanks, line ends and comments ("//" to the end of the line).
// The text must outlive it.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { advance(); }

  const Token& peek() const { return next_; }
  Token take();
  bool at(std::string_view punctuation_or_word) const;
  // Takes the next token if it is this punctuation or word.
  bool accept(std::string_view punctuation_or_word);

  // Whether the next token is `word` and the one behind it starts with `c`.
  bool at_followed_by(std::string_view word, char c) const;

  // The text of a size expression that starts at the next token: up to a `,` `:` `)` `]` outside of its own
  // parentheses, a second operand without a sign between, a character that no size holds, or the end of the line. Moves
  // behind it.
  Token take_size_text();
  // The text of a view that starts at the next token, "[...] from [...]". Moves behind it; empty when it is no such
  // text.
  Token take_view_text();

  // E0205 (or `code`) with the line and column of `at`: "line 3, column 7: expected ']', found '}'".
  tl::unexpected<Error> fail_at(size_t at, std::string_view message, Code code = Code::text_syntax) const;
  // ... "expected `what`, found ..." at the next token.
  tl::unexpected<Error> expected(std::string_view what) const;
  // "line 3, column 7"
  std::string position(size_t at) const;

 private:
  void advance();
  void skip_blanks();
  size_t end_of_string(size_t quote) const;   // offset behind the closing quote; npos without one
  size_t end_of_brackets(size_t open) const;  // offset behind the bracket that closes; npos without one
  Token scan_number(size_t begin) const;

  std::string_view text_;
  size_t offset_ = 0;  // behind next_
  Token next_;
};

// Bytes that may start and continue a word.
bool starts_word(char c);
bool continues_word(char c);
// Whether all of `text` is one word, and not a number (inf, nan).
bool is_word(std::string_view text);
// The words that start a statement.
bool is_reserved(std::string_view word);

}  // namespace tessera::ir
