// Code points: UTF-8, general categories, and the character classes that tokenizers use. Unicode 17.0: the versions of
// the libraries are older, and what changed since them stands in unicode_changes.inc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace tessera::text {

// Bytes [begin, end).
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
  friend bool operator==(Span, Span) = default;
};

// In the order of utf8proc_category_t.
enum class Category : uint8_t {
  Cn,
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co
};
Category category(uint32_t code_point);

// Sets of categories, by their first letter or by listing.
constexpr uint32_t bit(Category c) { return 1u << static_cast<int>(c); }
constexpr uint32_t kLetters =
    bit(Category::Lu) | bit(Category::Ll) | bit(Category::Lt) | bit(Category::Lm) | bit(Category::Lo);
constexpr uint32_t kMarks = bit(Category::Mn) | bit(Category::Mc) | bit(Category::Me);
constexpr uint32_t kNumbers = bit(Category::Nd) | bit(Category::Nl) | bit(Category::No);
constexpr uint32_t kPunctuation = bit(Category::Pc) | bit(Category::Pd) | bit(Category::Ps) | bit(Category::Pe) |
                                  bit(Category::Pi) | bit(Category::Pf) | bit(Category::Po);
constexpr uint32_t kSymbols = bit(Category::Sm) | bit(Category::Sc) | bit(Category::Sk) | bit(Category::So);
constexpr uint32_t kOther = bit(Category::Cc) | bit(Category::Cf) | bit(Category::Cs) | bit(Category::Co);
inline bool in(uint32_t code_point, uint32_t categories) { return (bit(category(code_point)) & categories) != 0; }

struct CategoryChange {
  uint32_t first;
  uint32_t last;
  Category category;
};
// What changed between Unicode 14.0 and 17.0, ascending.
const std::vector<CategoryChange>& category_changes();

// The property White_Space.
bool is_space(uint32_t code_point);
// \w: alphabetic, marks, decimal digits, connectors. The regular expressions of Rust add the two joiners.
bool is_word(uint32_t code_point);
bool is_ascii_punctuation(uint32_t code_point);
// ASCII punctuation and the categories P*: what BERT calls punctuation.
inline bool is_punctuation(uint32_t c) { return is_ascii_punctuation(c) || in(c, kPunctuation); }
// The simple lower case. U+0130 alone has two code points: see append_lower.
uint32_t to_lower(uint32_t code_point);
// The simple upper case.
uint32_t to_upper(uint32_t code_point);
// Appends the lower case of one code point, without regard to its neighbours.
void append_lower(std::string& out, uint32_t code_point);

struct Decoded {
  uint32_t code_point;
  uint32_t length;  // bytes
};
// The code point at text[at], which must be valid UTF-8 and not at its end.
inline Decoded decode_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> uint32_t { return static_cast<unsigned char>(text[at + i]); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}
// The code point that ends before text[end]; end > 0.
Decoded decode_before(std::string_view text, size_t end);
inline bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }
void append_utf8(std::string& out, uint32_t code_point);
size_t count_code_points(std::string_view text);

}  // namespace tessera::text
