// Methods of values.
#include <algorithm>
#include <optional>

#include "base/result.h"
#include "text/jinja_format.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace tessera::text {
namespace {

// Whether the text is not empty and `holds` for each code point.
template <class Holds>
bool all_of(std::string_view text, const Holds& holds) {
  for (size_t at = 0; at < text.size(); at += std::max<uint32_t>(1, utf8_step(text, at).valid))
    if (!holds(decode_at(text, at).code_point)) return false;
  return !text.empty();
}

// isdigit, isalpha, ...; nothing for another name.
std::optional<bool> classify(std::string_view name, const std::string& text) {
  if (name == "isdigit" || name == "isnumeric" || name == "isdecimal")
    return all_of(text, [](uint32_t c) { return in(c, kNumbers); });
  if (name == "isalpha") return all_of(text, [](uint32_t c) { return in(c, kLetters); });
  if (name == "isalnum") return all_of(text, [](uint32_t c) { return in(c, kLetters | kNumbers); });
  if (name == "isspace") return !text.empty() && py::strip(text, Value(), true, false).empty();
  if (name == "islower") return text == py::lower(text) && text != py::upper(text);
  if (name == "isupper") return text == py::upper(text) && text != py::lower(text);
  return std::nullopt;
}

// Before, the separator, behind; the first or the last one.
Value partition(const std::string& text, const std::string& by, bool last) {
  const size_t at = last ? text.rfind(by) : text.find(by);
  if (at == std::string::npos) return Value::list(last ? ValueList{"", "", text} : ValueList{text, "", ""});
  return Value::list({text.substr(0, at), by, text.substr(at + by.size())});
}

int64_t occurrences(const std::string& text, const std::string& part) {
  if (part.empty()) return static_cast<int64_t>(count_code_points(text)) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

std::string fill(const std::string& text, std::string_view name, const Arguments& given) {
  const auto room = std::clamp<int64_t>(py::whole_or(given.get(0, "width"), 0), 0, 1000) -
                    static_cast<int64_t>(count_code_points(text));
  if (room <= 0) return text;
  const auto count = static_cast<size_t>(room);
  if (name == "zfill") {
    const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
    return std::string(text).insert(sign, std::string(count, '0'));
  }
  const Value with = given.get(1, "fillchar");
  const char pad = with.string() != nullptr && with.string()->size() == 1 ? with.string()->front() : ' ';
  const size_t before = name == "rjust" ? count : name == "ljust" ? 0 : count / 2;
  return std::string(before, pad) + text + std::string(count - before, pad);
}

Result<Value> string_method(const std::string& text, std::string_view name, const Arguments& given) {
  const Value first = given.get(0, "");
  if (name == "upper") return Value(py::upper(text));
  if (name == "lower" || name == "casefold") return Value(py::lower(text));
  if (name == "title") return Value(py::title(text, true));
  if (name == "capitalize") return Value(py::title(text, false));
  if (name == "strip") return Value(py::strip(text, first, true, true));
  if (name == "lstrip") return Value(py::strip(text, first, true, false));
  if (name == "rstrip") return Value(py::strip(text, first, false, true));
  if (name == "split") return Value::list(py::split(text, first, py::whole_or(given.get(1, "maxsplit"), -1)));
  if (name == "rsplit") return Value::list(py::split_right(text, first, py::whole_or(given.get(1, "maxsplit"), -1)));
  if (name == "splitlines") return Value::list(py::split(text, "\n", -1));
  if (name == "partition" || name == "rpartition") return partition(text, first.text(), name == "rpartition");
  if (name == "join") return apply_filter("join", first, {{Value(text)}, {}});
  if (name == "replace") return apply_filter("replace", text, given);
  if (name == "format") return format_braces(text, given);
  if (name == "count") return Value(occurrences(text, first.text()));
  if (name == "zfill" || name == "ljust" || name == "rjust" || name == "center") return Value(fill(text, name, given));
  if (name == "removeprefix") return Value(text.substr(text.starts_with(first.text()) ? first.text().size() : 0));
  if (name == "removesuffix")
    return Value(text.substr(0, text.size() - (text.ends_with(first.text()) ? first.text().size() : 0)));
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex") {
    const size_t at = name[0] == 'r' ? text.rfind(first.text()) : text.find(first.text());
    if (at != std::string::npos) return Value(static_cast<int64_t>(count_code_points(text.substr(0, at))));
    if (name.ends_with("find")) return Value(int64_t{-1});
    return fail(Code::template_failed, "the text to be found is not there");
  }
  if (name == "startswith" || name == "endswith") {
    const ValueList one = first.items() != nullptr ? *first.items() : ValueList{first};
    return Value(std::any_of(one.begin(), one.end(), [&](const Value& v) {
      return name == "startswith" ? text.starts_with(v.text()) : text.ends_with(v.text());
    }));
  }
  if (const std::optional<bool> holds = classify(name, text)) return Value(*holds);
  return fail(Code::template_failed, "a string has no method '{}'", name);
}

}  // namespace

Result<Value> call_method(const Value& object, std::string_view name, const Arguments& given) {
  if (const ValueDict* fields = object.fields()) {
    if (name == "items") return apply_filter("items", object, {});
    if (name == "get") {
      const Value value = object.field(given.get(0, "key").text());
      const Value otherwise = given.get(1, "default");
      return !value.is_undefined() ? value : otherwise.is_undefined() ? Value(nullptr) : otherwise;
    }
    if (name == "copy") return object;
    if (const Value turn = object.field("index0"); name == "cycle" && !turn.is_undefined() && !given.values.empty())
      return given.values[static_cast<size_t>(std::max<int64_t>(py::whole_or(turn, 0), 0)) % given.values.size()];
    ValueList out;
    for (const auto& [key, value] : *fields) out.push_back(name == "keys" ? key : value);
    if (name == "keys" || name == "values") return Value::list(std::move(out));
  }
  if (const std::string* text = object.string()) return string_method(*text, name, given);
  if (const ValueList* items = object.items(); items != nullptr && (name == "index" || name == "count")) {
    const Value wanted = given.get(0, "");
    if (name == "count") return Value(static_cast<int64_t>(std::count(items->begin(), items->end(), wanted)));
    const auto found = std::find(items->begin(), items->end(), wanted);
    if (found != items->end()) return Value(static_cast<int64_t>(found - items->begin()));
    return fail(Code::template_failed, "the item to be found is not there");
  }
  if (object.items() != nullptr && name == "copy") return object;
  return fail(Code::template_failed, "{} has no method '{}'", object.type_name(), name);
}

}  // namespace tessera::text
