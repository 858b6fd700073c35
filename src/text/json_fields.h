// Reading parsed JSON: a field that is absent or null takes its default, one of another type is E0104.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::text {

using JsonValue = simdjson::dom::element;

inline std::string_view json_type(const JsonValue& value) {
  switch (value.type()) {
    case simdjson::dom::element_type::ARRAY:
      return "an array";
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::STRING:
      return "a string";
    case simdjson::dom::element_type::BOOL:
      return "a boolean";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

// A copy in which whole numbers of more than 18 digits end in ".0": people write "no limit" as 1e30 in full.
inline std::string shorten_numbers(std::string_view text) {
  std::string out;
  bool quoted = false;
  size_t digits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool digit = !quoted && c >= '0' && c <= '9';
    if (!digit && digits > 18 && c != '.' && c != 'e' && c != 'E') out += ".0";
    digits = digit ? digits + 1 : 0;
    if (c == '"') quoted = !quoted;
    out += c;
    if (quoted && c == '\\' && i + 1 < text.size()) out += text[++i];
  }
  return out;
}

// The text's JSON, which lives as long as the parser. E0104 for what is no JSON or nests too deep.
inline Result<JsonValue> parse_json_text(simdjson::dom::parser& parser, std::string_view text, std::string_view what) {
  JsonValue value;
  // simdjson copies what it is given, and a text of nothing may lie nowhere.
  auto error = text.empty() ? simdjson::EMPTY : parser.parse(text.data(), text.size()).get(value);
  if (error == simdjson::NUMBER_ERROR) error = parser.parse(shorten_numbers(text)).get(value);
  if (error) return fail(Code::file_malformed, "{} is no JSON: {}", what, simdjson::error_message(error));
  return value;
}

// A field, or nothing when it is absent or null.
inline std::optional<JsonValue> field(const JsonValue& object, std::string_view key) {
  JsonValue value;
  if (!object.is_object() || object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

template <class T>
Result<T> as(const JsonValue& value, std::string_view key, std::string_view wanted) {
  T out;
  if (value.get(out) != simdjson::SUCCESS)
    return fail(Code::file_malformed, "'{}' is {}, not {}", key, json_type(value), wanted);
  return out;
}

inline Result<std::string_view> string_field(const JsonValue& object, std::string_view key,
                                             std::string_view otherwise) {
  const auto value = field(object, key);
  if (!value) return otherwise;
  return as<std::string_view>(*value, key, "a string");
}

inline Result<bool> bool_field(const JsonValue& object, std::string_view key, bool otherwise) {
  const auto value = field(object, key);
  if (!value) return otherwise;
  return as<bool>(*value, key, "a boolean");
}

// A count or an id: below 2^31.
inline Result<uint32_t> uint_field(const JsonValue& object, std::string_view key, uint32_t otherwise) {
  const auto value = field(object, key);
  if (!value) return otherwise;
  TESSERA_ASSIGN(const uint64_t number, as<uint64_t>(*value, key, "a number from 0"));
  if (number > INT32_MAX) return fail(Code::file_malformed, "'{}' is {}, past {}", key, number, INT32_MAX);
  return static_cast<uint32_t>(number);
}

// An array's elements; none when it is absent.
inline Result<simdjson::dom::array> array_field(const JsonValue& object, std::string_view key, std::string_view where) {
  const auto value = field(object, key);
  if (!value) return fail(Code::file_malformed, "{} has no '{}'", where, key);
  return as<simdjson::dom::array>(*value, key, "an array");
}

}  // namespace tessera::text
