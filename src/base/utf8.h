// UTF-8 that may be wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// The length of the valid UTF-8 character at text[at], or 0; then `bad` is how many bytes one U+FFFD stands for: the
// longest part that a valid character could begin with (Unicode 17.0, section 3.9, "U+FFFD Substitution of Maximal
// Subparts"), at least 1. `cut` tells that the text ends inside that part.
struct Utf8Step {
  uint32_t valid;
  uint32_t bad;
  bool cut;
};
Utf8Step utf8_step(std::string_view text, size_t at);
bool is_valid_utf8(std::string_view text);
// Invalid parts become U+FFFD.
std::string repair_utf8(std::string_view text);

}  // namespace tessera
