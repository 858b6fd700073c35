#include "cli/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>
#include <variant>

#include "text/unicode.h"

namespace tessera::cli {
namespace {

void write_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text::repair_utf8(text)) {
    constexpr std::string_view kPlain = "\"\\\b\f\n\r\t", kEscaped = "\"\\bfnrt";
    if (const size_t at = kPlain.find(c); at != std::string_view::npos) {
      out += {'\\', kEscaped[at]};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      out += {'\\', 'u', '0', '0', kDigits[static_cast<size_t>(c) >> 4], kDigits[c & 15]};
    } else {
      out += c;
    }
  }
  out += '"';
}

// The shortest digits that give the number back, with a point where a reader would take it for an integer.
void write_number(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  char digits[32];
  const std::string_view text(digits, static_cast<size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace

struct Json::Held {
  std::variant<bool, int64_t, double, std::string, std::vector<Json>, std::vector<std::pair<std::string, Json>>> value;
};

Json::Json() = default;
Json::Json(Held held) : held_(std::make_unique<Held>(std::move(held))) {}
Json::Json(double number) : Json(Held{number}) {}
Json::Json(std::string text) : Json(Held{std::move(text)}) {}
Json::Json(const std::map<std::string, int64_t>& counts) : Json(object()) {
  for (const auto& [name, count] : counts) (*this)[name] = count;
}
Json::Json(std::initializer_list<Member> members) : Json(object()) {
  for (const Member& member : members) (*this)[member.name] = std::move(member.value);
}
Json::Json(const Json& other) : held_(other.held_ ? std::make_unique<Held>(*other.held_) : nullptr) {}
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(Json other) noexcept {
  held_.swap(other.held_);
  return *this;
}
Json::~Json() = default;

Json Json::of_truth(bool value) { return Json(Held{value}); }
Json Json::of_integer(int64_t value) { return Json(Held{value}); }
Json Json::array() { return Json(Held{std::vector<Json>()}); }
Json Json::object() { return Json(Held{std::vector<std::pair<std::string, Json>>()}); }

void Json::push_back(Json value) { std::get<std::vector<Json>>(held_->value).push_back(std::move(value)); }

Json& Json::operator[](std::string_view name) {
  auto& members = std::get<std::vector<std::pair<std::string, Json>>>(held_->value);
  const auto found = std::ranges::find_if(members, [&](const auto& member) { return member.first == name; });
  if (found != members.end()) return found->second;
  return members.emplace_back(name, Json()).second;
}

void Json::append(Json object) {
  for (auto& [name, value] : std::get<std::vector<std::pair<std::string, Json>>>(object.held_->value))
    (*this)[name] = std::move(value);
}

void Json::write(std::string& out) const {
  if (!held_) {
    out += "null";
  } else if (const auto* truth = std::get_if<bool>(&held_->value)) {
    out += *truth ? "true" : "false";
  } else if (const auto* integer = std::get_if<int64_t>(&held_->value)) {
    out += std::to_string(*integer);
  } else if (const auto* number = std::get_if<double>(&held_->value)) {
    write_number(out, *number);
  } else if (const auto* text = std::get_if<std::string>(&held_->value)) {
    write_text(out, *text);
  } else if (const auto* list = std::get_if<std::vector<Json>>(&held_->value)) {
    char separator = '[';
    for (const Json& value : *list) {
      out += std::exchange(separator, ',');
      value.write(out);
    }
    out += list->empty() ? "[]" : "]";
  } else {
    char separator = '{';
    const auto& members = std::get<std::vector<std::pair<std::string, Json>>>(held_->value);
    for (const auto& [name, value] : members) {
      out += std::exchange(separator, ',');
      write_text(out, name);
      out += ':';
      value.write(out);
    }
    out += members.empty() ? "{}" : "}";
  }
}

std::string Json::text() const {
  std::string out;
  write(out);
  return out;
}

void print_json(const Json& object) {
  const std::string line = object.text() + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
}

}  // namespace tessera::cli
