#include "text/jinja_format.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/result.h"
#include "text/unicode.h"

namespace tessera::text {
namespace {

constexpr int kWidest = 1000;

// How one value is written.
struct Spec {
  bool aligned = false, left = false, centre = false, zero = false, alternate = false, comma = false;
  char sign = '-';  // or '+', ' '
  std::string fill = " ";
  int width = 0, precision = -1;
  char type = 's';
};

tl::unexpected<Error> wrong(std::string_view what) { return fail(Code::template_failed, "{}", what); }

std::string padded(std::string text, const Spec& spec, bool numeric) {
  const auto length = static_cast<int>(count_code_points(text));
  const int room = spec.width - length;
  if (room <= 0) return text;
  std::string pad;
  for (int i = 0; i < room; ++i) pad += spec.fill;
  if (spec.zero && numeric && !spec.left) {
    const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    return text.insert(sign, std::string(static_cast<size_t>(room), '0'));
  }
  if (spec.centre) {
    const size_t half = static_cast<size_t>(room / 2) * spec.fill.size();
    return pad.substr(0, half) + text + pad.substr(half);
  }
  return spec.left ? text + pad : pad + text;
}

Result<std::string> written(const Value& value, const Spec& spec) {
  if (spec.type == 's' || spec.type == 'r') {
    std::string text = value.text();
    if (spec.type == 'r' && value.string() != nullptr) text = "'" + text + "'";
    if (spec.precision >= 0 && count_code_points(text) > static_cast<size_t>(spec.precision)) {
      size_t at = 0;
      for (int i = 0; i < spec.precision; ++i) at += std::max<uint32_t>(1, utf8_step(text, at).valid);
      text.resize(at);
    }
    return padded(std::move(text), spec, false);
  }
  const bool flag = value.get<bool>() != nullptr;
  if (!value.is_number() && !flag)
    return wrong(fmt::format("'{}' of a format does not take {}", spec.type, value.type_name()));
  char digits[512];
  std::string pattern = "%";
  if (spec.sign != '-') pattern += spec.sign;
  if (spec.alternate) pattern += '#';
  const bool real = std::string_view("eEfFgG").find(spec.type) != std::string_view::npos;
  if (real) {
    pattern += fmt::format(".{}{}", spec.precision < 0 ? 6 : std::min(spec.precision, 100), spec.type);
    std::snprintf(digits, sizeof digits, pattern.c_str(), value.number());
  } else {
    const double number = value.number();
    if (!(number > -9.2e18 && number < 9.2e18)) return wrong("a number is too large for its format");
    const int64_t* whole = value.get<int64_t>();
    const long long integer = whole != nullptr ? *whole : static_cast<long long>(number);
    if (spec.type == 'd') {
      std::snprintf(digits, sizeof digits, (pattern + "lld").c_str(), integer);
    } else {
      const std::string_view sign = integer < 0 ? "-" : spec.sign == '-' ? "" : spec.sign == '+' ? "+" : " ";
      const std::string hex = std::string("%") + (spec.alternate ? "#" : "") + "ll" + spec.type;
      std::snprintf(
          digits, sizeof digits, ("%s" + hex).c_str(), std::string(sign).c_str(),
          integer < 0 ? 0 - static_cast<unsigned long long>(integer) : static_cast<unsigned long long>(integer));
    }
  }
  std::string text = digits;
  if (spec.comma) {
    const size_t first = text.find_first_of("0123456789");
    size_t at = std::min(text.find_first_not_of("0123456789", first), text.size());
    while (first != std::string::npos && at > first + 3) text.insert(at -= 3, ",");
  }
  return padded(std::move(text), spec, true);
}

// A number of at most kWidest at `at`, which moves behind it.
std::optional<int> number(std::string_view form, size_t& at) {
  int value = 0;
  const auto [end, error] = std::from_chars(form.data() + at, form.data() + form.size(), value);
  const size_t length = static_cast<size_t>(end - form.data()) - at;
  if (length == 0 || form[at] == '-' || error != std::errc() || value > kWidest) return std::nullopt;
  at += length;
  return value;
}

// [[fill]align][sign][#][0][width][,][.precision][type]
Result<Spec> spec_of(std::string_view form) {
  Spec spec;
  const std::string whole(form);
  size_t at = 0;
  const size_t fill = form.empty() ? 0 : std::max<uint32_t>(1, utf8_step(form, 0).valid);
  const auto aligns = [&](size_t i) { return i < form.size() && std::string_view("<>^").find(form[i]) < 3; };
  if (fill > 0 && aligns(fill)) {
    spec.fill = std::string(form.substr(0, fill));
    at = fill;
  }
  if (aligns(at)) {
    spec.left = form[at] == '<';
    spec.centre = form[at++] == '^';
    spec.aligned = true;
  }
  const auto take = [&](char c) { return at < form.size() && form[at] == c && ++at > 0; };
  for (char c : {'+', '-', ' '})
    if (take(c)) spec.sign = c;
  spec.alternate = take('#');
  spec.zero = take('0');
  if (at < form.size() && form[at] >= '0' && form[at] <= '9') {
    const std::optional<int> width = number(form, at);
    if (!width) return wrong(fmt::format("the width in '{}' is wrong", whole));
    spec.width = *width;
  }
  spec.comma = take(',');
  if (take('.')) {
    const std::optional<int> precision = number(form, at);
    if (!precision) return wrong(fmt::format("the precision in '{}' is wrong", whole));
    spec.precision = *precision;
  }
  spec.type = at < form.size() ? form[at++] : '\0';
  constexpr std::string_view kTypes("\0sdxXoeEfFgG", 12);
  if (at < form.size() || kTypes.find(spec.type) == std::string_view::npos)
    return wrong(fmt::format("the format '{}' is not supported", whole));
  return spec;
}

// "0.name[1]" of the arguments; an empty first part takes the next one.
Result<Value> field_of(std::string_view path, const Arguments& given, size_t& next) {
  const size_t first = std::min(path.find_first_of(".["), path.size());
  const std::string_view head = path.substr(0, first);
  size_t place = 0;
  const bool numbered =
      !head.empty() && std::from_chars(head.data(), head.data() + head.size(), place).ec == std::errc();
  if (head.empty()) place = next++;
  Value value = head.empty() || numbered ? given.get(place, "") : given.get(SIZE_MAX, head);
  if (value.is_undefined()) return wrong(fmt::format("the format has no value for '{{{}}}'", path));
  path.remove_prefix(first);
  while (!path.empty()) {
    const bool item = path[0] == '[';
    path.remove_prefix(1);
    const size_t end = std::min(path.find_first_of(item ? "]" : ".["), path.size());
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(std::min(end + (item ? 1 : 0), path.size()));
    size_t index = 0;
    const ValueList* items = value.items();
    if (item && items != nullptr && std::from_chars(part.data(), part.data() + part.size(), index).ec == std::errc())
      value = index < items->size() ? Value((*items)[index]) : Value();
    else
      value = value.field(part);
  }
  return value;
}

}  // namespace

Result<Value> format_percent(std::string_view form, const Value& values) {
  const ValueList one = {values};
  const ValueList& list = values.items() != nullptr ? *values.items() : one;
  std::string out;
  size_t next = 0, at = 0;
  while (at < form.size()) {
    const size_t mark = std::min(form.find('%', at), form.size());
    out += form.substr(at, mark - at);
    at = mark + 1;
    if (mark == form.size()) break;
    std::optional<Value> named;
    if (at < form.size() && form[at] == '(') {
      const size_t end = form.find(')', at);
      if (end == std::string_view::npos) return wrong("the format has no ')'");
      named = values.field(form.substr(at + 1, end - at - 1));
      at = end + 1;
    }
    Spec spec;
    for (; at < form.size() && std::string_view("-+ #0").find(form[at]) != std::string_view::npos; ++at) {
      spec.left |= form[at] == '-';
      spec.zero |= form[at] == '0';
      spec.alternate |= form[at] == '#';
      if (form[at] == '+' || form[at] == ' ') spec.sign = form[at];
    }
    if (const auto width = number(form, at)) spec.width = *width;
    if (at < form.size() && form[at] == '.') spec.precision = number(form, ++at).value_or(0);
    const char type = at < form.size() ? form[at++] : '\0';
    if (type == '%') {
      out += '%';
      continue;
    }
    if (std::string_view("srdiuxXoeEfFgG").find(type) == std::string_view::npos)
      return wrong(fmt::format("the format '%{}' is not supported", type == '\0' ? ' ' : type));
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (!named && next >= list.size()) return wrong("the format has more places than values");
    TESSERA_ASSIGN(const std::string text, written(named ? *named : list[next++], spec));
    out += text;
  }
  return Value(std::move(out));
}

Result<Value> format_braces(std::string_view form, const Arguments& given) {
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < form.size();) {
    const char c = form[at++];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (at < form.size() && form[at] == c) {
      out += form[at++];
      continue;
    }
    const size_t end = form.find('}', at);
    if (c == '}' || end == std::string_view::npos) return wrong("the braces of a format do not match");
    const std::string_view inside = form.substr(at, end - at);
    at = end + 1;
    const size_t path = std::min(inside.find_first_of("!:"), inside.size());
    TESSERA_ASSIGN(const Value value, field_of(inside.substr(0, path), given, next));
    const size_t colon = inside.find(':');
    TESSERA_ASSIGN(Spec spec, spec_of(colon == std::string_view::npos ? std::string_view() : inside.substr(colon + 1)));
    const std::string_view conversion = inside.substr(path, colon == std::string_view::npos ? colon : colon - path);
    const bool number = value.is_number() && conversion.empty();
    if (spec.type == '\0') spec.type = number && value.get<int64_t>() != nullptr ? 'd' : 's';
    if (number && spec.type == 's' && spec.precision >= 0) spec.type = 'g';
    if (conversion == "!r") spec.type = 'r';
    if (!spec.aligned && !number) spec.left = true;
    TESSERA_ASSIGN(const std::string part, written(value, spec));
    out += part;
  }
  return Value(std::move(out));
}

}  // namespace tessera::text
