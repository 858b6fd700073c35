#include "base/utf8.h"

namespace tessera {

Utf8Step utf8_step(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {1, 0, false};
  // Table 3-7 of the standard: how many bytes follow, and the range of the first of them.
  uint32_t following = 0;
  unsigned low = 0x80, high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    following = 1;
  } else if (first >= 0xE0 && first <= 0xEF) {
    following = 2;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    following = 3;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {0, 1, false};
  }
  for (uint32_t i = 1; i <= following; ++i) {
    if (at + i == text.size()) return {0, i, true};
    const auto byte = static_cast<unsigned char>(text[at + i]);
    if (byte < low || byte > high) return {0, i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {following + 1, 0, false};
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = utf8_step(text, at);
    if (step.valid == 0) return false;
    at += step.valid;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.valid != 0) {
      out.append(text, at, step.valid);
      at += step.valid;
    } else {
      out += "\xEF\xBF\xBD";
      at += step.bad;
    }
  }
  return out;
}

}  // namespace tessera
