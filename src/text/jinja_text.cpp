#include "text/jinja_text.h"

#include <algorithm>

#include "text/unicode.h"

namespace tessera::text::py {
namespace {

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

size_t blank_at(std::string_view text, size_t at) {
  constexpr uint32_t next_line = 0x85, mark = 0xFEFF;
  const Utf8Step step = utf8_step(text, at);
  if (step.valid == 0) return 0;
  const uint32_t c = decode_at(text, at).code_point;
  return (is_space(c) && c != next_line) || c == mark ? step.valid : 0;
}

std::string strip(std::string_view text, const Value& characters, bool left, bool right) {
  const std::string* any = characters.string();
  // The bytes of the character at `at` that goes, or 0.
  const auto drop = [&](size_t at) -> size_t {
    if (any == nullptr) return blank_at(text, at);
    const size_t length = std::max<uint32_t>(1, utf8_step(text, at).valid);
    return any->find(text.substr(at, length)) != std::string::npos ? length : 0;
  };
  while (left && !text.empty()) {
    const size_t length = drop(0);
    if (length == 0) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && is_continuation(text[at])) --at;
    if (drop(at) != text.size() - at) break;
    text.remove_suffix(text.size() - at);
  }
  return std::string(text);
}

namespace {

// Where the run of blanks, or of others, that begins at `at` ends.
size_t end_of_run(std::string_view text, size_t at, bool blanks) {
  while (at < text.size()) {
    const size_t length = blank_at(text, at);
    if ((length > 0) != blanks) break;
    at += std::max<size_t>(length, 1);
  }
  return at;
}

}  // namespace

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
    text.remove_prefix(end_of_run(text, 0, true));
    if (text.empty()) return out;
    const size_t end = limit-- == 0 ? text.size() : end_of_run(text, 0, false);
    out.emplace_back(std::string(text.substr(0, end)));
    text.remove_prefix(end);
  }
}

ValueList split_right(std::string_view text, const Value& separator, int64_t limit) {
  ValueList out;
  if (separator.string() == nullptr || separator.string()->empty()) {
    out = split(text, Value(), -1);
    const auto kept = static_cast<int64_t>(out.size()) - limit;  // words that stay together
    if (limit < 0 || kept <= 0) return out;
    size_t end = 0;
    for (int64_t i = 0; i < kept; ++i) end = end_of_run(text, end_of_run(text, end, true), false);
    out.erase(out.begin(), out.begin() + kept);
    out.insert(out.begin(), Value(text.substr(0, end)));
    return out;
  }
  while (limit-- != 0) {
    const size_t at = text.rfind(*separator.string());
    if (at == std::string_view::npos) break;
    out.emplace_back(std::string(text.substr(at + separator.string()->size())));
    text = text.substr(0, at);
  }
  out.emplace_back(std::string(text));
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace tessera::text::py
