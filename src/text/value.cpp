#include "text/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/json_fields.h"
#include "text/unicode.h"

namespace tessera::text {
namespace {

constexpr int kMaxDepth = Value::kMaxDepth;

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
      for (const auto [key, value] : object) fields.emplace_back(key, from_json(value));
      return Value::dict(std::move(fields));
    }
    case Type::STRING:
      return json.get_string().value_unsafe();
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

// U+1F600 is \ud83d\ude00.
void append_escaped(std::string& out, uint32_t code) {
  if (code >= 0x10000) {
    append_escaped(out, 0xD7C0 + (code >> 10));
    code = 0xDC00 + (code & 0x3FF);
  }
  out += fmt::format("\\u{:04x}", code);
}

std::string quote_json(std::string_view text, bool ascii) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (ascii && static_cast<unsigned char>(c) >= 0x80 && utf8_step(text, i).valid > 0) {
      append_escaped(out, decode_at(text, i).code_point);
      i += utf8_step(text, i).valid - 1;
      continue;
    }
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

void write_json(const Value& value, const JsonStyle& style, int depth, std::string& out) {
  if (depth > kMaxDepth) {
    out += "null";
    return;
  }
  const auto line = [&](int level) {
    if (style.indent > 0) out += "\n" + std::string(static_cast<size_t>(style.indent * level), ' ');
  };
  if (const ValueList* items = value.items()) {
    out += '[';
    for (size_t i = 0; i < items->size(); ++i) {
      if (i > 0) out += style.comma;
      line(depth + 1);
      write_json((*items)[i], style, depth + 1, out);
    }
    if (!items->empty()) line(depth);
    out += ']';
  } else if (const ValueDict* fields = value.fields()) {
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& field : *fields) order.push_back(&field);
    if (style.sorted)
      std::stable_sort(order.begin(), order.end(), [](auto a, auto b) { return a->first.text() < b->first.text(); });
    out += '{';
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) out += style.comma;
      line(depth + 1);
      out += quote_json(order[i]->first.text(), style.ascii) + style.colon;
      write_json(order[i]->second, style, depth + 1, out);
    }
    if (!fields->empty()) line(depth);
    out += '}';
  } else if (const std::string* text = value.string()) {
    out += quote_json(*text, style.ascii);
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

template <class Parts>
void Value::Whole<Parts>::count(const Value& part) {
  weight = std::min(weight + part.weight(), UINT64_MAX / 4);
  depth = std::max(depth, part.depth() + 1);
}

Value Value::list(ValueList items) {
  auto whole = std::make_shared<List>();
  for (const Value& item : items) whole->count(item);
  whole->parts = std::move(items);
  Value value;
  value.data_ = std::shared_ptr<const List>(std::move(whole));
  return value;
}

std::shared_ptr<Value::Dict> Value::make_dict(ValueDict fields) {
  auto whole = std::make_shared<Dict>();
  for (const auto& [key, field] : fields) {
    whole->count(key);
    whole->count(field);
  }
  whole->parts = std::move(fields);
  return whole;
}

Value Value::dict(ValueDict fields) {
  Value value;
  value.data_ = make_dict(std::move(fields));
  return value;
}

Value Value::name_space(ValueDict fields) {
  auto whole = make_dict(std::move(fields));
  whole->settable = true;
  Value value;
  value.data_ = std::move(whole);
  return value;
}

bool Value::set_field(std::string_view key, const Value& value) {
  const auto* shared = get<std::shared_ptr<Dict>>();
  if (shared == nullptr || !(*shared)->settable) return false;
  Dict& whole = **shared;
  for (auto& [name, field] : whole.parts) {
    if (name.string() == nullptr || *name.string() != key) continue;
    whole.weight -= std::min(whole.weight - 1, field.weight());
    whole.count(value);
    field = value;
    return true;
  }
  whole.parts.emplace_back(key, value);
  whole.count(whole.parts.back().first);
  whole.count(value);
  return true;
}

const ValueList* Value::items() const {
  const auto* list = get<std::shared_ptr<const List>>();
  return list != nullptr ? &(*list)->parts : nullptr;
}

const ValueDict* Value::fields() const {
  const auto* dict = get<std::shared_ptr<Dict>>();
  return dict != nullptr ? &(*dict)->parts : nullptr;
}

uint64_t Value::weight() const {
  if (const std::string* text = string()) return 1 + text->size() / 16;
  if (const auto* list = get<std::shared_ptr<const List>>()) return (*list)->weight;
  if (const auto* dict = get<std::shared_ptr<Dict>>()) return (*dict)->weight;
  return 1;
}

uint64_t Value::size() const {
  if (const ValueList* list = items()) return 1 + list->size();
  if (const ValueDict* dict = fields()) return 1 + dict->size();
  return weight();
}

uint32_t Value::depth() const {
  if (const auto* list = get<std::shared_ptr<const List>>()) return (*list)->depth;
  if (const auto* dict = get<std::shared_ptr<Dict>>())
    return (*dict)->settable ? std::max((*dict)->depth, kMaxDepth) : (*dict)->depth;
  return 0;
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
  return macro() != nullptr || number() != 0;
}

Value Value::field(std::string_view key) const {
  if (const ValueDict* dict = fields())
    for (const auto& [name, value] : *dict)
      if (name.string() != nullptr && *name.string() == key) return value;
  return {};
}

std::string Value::text() const {
  if (const std::string* own = string()) return *own;
  if (const double* real = get<double>()) return real_text(*real);
  if (is_undefined() || is_null() || macro() != nullptr) return {};
  return json();
}

std::string Value::json(const JsonStyle& style) const {
  std::string out;
  write_json(*this, style, 0, out);
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
  if (const std::string* text = a.string()) return *text == *b.string();
  if (const ValueList* items = a.items()) return *items == *b.items();
  if (const ValueDict* fields = a.fields()) return *fields == *b.fields();
  return a.data_ == b.data_;
}

}  // namespace tessera::text
