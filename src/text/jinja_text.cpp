#include "text/jinja_text.h"

#include <algorithm>

#include "text/unicode.h"

namespace tessera::text::py {
namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";

// Each code point by `change`, which appends.
template <class Change>
std::string map_text(std::string_view text, Change change) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.valid == 0) {
      out += text[at++];
      continue;
    }
    change(out, decode_at(text, at).code_point);
    at += step.valid;
  }
  return out;
}

}  // namespace

std::string lower(std::string_view text) { return map_text(text, append_lower); }
std::string upper(std::string_view text) {
  return map_text(text, [](std::string& out, uint32_t c) {
    constexpr uint32_t sharp_s = 0xDF;
    c == sharp_s ? void(out += "SS") : append_utf8(out, to_upper(c));
  });
}
std::string title(std::string_view text, bool every_word) {
  bool start = true;
  return map_text(text, [&](std::string& out, uint32_t c) {
    start ? append_utf8(out, to_upper(c)) : append_lower(out, c);
    start = every_word && !in(c, kLetters | kNumbers) && c != '\'';
  });
}

std::string strip(std::string_view text, const Value& characters, bool left, bool right) {
  const std::string* any = characters.string();
  const auto drop = [&](char c) {
    return any != nullptr ? any->find(c) != std::string::npos
                          : is_space(static_cast<unsigned char>(c)) && static_cast<unsigned char>(c) < 0x80;
  };
  while (left && !text.empty() && drop(text.front())) text.remove_prefix(1);
  while (right && !text.empty() && drop(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit) {
  std::string out;
  size_t done = 0;
  if (from.empty()) {  // stands before each character, and at the end
    for (; done < text.size() && limit != 0; --limit) {
      const size_t length = std::max<uint32_t>(1, utf8_step(text, done).valid);
      out.append(to).append(text.substr(done, length));
      done += length;
    }
    if (limit != 0) return out.append(to);
    return out.append(text.substr(done));
  }
  for (size_t at = text.find(from); at != std::string_view::npos && limit != 0; at = text.find(from, done), --limit) {
    out += text.substr(done, at - done);
    out += to;
    done = at + from.size();
  }
  return out.append(text.substr(done));
}

ValueList characters(std::string_view text) {
  ValueList out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<uint32_t>(1, utf8_step(text, at).valid);
    out.emplace_back(std::string(text.substr(at, length)));
    at += length;
  }
  return out;
}

ValueList split(std::string_view text, const Value& separator, int64_t limit) {
  ValueList out;
  if (separator.string() != nullptr && !separator.string()->empty()) {
    const std::string& by = *separator.string();
    for (size_t at = text.find(by); at != std::string_view::npos && limit != 0; at = text.find(by), --limit) {
      out.emplace_back(std::string(text.substr(0, at)));
      text.remove_prefix(at + by.size());
    }
    out.emplace_back(std::string(text));
    return out;
  }
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (text.empty()) return out;
    const size_t end = limit-- == 0 ? text.size() : std::min(text.find_first_of(kBlanks), text.size());
    out.emplace_back(std::string(text.substr(0, end)));
    text.remove_prefix(end);
  }
}

ValueList split_right(std::string_view text, const Value& separator, int64_t limit) {
  ValueList out;
  const bool blanks = separator.string() == nullptr || separator.string()->empty();
  if (blanks) text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  while (limit-- != 0) {
    const size_t at = blanks ? text.find_last_of(kBlanks) : text.rfind(*separator.string());
    if (at == std::string_view::npos) break;
    out.emplace_back(std::string(text.substr(at + (blanks ? 1 : separator.string()->size()))));
    text = text.substr(0, at);
    if (blanks) text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  }
  if (!blanks || !text.empty()) out.emplace_back(std::string(text));
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace tessera::text::py
