// Filters, tests and methods.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <tuple>

#include "base/result.h"
#include "text/jinja.h"
#include "text/unicode.h"

namespace tessera::text {
namespace {

constexpr std::string_view kFilters[] = {
    "abs",    "bool",   "capitalize", "count",      "d",       "default", "dictsort", "escape",   "e",          "first",
    "float",  "indent", "int",        "items",      "join",    "last",    "length",   "list",     "lower",      "map",
    "max",    "min",    "reject",     "rejectattr", "replace", "reverse", "safe",     "select",   "selectattr", "sort",
    "string", "sum",    "title",      "tojson",     "trim",    "unique",  "upper",    "urlencode"};
constexpr std::string_view kTests[] = {
    "boolean", "callable", "defined", "divisibleby", "eq",       "equalto", "even",  "false",     "float",
    "ge",      "gt",       "in",      "integer",     "iterable", "le",      "lower", "lt",        "mapping",
    "ne",      "none",     "number",  "odd",         "sequence", "string",  "true",  "undefined", "upper"};

tl::unexpected<Error> wrong(std::string_view what, const Value& value) {
  return fail(Code::template_failed, "'{}' does not take {}", what, value.type_name());
}

// A whole number, or `otherwise` for all else.
int64_t whole_or(const Value& value, int64_t otherwise) {
  const int64_t* whole = value.get<int64_t>();
  return whole != nullptr ? *whole : otherwise;
}

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

std::string indent(std::string_view text, const Value& width, bool first, bool blank) {
  const int64_t* spaces = width.get<int64_t>();
  const std::string pad =
      width.string() != nullptr
          ? *width.string()
          : std::string(spaces != nullptr ? static_cast<size_t>(std::clamp<int64_t>(*spaces, 0, 1000)) : 4, ' ');
  std::string out;
  bool start = false;
  if (first) out += pad;
  for (size_t at = 0; at < text.size(); ++at) {
    if (start && (blank || text[at] != '\n')) out += pad;
    start = text[at] == '\n';
    out += text[at];
  }
  return out;
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

// Python's split: by spaces where no separator is given.
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
  constexpr std::string_view spaces = " \t\n\r\f\v";
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(spaces), text.size()));
    if (text.empty()) return out;
    const size_t end = limit-- == 0 ? text.size() : std::min(text.find_first_of(spaces), text.size());
    out.emplace_back(std::string(text.substr(0, end)));
    text.remove_prefix(end);
  }
}

// "a.b" of an item, where a may be a list's index.
Value path_of(Value value, std::string_view path) {
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string_view part = path.substr(0, dot);
    path.remove_prefix(std::min(dot + 1, path.size()));
    size_t index = 0;
    if (const ValueList* items = value.items();
        items != nullptr && std::from_chars(part.data(), part.data() + part.size(), index).ec == std::errc()) {
      value = index < items->size() ? Value((*items)[index]) : Value();
    } else {
      value = value.field(part);
    }
  }
  return value;
}

bool before(const Value& a, const Value& b, bool case_sensitive) {
  if (a.string() != nullptr && b.string() != nullptr)
    return case_sensitive ? *a.string() < *b.string() : lower(*a.string()) < lower(*b.string());
  return a.number() < b.number();
}

Result<Value> select(std::string_view name, const ValueList& items, const Arguments& given) {
  const bool by_attribute = name.ends_with("attr");
  const bool keep = name.starts_with("select");
  size_t next = 0;
  const std::string attribute = by_attribute ? given.get(next++, "").text() : "";
  const Value test = given.get(next++, "");
  Arguments rest;
  for (; next < given.values.size(); ++next) rest.values.push_back(given.values[next]);
  if (!test.is_undefined() && !is_test(test.text()))
    return fail(Code::template_failed, "the test '{}' is not supported", test.text());
  ValueList out;
  for (const Value& item : items) {
    const Value value = by_attribute ? path_of(item, attribute) : item;
    bool holds = value.truth();
    if (!test.is_undefined()) {
      TESSERA_ASSIGN(holds, apply_test(test.text(), value, rest));
    }
    if (holds == keep) out.push_back(item);
  }
  return Value::list(std::move(out));
}

Result<Value> map(const ValueList& items, const Arguments& given) {
  ValueList out;
  const Value attribute = given.get(SIZE_MAX, "attribute");
  const std::string filter = given.get(0, "").text();
  if (attribute.is_undefined() && !is_filter(filter))
    return fail(Code::template_failed, "map needs an attribute or a filter");
  Arguments rest;
  for (size_t i = 1; i < given.values.size(); ++i) rest.values.push_back(given.values[i]);
  for (const Value& item : items) {
    if (attribute.is_undefined()) {
      TESSERA_ASSIGN(Value value, apply_filter(filter, item, rest));
      out.push_back(std::move(value));
    } else {
      Value value = path_of(item, attribute.text());
      out.push_back(value.is_undefined() ? given.get(SIZE_MAX, "default") : std::move(value));
    }
  }
  return Value::list(std::move(out));
}

