// Filters, tests and methods.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <tuple>

#include "base/result.h"
#include "text/jinja.h"
#include "text/jinja_format.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace tessera::text {
namespace {

constexpr std::string_view kFilters[] = {
    "abs",     "attr",     "batch",      "bool",     "capitalize", "center",  "count",     "d",
    "default", "dictsort", "e",          "escape",   "first",      "float",   "format",    "groupby",
    "indent",  "int",      "items",      "join",     "last",       "length",  "list",      "lower",
    "map",     "max",      "min",        "reject",   "rejectattr", "replace", "reverse",   "round",
    "safe",    "select",   "selectattr", "slice",    "sort",       "string",  "striptags", "sum",
    "title",   "tojson",   "trim",       "truncate", "unique",     "upper",   "urlencode", "wordcount"};
constexpr std::string_view kTests[] = {
    "!=",       "<",           "<=",      "==",      ">",         ">=",       "boolean", "callable",
    "defined",  "divisibleby", "eq",      "equalto", "even",      "false",    "filter",  "float",
    "ge",       "greaterthan", "gt",      "in",      "integer",   "iterable", "le",      "lessthan",
    "lower",    "lt",          "mapping", "ne",      "none",      "number",   "odd",     "sameas",
    "sequence", "string",      "test",    "true",    "undefined", "upper"};

// Filters that take what any value but none prints.
constexpr std::string_view kOfText[] = {"capitalize", "center",    "e",         "escape", "lower",
                                        "replace",    "striptags", "title",     "trim",   "truncate",
                                        "upper",      "urlencode", "wordcount", "indent", "safe"};

using py::characters, py::lower, py::replace, py::strip, py::title, py::upper, py::whole_or;

tl::unexpected<Error> wrong(std::string_view what, const Value& value) {
  return fail(Code::template_failed, "'{}' does not take {}", what, value.type_name());
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

// Lists of `count` items (batch), or `count` lists (slice); the last ones are filled up where there is something to
// fill them with.
Value cut(std::string_view name, const ValueList& items, const Arguments& given) {
  const auto count = static_cast<size_t>(std::clamp<int64_t>(whole_or(given.get(0, ""), 1), 1, 1000000));
  const Value filler = given.get(1, "fill_with");
  const bool slices = name == "slice";
  const size_t parts = slices ? count : (items.size() + count - 1) / count;
  ValueList out;
  size_t at = 0;
  for (size_t part = 0; part < parts; ++part) {
    const size_t more = items.size() % count;
    const size_t length = slices ? items.size() / count + (part < more ? 1 : 0) : std::min(count, items.size() - at);
    ValueList list(items.begin() + static_cast<ptrdiff_t>(at), items.begin() + static_cast<ptrdiff_t>(at + length));
    at += length;
    const bool is_short = slices ? more > 0 && part >= more : length < count;
    if (is_short && !filler.is_undefined()) list.resize(slices ? length + 1 : count, filler);
    out.push_back(Value::list(std::move(list)));
  }
  return Value::list(std::move(out));
}

// [value, items] for each value of an attribute, in their order.
Value group(const ValueList& items, const Arguments& given) {
  const std::string attribute = given.get(0, "attribute").text();
  std::vector<std::pair<Value, ValueList>> groups;
  ValueList sorted = items;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Value& a, const Value& b) {
    return before(path_of(a, attribute), path_of(b, attribute), false);
  });
  for (Value& item : sorted) {
    Value key = path_of(item, attribute);
    if (key.is_undefined()) key = given.get(1, "default");
    if (groups.empty() || !(groups.back().first == key)) groups.emplace_back(std::move(key), ValueList());
    groups.back().second.push_back(std::move(item));
  }
  ValueList out;
  for (auto& [key, list] : groups) out.push_back(Value::list({key, Value::list(std::move(list))}));
  return Value::list(std::move(out));
}

Result<Value> list_filter(std::string_view name, const ValueList& items, const Arguments& given) {
  if (name == "batch" || name == "slice") return cut(name, items, given);
  if (name == "groupby") return group(items, given);
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
    const std::string attribute = given.get(0, "attribute").text();
    double sum = given.get(1, "start").number();
    for (const Value& item : items) sum += path_of(item, attribute).number();
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

// Jinja's truncate: at most `length` characters and the end, up to `leeway` more are left, words are kept whole.
std::string truncate(const std::string& text, const Arguments& given) {
  const int64_t length = std::max<int64_t>(whole_or(given.get(0, "length"), 255), 0);
  const Value end = given.get(2, "end");
  const std::string mark = end.is_undefined() ? "..." : end.text();
  const ValueList all = characters(text);
  if (static_cast<int64_t>(all.size()) <= length + std::max<int64_t>(whole_or(given.get(3, "leeway"), 5), 0))
    return text;
  std::string kept;
  const int64_t room = std::max<int64_t>(length - static_cast<int64_t>(count_code_points(mark)), 0);
  for (int64_t i = 0; i < room; ++i) kept += *all[static_cast<size_t>(i)].string();
  if (!given.get(1, "killwords").truth())
    if (const size_t blank = kept.rfind(' '); blank != std::string::npos) kept.resize(blank);
  return kept + mark;
}

// Without what stands between < and >, and with single blanks.
std::string strip_tags(std::string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.find('<', at), text.size());
    plain += text.substr(at, open - at);
    const size_t close = text.find('>', open);
    if (close == std::string_view::npos) {
      plain += text.substr(open);
      break;
    }
    at = close + 1;
  }
  std::string out;
  for (const Value& word : py::split(plain, Value(), -1)) out += (out.empty() ? "" : " ") + *word.string();
  return out;
}

