#include "ir/lexer.h"

#include <algorithm>

#include "base/result.h"

namespace tessera::ir {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }
// What the names, numbers and parentheses of a size start and end with.
bool starts_operand(char c) { return starts_word(c) || is_digit(c) || c == '"'; }
bool ends_operand(char c) { return continues_word(c) || c == ')' || c == '"'; }

// What the message shows of a token: long ones are cut.
std::string shown(const Token& token) {
  constexpr size_t kShown = 40;
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the text";
    case TokenKind::string:
      return token.text.size() <= kShown ? fmt::format("\"{}\"", token.text) : "a string";
    case TokenKind::label:
      return fmt::format("'%{}'", token.text.substr(0, kShown));
    case TokenKind::unknown:
      if (token.text == "\"") return "a string that does not end on its line";
      if (static_cast<unsigned char>(token.text[0]) < 0x20 || static_cast<unsigned char>(token.text[0]) >= 0x7f)
        return fmt::format("byte 0x{:02x}", static_cast<unsigned char>(token.text[0]));
      break;
    default:
      break;
  }
  return fmt::format("'{}'", token.text.substr(0, kShown));
}

}  // namespace

bool starts_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_word(char c) { return starts_word(c) || is_digit(c) || c == '.'; }
bool is_word(std::string_view text) {
  return !text.empty() && starts_word(text[0]) && std::all_of(text.begin(), text.end(), continues_word) &&
         text != "inf" && text != "nan";
}
bool is_reserved(std::string_view word) {
  return word == "graph" || word == "dim" || word == "guard" || word == "in" || word == "out" || word == "_";
}

Token Lexer::take() {
  Token token = next_;
  advance();
  return token;
}

bool Lexer::at(std::string_view punctuation_or_word) const {
  return (next_.kind == TokenKind::punctuation || next_.kind == TokenKind::word) && next_.text == punctuation_or_word;
}

bool Lexer::accept(std::string_view punctuation_or_word) {
  if (!at(punctuation_or_word)) return false;
  advance();
  return true;
}

bool Lexer::at_followed_by(std::string_view word, char c) const {
  if (!at(word)) return false;
  Lexer ahead = *this;
  ahead.skip_blanks();
  return ahead.offset_ < text_.size() && text_[ahead.offset_] == c;
}

void Lexer::skip_blanks() {
  while (offset_ < text_.size()) {
    char c = text_[offset_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++offset_;
    } else if (text_.substr(offset_, 2) == "//") {
      offset_ = std::min(text_.find('\n', offset_), text_.size());
    } else {
      return;
    }
  }
}

size_t Lexer::end_of_string(size_t quote) const {
  for (size_t i = quote + 1; i < text_.size() && text_[i] != '\n'; ++i) {
    if (text_[i] == '"') return i + 1;
    if (text_[i] == '\\' && i + 1 < text_.size() && text_[i + 1] != '\n') ++i;
  }
  return std::string_view::npos;
}