Result<Value> list_filter(std::string_view name, const ValueList& items, const Arguments& given) {
  if (name == "first") return items.empty() ? Value() : items.front();
  if (name == "last") return items.empty() ? Value() : items.back();
  if (name.starts_with("select") || name.starts_with("reject")) return select(name, items, given);
  if (name == "map") return map(items, given);
  ValueList out = items;
  if (name == "list") return Value::list(std::move(out));
  if (name == "reverse") {
    std::reverse(out.begin(), out.end());
    return Value::list(std::move(out));
  }
  if (name == "sort" || name == "min" || name == "max") {
    const std::string attribute = given.get(2, "attribute").text();
    const bool sensitive = given.get(1, "case_sensitive").truth();
    std::stable_sort(out.begin(), out.end(), [&](const Value& a, const Value& b) {
      return before(path_of(a, attribute), path_of(b, attribute), sensitive);
    });
    if (name != "sort") return out.empty() ? Value() : name == "min" ? out.front() : out.back();
    if (given.get(0, "reverse").truth()) std::reverse(out.begin(), out.end());
    return Value::list(std::move(out));
  }
  if (name == "unique") {
    ValueList kept;
    for (Value& item : out)
      if (std::find(kept.begin(), kept.end(), item) == kept.end()) kept.push_back(std::move(item));
    return Value::list(std::move(kept));
  }
  if (name == "sum") {
    double sum = 0;
    for (const Value& item : items) sum += item.number();
    return std::floor(sum) == sum && std::abs(sum) < 9e15 ? Value(static_cast<int64_t>(sum)) : Value(sum);
  }
  if (name == "join") {
    const std::string separator = given.get(0, "d").text();
    const std::string attribute = given.get(1, "attribute").text();
    std::string text;
    for (size_t i = 0; i < items.size(); ++i) text += (i > 0 ? separator : "") + path_of(items[i], attribute).text();
    return Value(std::move(text));
  }
  return fail(Code::template_failed, "'{}' does not take a list", name);
}

Result<Value> string_filter(std::string_view name, const std::string& text, const Arguments& given) {
  if (name == "upper") return Value(upper(text));
  if (name == "lower") return Value(lower(text));
  if (name == "title") return Value(title(text, true));
  if (name == "capitalize") return Value(title(text, false));
  if (name == "trim") return Value(strip(text, given.get(0, "chars"), true, true));
  if (name == "indent")
    return Value(indent(text, given.get(0, "width"), given.get(1, "first").truth(), given.get(2, "blank").truth()));
  if (name == "safe") return Value(text);
  if (name == "replace") {
    return Value(
        replace(text, given.get(0, "old").text(), given.get(1, "new").text(), whole_or(given.get(2, "count"), -1)));
  }
  if (name == "escape" || name == "e")
    return Value(replace(
        replace(replace(replace(replace(text, "&", "&amp;", -1), "<", "&lt;", -1), ">", "&gt;", -1), "\"", "&#34;", -1),
        "'", "&#39;", -1));
  return list_filter(name, characters(text), given);
}

// int and float: the argument stands for what is no number.
Value to_number(const Value& value, bool whole, const Value& otherwise) {
  double number = value.number();
  if (const std::string* text = value.string()) {
    const std::string plain = strip(*text, Value(), true, true);
    const auto [stop, error] = std::from_chars(plain.data(), plain.data() + plain.size(), number);
    if (error != std::errc() || plain.empty())
      return otherwise.is_undefined() ? whole ? Value(int64_t{0}) : Value(0.0) : otherwise;
  }
  if (!whole) return number;
  return std::abs(number) < 9e15 ? Value(static_cast<int64_t>(number)) : Value(int64_t{0});
}

JsonStyle json_style(const Arguments& given) {
  JsonStyle style;
  style.indent = static_cast<int>(std::clamp<int64_t>(whole_or(given.get(0, "indent"), 0), 0, 16));
  style.ascii = given.get(SIZE_MAX, "ensure_ascii").truth();
  style.sorted = given.get(SIZE_MAX, "sort_keys").truth();
  if (style.indent > 0) style.comma = ",";
  const Value separators = given.get(SIZE_MAX, "separators");
  if (const ValueList* pair = separators.items(); pair != nullptr && pair->size() == 2) {
    style.comma = (*pair)[0].text();
    style.colon = (*pair)[1].text();
  }
  return style;
}

