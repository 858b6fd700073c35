#include <algorithm>
#include <cctype>
#include <optional>

#include "base/result.h"
#include "text/jinja.h"
#include "text/unicode.h"

namespace tessera::text {
namespace {

using Kind = JinjaToken::Kind;

class Lexer {
 public:
  explicit Lexer(std::string_view source) : in_(source) {}
  Result<std::vector<JinjaToken>> run();

 private:
  tl::unexpected<Error> bad(std::string_view what) const {
    return fail(Code::template_syntax, "{}", at_line(in_, line_, what));
  }
  bool starts(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void advance(size_t count) {
    for (size_t i = 0; i < count; ++i) line_ += in_[at_ + i] == '\n' ? 1 : 0;
    at_ += count;
  }
  void put(Kind kind, std::string text = {}) { tokens_.push_back({kind, std::move(text), line_}); }
  void add_text(std::string_view text);
  Status comment();
  Status tag(Kind close, std::string_view mark);
  size_t end_of(size_t at, std::string_view word) const;
  Status raw(size_t begin);
  Status string(char quote);
  std::optional<uint32_t> escaped(size_t& i) const;
  void number();

  std::string_view in_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool trim_left_ = false;    // the last tag ended in '-'
  bool after_block_ = false;  // a statement or comment ended: its line end belongs to it
  std::vector<JinjaToken> tokens_;
};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }

// Text between tags. A '-' at a tag takes all blanks beside it; behind a statement its line end goes, and before one
// the blanks that begin its line.
void Lexer::add_text(std::string_view text) {
  const size_t end = at_ + text.size();
  const char sign = end + 2 < in_.size() ? in_[end + 2] : '\0';
  const bool block_follows = end + 1 < in_.size() && in_[end + 1] != '{';
  std::string_view kept = text;
  if (trim_left_) {
    while (!kept.empty() && is_blank(kept.front())) kept.remove_prefix(1);
  } else if (after_block_) {
    if (kept.starts_with('\r')) kept.remove_prefix(1);
    if (kept.starts_with('\n')) kept.remove_prefix(1);
  }
  if (end < in_.size() && sign == '-') {
    while (!kept.empty() && is_blank(kept.back())) kept.remove_suffix(1);
  } else if (end < in_.size() && block_follows && sign != '+') {
    size_t begin = end;
    while (begin > 0 && (in_[begin - 1] == ' ' || in_[begin - 1] == '\t')) --begin;
    if (begin == 0 || in_[begin - 1] == '\n') kept.remove_suffix(std::min(kept.size(), end - begin));
  }
  if (!kept.empty()) put(Kind::text, std::string(kept));
  advance(text.size());
  trim_left_ = after_block_ = false;
}

Status Lexer::comment() {
  const size_t end = in_.find("#}", at_ + 2);
  if (end == std::string_view::npos) return bad("a comment is not closed");
  trim_left_ = in_[end - 1] == '-' && end - 1 > at_ + 1;
  after_block_ = true;
  advance(end + 2 - at_);
  return {};
}

// The code point of \xHH, \uHHHH or \UHHHHHHHH at `i`, which moves to its last digit; surrogates come in pairs.
std::optional<uint32_t> Lexer::escaped(size_t& i) const {
  const auto digits = [&](size_t at, size_t count) -> std::optional<uint32_t> {
    uint32_t value = 0;
    for (size_t k = at; k < at + count; ++k) {
      if (k >= in_.size() || std::isxdigit(static_cast<unsigned char>(in_[k])) == 0) return std::nullopt;
      const char c = static_cast<char>(in_[k] | 0x20);  // a letter's small form
      value = value * 16 + static_cast<uint32_t>(in_[k] <= '9' ? in_[k] - '0' : c - 'a' + 10);
    }
    return value;
  };
  const size_t count = in_[i] == 'x' ? 2 : in_[i] == 'u' ? 4 : 8;
  std::optional<uint32_t> code = digits(i + 1, count);
  if (!code) return std::nullopt;
  i += count;
  if (*code >= 0xD800 && *code < 0xDC00 && in_.substr(i + 1).starts_with("\\u")) {
    if (const auto low = digits(i + 3, 4); low && *low >= 0xDC00 && *low < 0xE000) {
      i += 6;
      return 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
    }
  }
  return *code < 0x110000 && (*code < 0xD800 || *code > 0xDFFF) ? *code : 0xFFFD;
}

Status Lexer::string(char quote) {
  std::string text;
  size_t i = at_ + 1;
  for (; i < in_.size() && in_[i] != quote; ++i) {
    if (in_[i] != '\\' || i + 1 == in_.size()) {
      text += in_[i];
      continue;
    }
    const char c = in_[++i];
    switch (c) {
      case 'n':
        text += '\n';
        break;
      case 't':
        text += '\t';
        break;
      case 'r':
        text += '\r';
        break;
      case 'b':
        text += '\b';
        break;
      case 'f':
        text += '\f';
        break;
      case 'v':
        text += '\v';
        break;
      case 'x':
      case 'u':
      case 'U':
        if (const auto code = escaped(i)) {
          append_utf8(text, *code);
        } else {
          text.append({'\\', c});
        }
        break;
      case '\\':
      case '\'':
      case '"':
        text += c;
        break;
      default:  // means nothing, and stays
        text.append({'\\', c});
        break;
    }
  }
  if (i == in_.size()) return bad("a string is not closed");
  put(Kind::string, std::move(text));
  advance(i + 1 - at_);
  return {};
}

void Lexer::number() {
  size_t i = at_;
  bool real = false;
  const auto digit = [&](size_t k) { return k < in_.size() && std::isdigit(static_cast<unsigned char>(in_[k])) != 0; };
  while (digit(i) || (i < in_.size() && in_[i] == '_')) ++i;
  if (i < in_.size() && in_[i] == '.' && digit(i + 1)) {
    real = true;
    for (++i; digit(i);) ++i;
  }
  if (i > at_ && i + 1 < in_.size() && (in_[i] == 'e' || in_[i] == 'E')) {
    const size_t power = i + (in_[i + 1] == '-' || in_[i + 1] == '+' ? 2 : 1);
    real = real || digit(power);
    for (i = digit(power) ? power : i; digit(i);) ++i;
  }
  std::string text;
  for (char c : in_.substr(at_, i - at_))
    if (c != '_') text += c;
  put(real ? Kind::real : Kind::integer, std::move(text));
  advance(i - at_);
}

// What stands inside {% %} or {{ }}.
Status Lexer::tag(Kind close, std::string_view mark) {
  constexpr std::string_view operators[] = {"==", "!=", ">=", "<=", "//", "**", "<", ">", "=", "+", "-", "*", "/",
                                            "%",  "~",  "(",  ")",  "[",  "]",  "{", "}", ",", ".", ":", "|"};
  int braces = 0;
  while (at_ < in_.size()) {
    const char c = in_[at_];
    if (is_blank(c)) {
      advance(1);
      continue;
    }
    const bool dash = c == '-' || c == '+';
    if (braces == 0 && (starts(mark) || (dash && in_.substr(at_ + 1).starts_with(mark)))) {
      put(close);
      trim_left_ = c == '-';
      after_block_ = close == Kind::end && c != '+';
      advance(mark.size() + (dash ? 1 : 0));
      return {};
    }
    if (c == '"' || c == '\'') {
      TESSERA_TRY(string(c));
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      number();
    } else if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') {
      size_t i = at_;
      while (i < in_.size() && (std::isalnum(static_cast<unsigned char>(in_[i])) != 0 || in_[i] == '_')) ++i;
      put(Kind::name, std::string(in_.substr(at_, i - at_)));
      advance(i - at_);
    } else {
      std::string_view found;
      for (std::string_view op : operators)
        if (found.empty() && starts(op)) found = op;
      if (found.empty()) return bad(fmt::format("the character '{}' has no meaning here", c));
      braces += found == "{" ? 1 : found == "}" ? -1 : 0;
      put(Kind::op, std::string(found));
      advance(found.size());
    }
  }
  return bad("a tag is not closed");
}

// Behind the tag of this one word that stands at `at`; 0 when another does.
size_t Lexer::end_of(size_t at, std::string_view word) const {
  const auto blanks = [&] {
    while (at < in_.size() && is_blank(in_[at])) ++at;
  };
  const auto sign = [&] { at += at < in_.size() && (in_[at] == '-' || in_[at] == '+') ? 1 : 0; };
  at += 2;
  sign();
  blanks();
  if (!in_.substr(std::min(at, in_.size())).starts_with(word)) return 0;
  at += word.size();
  blanks();
  sign();
  return in_.substr(std::min(at, in_.size())).starts_with("%}") ? at + 2 : 0;
}

// What is no template: up to {% endraw %}. `begin`: behind {% raw %}.
Status Lexer::raw(size_t begin) {
  size_t end = in_.find("{%", begin);
  while (end != std::string_view::npos && end_of(end, "endraw") == 0) end = in_.find("{%", end + 2);
  if (end == std::string_view::npos) return bad("the template ends before {% endraw %}");
  advance(begin - at_);
  trim_left_ = in_[at_ - 3] == '-';
  after_block_ = false;
  add_text(in_.substr(at_, end - at_));
  advance(end_of(end, "endraw") - at_);
  trim_left_ = in_[at_ - 3] == '-';
  after_block_ = in_[at_ - 3] != '+';
  return {};
}

Result<std::vector<JinjaToken>> Lexer::run() {
  // One line end at the very end belongs to the file, not to the text.
  if (in_.ends_with('\n')) in_.remove_suffix(1);
  while (at_ < in_.size()) {
    if (starts("{#")) {
      TESSERA_TRY(comment());
    } else if (const size_t body = starts("{%") ? end_of(at_, "raw") : 0; body != 0) {
      TESSERA_TRY(raw(body));
    } else if (starts("{%") || starts("{{")) {
      const bool statement = in_[at_ + 1] == '%';
      put(statement ? Kind::begin : Kind::open);
      advance(2);
      if (at_ < in_.size() && (in_[at_] == '-' || (statement && in_[at_] == '+'))) advance(1);
      TESSERA_TRY(tag(statement ? Kind::end : Kind::close, statement ? "%}" : "}}"));
    } else {
      size_t end = in_.find('{', at_);
      while (end != std::string_view::npos && end + 1 < in_.size() && in_[end + 1] != '%' && in_[end + 1] != '{' &&
             in_[end + 1] != '#')
        end = in_.find('{', end + 1);
      if (end == std::string_view::npos || end + 1 >= in_.size()) end = in_.size();
      add_text(in_.substr(at_, end - at_));
    }
  }
  put(Kind::stop);
  return std::move(tokens_);
}

}  // namespace

Result<std::vector<JinjaToken>> lex_jinja(std::string_view source) { return Lexer(source).run(); }

std::string at_line(std::string_view source, uint32_t line, std::string_view what) {
  for (uint32_t i = 1; i < line; ++i) {
    const size_t end = source.find('\n');
    if (end == std::string_view::npos) break;
    source.remove_prefix(end + 1);
  }
  std::string_view text = source.substr(0, source.find('\n'));
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  constexpr size_t longest = 120;  // of a line that is shown
  return fmt::format("line {}: {}: '{}{}'", line, what, text.substr(0, longest), text.size() > longest ? "..." : "");
}

}  // namespace tessera::text