// RFC 3986: all but unreserved characters and '/' as %XX.
std::string url_encode(std::string_view text) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  std::string out;
  for (char c : text)
    out += kPlain.find(c) != std::string_view::npos ? std::string(1, c)
                                                    : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return out;
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
  if (name == "format")
    return format_percent(
        text, given.named.empty() ? Value::list(given.values) : [&] {
          ValueDict fields;
          for (const auto& [key, value] : given.named) fields.emplace_back(key, value);
          return Value::dict(std::move(fields));
        }());
  if (name == "truncate") return Value(truncate(text, given));
  if (name == "striptags") return Value(strip_tags(text));
  if (name == "urlencode") return Value(url_encode(text));
  if (name == "wordcount") return Value(static_cast<int64_t>(py::split(text, Value(), -1).size()));
  if (name == "reverse") {
    ValueList back = characters(text);
    std::reverse(back.begin(), back.end());
    return list_filter("join", back, {});
  }
  if (name == "center") return call_method(text, name, given.values.empty() ? Arguments{{int64_t{80}}, {}} : given);
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

Result<Value> round(const Value& value, const Arguments& given) {
  if (!value.is_number()) return wrong("round", value);
  const double scale =
      std::pow(10, static_cast<double>(std::clamp<int64_t>(whole_or(given.get(0, "precision"), 0), -300, 300)));
  const std::string how = given.get(1, "method").text();
  const double scaled = value.number() * scale;
  const double rounded = how == "ceil"    ? std::ceil(scaled)
                         : how == "floor" ? std::floor(scaled)
                                          : std::nearbyint(scaled);
  return Value(std::isfinite(scaled) ? rounded / scale : value.number());
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
  const bool walks = maps || selects ||
                     is({"tojson", "string", "join", "unique", "sort", "min", "max", "eq", "equalto", "ne", "in",
                         "==", "!=", "sameas", "groupby", "slice", "batch"});
  const uint64_t size = walks ? value.weight() : value.size();
  uint64_t more = 0;
  const auto add = [&](const Value& argument) { more += std::min(argument.weight(), kHuge); };
  for (const Value& argument : given.values) add(argument);
  for (const auto& [key, argument] : given.named) add(argument);
  const uint64_t items = value.items() != nullptr ? value.items()->size() : times(size, 16);
  const Value old = given.get(maps ? 1 : 0, "old");
  const uint64_t from = old.string() != nullptr ? std::max<size_t>(1, old.string()->size()) : 1;
  uint64_t cost = std::min(size, kHuge) + more;
  if (is({"split", "rsplit", "find", "rfind", "index", "count", "partition", "replace", "startswith", "endswith",
          "in"}))
    cost += times(size, more) / 16;
  if (selects || is({"join"})) cost += times(items, more);
  if (is({"strip", "lstrip", "rstrip", "trim"})) cost += times(size, more);
  if (is({"replace"})) cost += times(times(size, 16) / from, more);
  if (is({"unique"})) cost += times(size, items) / 8;
  if (is({"sort", "min", "max", "dictsort", "groupby"})) cost += times(size, 32);
  if (is({"center", "ljust", "rjust", "zfill"})) cost += 1000 / 16;
  if (is({"format"})) cost += times(size, 16) * (more + 1000 / 16);  // a field is two characters and may be wide
  if (is({"batch", "slice"}))
    cost += static_cast<uint64_t>(std::clamp<int64_t>(whole_or(given.get(0, ""), 1), 1, 1000000));
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
  if (name == "attr") return value.field(given.get(0, "name").text());
  if (name == "round") return round(value, given);
  if (name == "abs") {
    if (!value.is_number()) return wrong(name, value);
    if (const int64_t* whole = value.get<int64_t>()) return Value(std::abs(std::max(*whole, -INT64_MAX)));
    return Value(std::abs(value.number()));
  }
  if (name == "length" || name == "count") {
    if (value.is_undefined()) return Value(int64_t{0});
    if (const std::string* text = value.string()) return Value(static_cast<int64_t>(count_code_points(*text)));
    if (const ValueList* items = value.items()) return Value(static_cast<int64_t>(items->size()));
    if (const ValueDict* fields = value.fields()) return Value(static_cast<int64_t>(fields->size()));
    return wrong(name, value);
  }
  if (!value.is_null() && std::find(std::begin(kOfText), std::end(kOfText), name) != std::end(kOfText))
    return string_filter(name, value.text(), given);
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
  // Python's undefined is a list of nothing.
  if (value.is_undefined()) return name == "items" ? Value::list({}) : list_filter(name, {}, given);
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
  const auto is = [name](auto... names) { return ((name == std::string_view(names)) || ...); };
  if (is("eq", "equalto", "==")) return value == other;
  if (is("ne", "!=")) return !(value == other);
  if (is("lt", "lessthan", "<", "ge", ">=")) return before(value, other, true) == is("lt", "lessthan", "<");
  if (is("gt", "greaterthan", ">", "le", "<=")) return before(other, value, true) == is("gt", "greaterthan", ">");
  if (name == "sameas")
    return value == other && value.type_name() == other.type_name();  // values that are equal cannot be told apart
  if (name == "filter") return value.string() != nullptr && is_filter(*value.string());
  if (name == "test") return value.string() != nullptr && is_test(*value.string());
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

std::string format_time(std::string_view format, int64_t seconds) {
  const std::time_t time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  localtime_r(&time, &parts);
  char text[256];
  const std::string zero_ended(format.substr(0, 200));
  return std::string(text, std::strftime(text, sizeof text, zero_ended.c_str(), &parts));
}

}  // namespace tessera::text