constexpr uint64_t kHuge = uint64_t{1} << 48;  // of costs: far past any limit, and sums of them do not wrap
uint64_t times(uint64_t a, uint64_t b) { return b != 0 && a > kHuge / b ? kHuge : a * b; }

}  // namespace

bool is_filter(std::string_view name) {
  return std::find(std::begin(kFilters), std::end(kFilters), name) != std::end(kFilters);
}
bool is_test(std::string_view name) {
  return std::find(std::begin(kTests), std::end(kTests), name) != std::end(kTests);
}

Value Arguments::get(size_t place, std::string_view name) const {
  if (place < values.size()) return values[place];
  for (const auto& [key, value] : named)
    if (key == name) return value;
  return {};
}

uint64_t cost_of(std::string_view name, const Value& value, const Arguments& given) {
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  // map applies another filter to each item.
  const bool maps = name == "map" && given.get(0, "").string() != nullptr;
  if (maps) name = *given.get(0, "").string();
  const bool selects = name.starts_with("select") || name.starts_with("reject");
  const bool walks =
      maps || selects || is({"tojson", "string", "join", "unique", "sort", "min", "max", "eq", "equalto", "ne", "in"});
  const uint64_t size = walks ? value.weight() : value.size();
  uint64_t more = 0;
  const auto add = [&](const Value& argument) { more += std::min(argument.weight(), kHuge); };
  for (const Value& argument : given.values) add(argument);
  for (const auto& [key, argument] : given.named) add(argument);
  const uint64_t items = value.items() != nullptr ? value.items()->size() : times(size, 16);
  const Value old = given.get(maps ? 1 : 0, "old");
  const uint64_t from = old.string() != nullptr ? std::max<size_t>(1, old.string()->size()) : 1;
  uint64_t cost = std::min(size, kHuge) + more;
  if (is({"split", "find", "replace", "startswith", "endswith", "in"})) cost += times(size, more) / 16;
  if (selects || is({"join"})) cost += times(items, more);
  if (is({"strip", "lstrip", "rstrip", "trim"})) cost += times(size, more);
  if (is({"replace"})) cost += times(times(size, 16) / from, more);
  if (is({"unique"})) cost += times(size, items) / 8;
  if (is({"sort", "min", "max", "dictsort"})) cost += times(size, 32);
  if (is({"indent", "tojson"})) {
    const Value width = given.get(maps ? 1 : 0, name == "indent" ? "width" : "indent");
    const int64_t columns = std::clamp<int64_t>(whole_or(width, 4), 0, 1000);
    cost += times(size, name == "tojson" ? more : 0) / 4;  // separators are texts of any length
    cost += times(size, width.string() != nullptr ? width.string()->size() : static_cast<uint64_t>(columns));
  }
  return cost;
}

Result<Value> apply_filter(std::string_view name, const Value& value, const Arguments& given) {
  if (name == "default" || name == "d") {
    const bool also_false = given.get(1, "boolean").truth();
    const Value otherwise = given.get(0, "default_value");
    return value.is_undefined() || (also_false && !value.truth()) ? (otherwise.is_undefined() ? Value("") : otherwise)
                                                                  : value;
  }
  if (name == "tojson") return Value(value.json(json_style(given)));
  if (name == "string") return Value(value.text());
  if (name == "bool") return Value(value.truth());
  if (name == "int" || name == "float") return to_number(value, name == "int", given.get(0, "default"));
  if (name == "abs") {
    if (!value.is_number()) return wrong(name, value);
    if (const int64_t* whole = value.get<int64_t>()) return Value(std::abs(std::max(*whole, -INT64_MAX)));
    return Value(std::abs(value.number()));
  }
  if (name == "length" || name == "count") {
    if (const std::string* text = value.string()) return Value(static_cast<int64_t>(count_code_points(*text)));
    if (const ValueList* items = value.items()) return Value(static_cast<int64_t>(items->size()));
    if (const ValueDict* fields = value.fields()) return Value(static_cast<int64_t>(fields->size()));
    return wrong(name, value);
  }
  if (const ValueDict* fields = value.fields()) {
    ValueDict sorted = *fields;
    if (name == "dictsort") {
      const bool sensitive = given.get(0, "case_sensitive").truth(), down = given.get(2, "reverse").truth();
      const bool by_value = given.get(1, "by").text() == "value";
      std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
        const auto& [first, second] = down ? std::tie(b, a) : std::tie(a, b);
        return by_value ? before(first.second, second.second, sensitive) : before(first.first, second.first, sensitive);
      });
    }
    ValueList out;
    const bool pairs = name == "items" || name == "dictsort";
    for (const auto& [key, field] : sorted) out.push_back(pairs ? Value::list({key, field}) : key);
    if (pairs) return Value::list(std::move(out));
    return list_filter(name, out, given);
  }
  if (const ValueList* items = value.items()) return list_filter(name, *items, given);
  if (const std::string* text = value.string()) return string_filter(name, *text, given);
  if (value.is_undefined() && name == "list") return Value::list({});
  return wrong(name, value);
}

