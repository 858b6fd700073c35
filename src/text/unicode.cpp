#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace tessera::text {

const std::vector<CategoryChange>& category_changes() {
  static const std::vector<CategoryChange> changes = {
#define UNICODE_CHANGE(first, last, category) {first, last, Category::category},
#include "text/unicode_changes.inc"
#undef UNICODE_CHANGE
  };
  return changes;
}

Category category(uint32_t c) {
  static_assert(static_cast<int>(Category::Co) == UTF8PROC_CATEGORY_CO);
  const auto old = static_cast<Category>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
  // Besides unassigned code points only two have changed since the library's version.
  if (old != Category::Cn && c != 0x295 && c != 0x1171E) return old;
  const auto& changes = category_changes();
  const auto after =
      std::upper_bound(changes.begin(), changes.end(), c,
                       [](uint32_t value, const CategoryChange& change) { return value < change.first; });
  if (after == changes.begin()) return old;
  const CategoryChange& change = *(after - 1);
  return c <= change.last ? change.category : old;
}

bool is_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  if (c < 0x1680) return c == 0x85 || c == 0xA0;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word(uint32_t c) {
  constexpr uint32_t word = kLetters | kMarks | bit(Category::Nd) | bit(Category::Nl) | bit(Category::Pc);
  if (in(c, word)) return true;
  // The symbols that have the property Alphabetic: letters in circles and squares.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

bool is_ascii_punctuation(uint32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

uint32_t to_lower(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  // Pairs that are younger than the library's version.
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;
  switch (c) {
    case 0x1C89:
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA:
      return c + 1;
    case 0xA7CB:
      return 0x264;
    case 0xA7DC:
      return 0x19B;
    default:
      return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
}

uint32_t to_upper(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  return static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

void append_lower(std::string& out, uint32_t c) {
  append_utf8(out, to_lower(c));
  if (c == 0x130) append_utf8(out, 0x307);
}

Decoded decode_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && is_continuation(text[at])) --at;
  return decode_at(text, at);
}

void append_utf8(std::string& out, uint32_t c) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

}  // namespace tessera::text
