#include "text/value.h"

#include <fmt/format.h>

#include <cmath>

#include "text/json_fields.h"

namespace tessera::text {
namespace {

constexpr int kMaxDepth = 64;

Value from_json(const JsonValue& json) {
  using Type = simdjson::dom::element_type;
  switch (json.type()) {
    case Type::ARRAY: {
      ValueList items;
      const simdjson::dom::array array = json.get_array().value_unsafe();
      for (const JsonValue item : array) items.push_back(from_json(item));
      return Value::list(std::move(items));
    }
    case Type::OBJECT: {
      ValueDict fields;
      const simdjson::dom::object object = json.get_object().value_unsafe();
      for (const auto [key, value] : object) fields.emplace_back(std::string(key), from_json(value));
      return Value::dict(std::move(fields));
    }
    case Type::STRING:
      return std::string(json.get_string().value_unsafe());
    case Type::BOOL:
      return json.get_bool().value_unsafe();
    case Type::INT64:
      return json.get_int64().value_unsafe();
    case Type::UINT64:
      return static_cast<double>(json.get_uint64().value_unsafe());
    case Type::DOUBLE:
      return json.get_double().value_unsafe();
    default:
      return nullptr;
  }
}

std::string quote_json(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<int>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

std::string real_text(double value) {
  if (std::floor(value) == value && std::abs(value) < 1e15) return fmt::format("{:.1f}", value);
  return fmt::format("{}", value);
}

void write_json(const Value& value, int indent, int depth, std::string& out) {
  if (depth > kMaxDepth) {
    out += "null";
    return;
  }
  const auto line = [&](int level) {
    if (indent > 0) out += "\n" + std::string(static_cast<size_t>(indent * level), ' ');
  };
  const std::string_view comma = indent > 0 ? "," : ", ";
  if (const ValueList* items = value.items()) {
    out += '[';
    for (size_t i = 0; i < items->size(); ++i) {
      if (i > 0) out += comma;
      line(depth + 1);
      write_json((*items)[i], indent, depth + 1, out);
    }
    if (!items->empty()) line(depth);
    out += ']';
  } else if (const ValueDict* fields = value.fields()) {
    out += '{';
    for (size_t i = 0; i < fields->size(); ++i) {
      if (i > 0) out += comma;
      line(depth + 1);
      out += quote_json((*fields)[i].first) + ": ";
      write_json((*fields)[i].second, indent, depth + 1, out);
    }
    if (!fields->empty()) line(depth);
    out += '}';
  } else if (const std::string* text = value.string()) {
    out += quote_json(*text);
  } else if (const bool* truth = value.get<bool>()) {
    out += *truth ? "true" : "false";
  } else if (const int64_t* whole = value.get<int64_t>()) {
    out += std::to_string(*whole);
  } else if (const double* real = value.get<double>()) {
    out +=
        std::floor(*real) == *real && std::abs(*real) < 1e15 ? fmt::format("{:.0f}", *real) : fmt::format("{}", *real);
  } else {
    out += "null";
  }
}

}  // namespace

Result<Value> Value::parse_json(std::string_view text) {
  simdjson::dom::parser parser;
  if (parser.allocate(text.size(), kMaxDepth) != simdjson::SUCCESS)
    return fail(Code::out_of_memory, "no memory to read {} bytes of JSON", text.size());
  TESSERA_ASSIGN(const JsonValue json, parse_json_text(parser, text, "the value"));
  return from_json(json);
}

double Value::number() const {
  if (const int64_t* whole = get<int64_t>()) return static_cast<double>(*whole);
  if (const double* real = get<double>()) return *real;
  if (const bool* truth = get<bool>()) return *truth ? 1 : 0;
  return 0;
}

bool Value::truth() const {
  if (const std::string* text = string()) return !text->empty();
  if (const ValueList* list = items()) return !list->empty();
  if (const ValueDict* dict = fields()) return !dict->empty();
  if (is_undefined() || is_null()) return false;
  return get<std::shared_ptr<const Macro>>() != nullptr || number() != 0;
}

Value Value::field(std::string_view key) const {
  if (const ValueDict* dict = fields())
    for (const auto& [name, value] : *dict)
      if (name == key) return value;
  return {};
}

std::string Value::text() const {
  if (const std::string* own = string()) return *own;
  if (const double* real = get<double>()) return real_text(*real);
  if (is_undefined() || is_null() || get<std::shared_ptr<const Macro>>() != nullptr) return {};
  return json();
}

std::string Value::json(int indent) const {
  std::string out;
  write_json(*this, indent, 0, out);
  return out;
}

std::string_view Value::type_name() const {
  constexpr std::string_view names[] = {"undefined", "none",   "a boolean", "a number", "a number",
                                        "a string",  "a list", "a mapping", "a macro"};
  return names[data_.index()];
}

bool operator==(const Value& a, const Value& b) {
  const bool numbers = (a.is_number() || a.get<bool>() != nullptr) && (b.is_number() || b.get<bool>() != nullptr);
  if (numbers) return a.number() == b.number();
  if (a.data_.index() != b.data_.index()) return false;
  if (const ValueList* items = a.items()) return *items == *b.items();
  if (const ValueDict* fields = a.fields()) return *fields == *b.fields();
  return a.data_ == b.data_;
}

}  // namespace tessera::text
