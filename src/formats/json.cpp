#include "formats/json.h"

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

// The deepest nesting of brackets outside of strings.
int depth_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, std::string_view what) {
  if (const int depth = depth_of(text); depth > kMaxJsonDepth)
    return fail(Code::file_malformed, "{} nests {} deep, more than {}", what, depth, kMaxJsonDepth);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return fail(Code::file_malformed, "{} is no JSON from byte {} on", what, error.byte);
  } catch (const nlohmann::json::out_of_range& error) {  // a number above the largest double; its text may be long
    const std::string_view reason = error.what();
    return fail(Code::file_malformed, "{} holds a number that does not fit a double: {}", what, reason.substr(0, 200));
  }
}

}  // namespace tessera
