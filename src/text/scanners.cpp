#include "text/scanners.h"

#include <array>

namespace tessera::text {
namespace {

// What the expressions ask of a code point.
enum : uint8_t { kLetter = 1, kNumber = 2, kSpace = 4, kUpper = 8, kLower = 16, kMark = 32 };
// kUpper and kLower are o200k's two classes: letters without case and marks belong to both.

uint8_t traits_of(uint32_t c) {
  const uint32_t set = bit(category(c));
  uint8_t traits = is_space(c) ? kSpace : 0;
  if (set & kLetters) traits |= kLetter;
  if (set & kNumbers) traits |= kNumber;
  if (set & kMarks) traits |= kMark;
  constexpr uint32_t caseless = bit(Category::Lm) | bit(Category::Lo) | kMarks;
  if (set & (bit(Category::Lu) | bit(Category::Lt) | caseless)) traits |= kUpper;
  if (set & (bit(Category::Ll) | caseless)) traits |= kLower;
  return traits;
}

const std::array<uint8_t, 128>& ascii_traits() {
  static const std::array<uint8_t, 128> table = [] {
    std::array<uint8_t, 128> traits{};
    for (uint32_t c = 0; c < 128; ++c) traits[c] = traits_of(c);
    return traits;
  }();
  return table;
}

// A text and its places. After the end comes a character without traits.
template <bool ecma>
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text), ascii_(ascii_traits()) {}
  struct Char {
    uint32_t code_point;
    uint32_t length;
    uint8_t traits;
    bool is(uint8_t any) const { return (traits & any) != 0; }
    bool line_end() const { return code_point == '\r' || code_point == '\n'; }
  };
  Char at(size_t place) const {
    if (place >= text_.size()) return {0, 0, 0};
    const auto byte = static_cast<unsigned char>(text_[place]);
    if (byte < 0x80) return {byte, 1, ascii_[byte]};
    const Decoded c = decode_at(text_, place);
    uint8_t traits = traits_of(c.code_point);
    if (ecma && c.code_point == 0xFEFF) traits = kSpace;
    if (ecma && c.code_point == 0x85) traits = 0;
    return {c.code_point, c.length, traits};
  }
  bool end(size_t place) const { return place >= text_.size(); }
  // The end of the run of characters that have any of the traits, at most `limit` of them.
  size_t run(size_t place, uint8_t any, size_t limit = SIZE_MAX) const {
    for (size_t n = 0; n < limit && !end(place); ++n) {
      const Char c = at(place);
      if (!c.is(any)) break;
      place += c.length;
    }
    return place;
  }
  size_t run_without(size_t place, uint8_t any) const {
    while (!end(place)) {
      const Char c = at(place);
      if (c.is(any)) break;
      place += c.length;
    }
    return place;
  }
  // The end of 's 't 're 've 'm 'll 'd at `place`, or `place`.
  size_t contraction(size_t place, bool any_case) const {
    if (place + 1 >= text_.size() || text_[place] != '\'') return place;
    const auto letter = [&](size_t i) -> char {
      if (i >= text_.size()) return 0;
      const char c = text_[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = letter(place + 1), second = letter(place + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return place + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
      return place + 3;
    return place;
  }
  // \s+(?!\S)|\s+ at a space: the run, but for its last character where something follows.
  size_t spaces(size_t place) const {
    size_t last = place, stop = place;
    while (!end(stop)) {
      const Char c = at(stop);
      if (!c.is(kSpace)) break;
      last = stop;
      stop += c.length;
    }
    return end(stop) || last == place ? stop : last;
  }
  // \s*[\r\n]+ at a space: the end of the last line end of the run, or `place` where the run has none.
  size_t lines(size_t place) const {
    size_t stop = place;
    for (size_t i = place; !end(i);) {
      const Char c = at(i);
      if (!c.is(kSpace)) break;
      i += c.length;
      if (c.line_end()) stop = i;
    }
    return stop;
  }
  size_t skip(size_t place, std::string_view any) const {
    while (place < text_.size() && any.find(text_[place]) != std::string_view::npos) ++place;
    return place;
  }

 private:
  std::string_view text_;
  const std::array<uint8_t, 128>& ascii_;
};

template <bool ecma>
size_t gpt2(std::string_view text, size_t at) {
  const Cursor<ecma> cursor(text);
  if (const size_t stop = cursor.contraction(at, false); stop != at) return stop;
  const auto first = cursor.at(at);
  const size_t body = first.code_point == ' ' ? at + 1 : at;
  if (!cursor.end(body)) {
    const auto c = cursor.at(body);
    if (c.is(kLetter)) return cursor.run(body, kLetter);
    if (c.is(kNumber)) return cursor.run(body, kNumber);
    if (!c.is(kSpace)) return cursor.run_without(body, kSpace | kLetter | kNumber);
  }
  return cursor.spaces(at);
}

// The end of " ?[^\s\p{L}\p{N}]+" and the characters of `tail` behind it, or `at`.
template <class C>
size_t symbols(const C& cursor, size_t at, std::string_view tail) {
  const size_t body = cursor.at(at).code_point == ' ' ? at + 1 : at;
  if (cursor.end(body) || cursor.at(body).is(kSpace | kLetter | kNumber)) return at;
  return cursor.skip(cursor.run_without(body, kSpace | kLetter | kNumber), tail);
}

template <class C>
size_t blank(const C& cursor, size_t at) {
  const size_t stop = cursor.lines(at);
  return stop != at ? stop : cursor.spaces(at);
}

size_t cl100k(std::string_view text, size_t at, size_t digits) {
  const Cursor<false> cursor(text);
  if (const size_t stop = cursor.contraction(at, true); stop != at) return stop;
  const auto first = cursor.at(at);
  if (first.is(kLetter)) return cursor.run(at, kLetter);
  if (first.is(kNumber)) return cursor.run(at, kNumber, digits);
  // A word may begin with one character that is no line end, letter or number.
  if (!first.line_end() && cursor.at(at + first.length).is(kLetter)) return cursor.run(at + first.length, kLetter);
  if (const size_t stop = symbols(cursor, at, "\r\n"); stop != at) return stop;
  return blank(cursor, at);
}

// Where U*L+ ends at `at`, for the two classes of o200k; `at` when it does not match. U* is greedy and gives back only
// what it must: one character, where no L follows and the last one is of both classes.
template <class C>
size_t lower_word(const C& cursor, size_t at) {
  size_t stop = at, caseless_end = at;  // caseless_end: behind the last character of both classes
  while (!cursor.end(stop)) {
    const auto c = cursor.at(stop);
    if (!c.is(kUpper)) break;
    stop += c.length;
    if (c.is(kLower)) caseless_end = stop;
  }
  const size_t lower = cursor.run(stop, kLower);
  return lower != stop ? lower : caseless_end;
}

}  // namespace

size_t scan_gpt2(std::string_view text, size_t at) { return gpt2<false>(text, at); }
size_t scan_gpt2_ecma(std::string_view text, size_t at) { return gpt2<true>(text, at); }
size_t scan_llama3(std::string_view text, size_t at) { return cl100k(text, at, 3); }
size_t scan_qwen2(std::string_view text, size_t at) { return cl100k(text, at, 1); }

size_t scan_o200k(std::string_view text, size_t at) {
  const Cursor<false> cursor(text);
  const auto first = cursor.at(at);
  const bool may_lead = !first.line_end() && !first.is(kLetter | kNumber);
  // Each word alternative is tried with the leading character first, then without.
  for (const bool capitals : {false, true}) {
    for (const bool leading : {true, false}) {
      if (leading && !may_lead) continue;
      const size_t body = leading ? at + first.length : at;
      const size_t stop = capitals ? cursor.run(body, kUpper) : lower_word(cursor, body);
      if (stop != body) return cursor.contraction(stop, true);
    }
  }
  if (first.is(kNumber)) return cursor.run(at, kNumber, 3);
  if (const size_t stop = symbols(cursor, at, "\r\n/"); stop != at) return stop;
  return blank(cursor, at);
}

Scanner find_scanner(std::string_view expression) {
  constexpr std::pair<std::string_view, Scanner> known[] = {{kGpt2Expression, scan_gpt2},
                                                            {kLlama3Expression, scan_llama3},
                                                            {kQwen2Expression, scan_qwen2},
                                                            {kO200kExpression, scan_o200k}};
  for (const auto& [text, scanner] : known)
    if (text == expression) return scanner;
  return nullptr;
}

}  // namespace tessera::text