size_t Lexer::end_of_brackets(size_t open) const {
  int depth = 0;
  for (size_t i = open; i < text_.size();) {
    char c = text_[i];
    if (c == '"') {
      i = end_of_string(i);
      if (i == std::string_view::npos) return i;
      continue;
    }
    ++i;
    if (c == '[') ++depth;
    if (c == ']' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

// `begin` is at a digit, or at a minus sign before a digit or a word.
Token Lexer::scan_number(size_t begin) const {
  size_t i = begin + (text_[begin] == '-');
  bool hex = text_.substr(i, 2) == "0x";
  while (i < text_.size()) {
    char c = text_[i];
    bool sign_of_exponent = (c == '+' || c == '-') && !hex && i > begin && (text_[i - 1] == 'e' || text_[i - 1] == 'E');
    if (!continues_word(c) && !sign_of_exponent) break;
    ++i;
  }
  return {TokenKind::number, text_.substr(begin, i - begin), begin};
}

void Lexer::advance() {
  skip_blanks();
  size_t begin = offset_;
  if (begin == text_.size()) {
    next_ = {TokenKind::end, {}, begin};
    return;
  }
  char c = text_[begin];
  char after = begin + 1 < text_.size() ? text_[begin + 1] : '\0';
  if (starts_word(c)) {
    size_t end = begin + 1;
    while (end < text_.size() && continues_word(text_[end])) ++end;
    std::string_view word = text_.substr(begin, end - begin);
    next_ = {word == "inf" || word == "nan" ? TokenKind::number : TokenKind::word, word, begin};
    offset_ = end;
  } else if (is_digit(c) || (c == '-' && (is_digit(after) || starts_word(after)))) {
    next_ = scan_number(begin);
    offset_ = begin + next_.text.size();
  } else if (c == '%' && continues_word(after) && after != '.') {
    size_t end = begin + 1;
    while (end < text_.size() && continues_word(text_[end])) ++end;
    next_ = {TokenKind::label, text_.substr(begin + 1, end - begin - 1), begin};
    offset_ = end;
  } else if (c == '"') {
    size_t end = end_of_string(begin);
    if (end == std::string_view::npos) {
      next_ = {TokenKind::unknown, text_.substr(begin, 1), begin};
      offset_ = text_.size();
    } else {
      next_ = {TokenKind::string, text_.substr(begin + 1, end - begin - 2), begin};
      offset_ = end;
    }
  } else {
    size_t size = (c == '=' || c == '!' || c == '<') && after == '=' ? 2 : 1;
    bool known = std::string_view("{}[]()<>,:=!@#%+*-|").find(c) != std::string_view::npos;
    next_ = {known ? TokenKind::punctuation : TokenKind::unknown, text_.substr(begin, size), begin};
    offset_ = begin + size;
  }
}

Token Lexer::take_size_text() {
  size_t begin = next_.begin;
  size_t i = begin;
  int depth = 0;
  while (i < text_.size() && text_[i] != '\n') {
    char c = text_[i];
    if (c == '(') ++depth;
    if (c == ')' && --depth < 0) break;
    if (depth == 0 && (c == ',' || c == ':')) break;
    if (depth == 0 && i > begin && is_blank(text_[i - 1]) && starts_operand(c)) {
      size_t last = text_.find_last_not_of(" \t", i - 1);
      if (ends_operand(text_[last])) break;  // two operands without a sign between them: the next statement
    }
    if (std::string_view("[]{}=!<>%@#").find(c) != std::string_view::npos || text_.substr(i, 2) == "//") break;
    size_t end = c == '"' ? end_of_string(i) : i + 1;
    if (end == std::string_view::npos) break;
    i = end;
  }
  size_t end = i;
  while (end > begin && (is_blank(text_[end - 1]) || text_[end - 1] == '\r')) --end;
  offset_ = i;
  advance();
  return {TokenKind::word, text_.substr(begin, end - begin), begin};
}

Token Lexer::take_view_text() {
  Token nothing{TokenKind::word, {}, next_.begin};
  if (!at("[")) return nothing;
  size_t begin = next_.begin;
  size_t end = end_of_brackets(begin);
  if (end == std::string_view::npos) return nothing;
  offset_ = end;
  advance();
  if (!accept("from") || !at("[")) return nothing;
  end = end_of_brackets(next_.begin);
  if (end == std::string_view::npos) return nothing;
  offset_ = end;
  advance();
  return {TokenKind::word, text_.substr(begin, end - begin), begin};
}

std::string Lexer::position(size_t at) const {
  std::string_view before = text_.substr(0, at);
  size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  size_t line_start = before.rfind('\n');
  return fmt::format("line {}, column {}", line, line_start == std::string_view::npos ? at + 1 : at - line_start);
}

tl::unexpected<Error> Lexer::fail_at(size_t at, std::string_view message, Code code) const {
  return tl::unexpected<Error>(Error{code, fmt::format("{}: {}", position(at), message)});
}

tl::unexpected<Error> Lexer::expected(std::string_view what) const {
  return fail_at(next_.begin, fmt::format("expected {}, found {}", what, shown(next_)));
}

}  // namespace tessera::ir