Result<bool> apply_test(std::string_view name, const Value& value, const Arguments& given) {
  const Value other = given.get(0, "");
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_null();
  if (name == "string") return value.string() != nullptr;
  if (name == "number") return value.is_number();
  if (name == "integer") return value.get<int64_t>() != nullptr;
  if (name == "float") return value.get<double>() != nullptr;
  if (name == "boolean") return value.get<bool>() != nullptr;
  if (name == "true" || name == "false") return value.get<bool>() != nullptr && value.truth() == (name == "true");
  if (name == "mapping") return value.fields() != nullptr;
  if (name == "sequence" || name == "iterable")
    return value.items() != nullptr || value.string() != nullptr || value.fields() != nullptr;
  if (name == "callable") return value.macro() != nullptr;
  if (name == "eq" || name == "equalto") return value == other;
  if (name == "ne") return !(value == other);
  if (name == "lt" || name == "ge") return before(value, other, true) == (name == "lt");
  if (name == "gt" || name == "le") return before(other, value, true) == (name == "gt");
  if (name == "in") {
    const ValueList* items = other.items();
    if (items != nullptr) return std::find(items->begin(), items->end(), value) != items->end();
    return value.string() != nullptr && other.string() != nullptr &&
           other.string()->find(*value.string()) != std::string::npos;
  }
  if (name == "lower" || name == "upper") {
    const std::string* text = value.string();
    return text != nullptr && *text == (name == "lower" ? lower(*text) : upper(*text));
  }
  const int64_t* whole = value.get<int64_t>();
  if (whole == nullptr) return wrong(name, value);
  if (name == "odd") return *whole % 2 != 0;
  if (name == "even") return *whole % 2 == 0;
  const int64_t* divisor = other.get<int64_t>();
  if (divisor == nullptr || *divisor == 0 || *divisor == -1) return wrong(name, other);
  return *whole % *divisor == 0;
}

Result<Value> call_method(const Value& object, std::string_view name, const Arguments& given) {
  if (const ValueDict* fields = object.fields()) {
    if (name == "items") return apply_filter("items", object, {});
    if (name == "get") {
      const Value value = object.field(given.get(0, "key").text());
      const Value otherwise = given.get(1, "default");
      return !value.is_undefined() ? value : otherwise.is_undefined() ? Value(nullptr) : otherwise;
    }
    ValueList out;
    for (const auto& [key, value] : *fields) out.push_back(name == "keys" ? key : value);
    if (name == "keys" || name == "values") return Value::list(std::move(out));
  }
  if (const std::string* text = object.string()) {
    const Value first = given.get(0, "");
    if (name == "upper") return Value(upper(*text));
    if (name == "lower") return Value(lower(*text));
    if (name == "title") return Value(title(*text, true));
    if (name == "capitalize") return Value(title(*text, false));
    if (name == "strip") return Value(strip(*text, first, true, true));
    if (name == "lstrip") return Value(strip(*text, first, true, false));
    if (name == "rstrip") return Value(strip(*text, first, false, true));
    if (name == "split") return Value::list(split(*text, first, whole_or(given.get(1, "maxsplit"), -1)));
    if (name == "splitlines") return Value::list(split(*text, "\n", -1));
    if (name == "join") return apply_filter("join", first, {{Value(*text)}, {}});
    if (name == "replace") return apply_filter("replace", object, given);
    if (name == "find") {
      const size_t at = text->find(first.text());
      return Value(at == std::string::npos ? int64_t{-1}
                                           : static_cast<int64_t>(count_code_points(text->substr(0, at))));
    }
    if (name == "startswith" || name == "endswith") {
      const ValueList one = first.items() != nullptr ? *first.items() : ValueList{first};
      return Value(std::any_of(one.begin(), one.end(), [&](const Value& v) {
        return name == "startswith" ? text->starts_with(v.text()) : text->ends_with(v.text());
      }));
    }
  }
  return fail(Code::template_failed, "{} has no method '{}'", object.type_name(), name);
}

std::string format_time(std::string_view format, int64_t seconds) {
  const std::time_t time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  localtime_r(&time, &parts);
  char text[256];
  const std::string zero_ended(format.substr(0, 200));
  return std::string(text, std::strftime(text, sizeof text, zero_ended.c_str(), &parts));
}

}  // namespace tessera::text
