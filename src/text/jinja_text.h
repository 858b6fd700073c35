// What Python does with strings.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja.h"

namespace tessera::text::py {

std::string lower(std::string_view text);
std::string upper(std::string_view text);
// The first letter large and all others small; of each word, or of the first.
std::string title(std::string_view text, bool every_word);
// The bytes of the blank at text[at], or 0: what JavaScript trims, which is Unicode's white space and U+FEFF but not
// U+0085.
size_t blank_at(std::string_view text, size_t at);
// Without the characters at its ends that `characters` holds, or blanks where it is no string.
std::string strip(std::string_view text, const Value& characters, bool left, bool right);
// The first `limit` of `from`; all where it is negative.
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit);
ValueList characters(std::string_view text);
// At most `limit` times, from the left or from the right; by blanks where no separator is given.
ValueList split(std::string_view text, const Value& separator, int64_t limit);
ValueList split_right(std::string_view text, const Value& separator, int64_t limit);

// The value as a whole number, or `otherwise` for all else.
inline int64_t whole_or(const Value& value, int64_t otherwise) {
  const int64_t* whole = value.get<int64_t>();
  return whole != nullptr ? *whole : otherwise;
}

}  // namespace tessera::text::py
