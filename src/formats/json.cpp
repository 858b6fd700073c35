#include "formats/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/utf8.h"

namespace tessera {
namespace {

void write_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : repair_utf8(text)) {
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
  const std::string_view text(digits,
                              static_cast<size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace

struct Json::Held {
  std::variant<bool, int64_t, double, std::string, std::vector<Json>, std::vector<Member>> value;
};

Json::Json() = default;
Json::Json(Held held) : held_(std::make_unique<Held>(std::move(held))) {}
Json::Json(double number) : Json(Held{number}) {}
Json::Json(std::string text) : Json(Held{std::move(text)}) {}
Json::Json(const std::map<std::string, int64_t>& counts) : Json(object()) {
  for (const auto& [name, count] : counts) std::get<std::vector<Member>>(held_->value).push_back({name, count});
}
Json::Json(std::initializer_list<Member> members) : Json(Held{std::vector<Member>(members)}) {}
Json::Json(const Json& other) : held_(other.held_ ? std::make_unique<Held>(*other.held_) : nullptr) {}
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(Json other) noexcept {
  held_.swap(other.held_);
  return *this;
}
Json::~Json() = default;

Json Json::of_truth(bool value) { return Json(Held{value}); }
Json Json::of_integer(int64_t value) { return Json(Held{value}); }
Json Json::array(std::initializer_list<Json> values) { return Json(Held{std::vector<Json>(values)}); }
Json Json::object() { return Json(Held{std::vector<Member>()}); }

const bool* Json::truth() const { return held_ ? std::get_if<bool>(&held_->value) : nullptr; }
const int64_t* Json::integer() const { return held_ ? std::get_if<int64_t>(&held_->value) : nullptr; }
const std::string* Json::text() const { return held_ ? std::get_if<std::string>(&held_->value) : nullptr; }
const std::vector<Json>* Json::list() const { return held_ ? std::get_if<std::vector<Json>>(&held_->value) : nullptr; }
const std::vector<Json::Member>* Json::members() const {
  return held_ ? std::get_if<std::vector<Member>>(&held_->value) : nullptr;
}

std::optional<double> Json::number() const {
  if (const int64_t* value = integer()) return static_cast<double>(*value);
  const auto* value = held_ ? std::get_if<double>(&held_->value) : nullptr;
  return value == nullptr ? std::nullopt : std::optional(*value);
}

const Json* Json::find(std::string_view name) const {
  if (const std::vector<Member>* all = members())
    for (const Member& member : *all)
      if (member.name == name) return &member.value;
  return nullptr;
}

std::string_view Json::kind() const {
  constexpr std::string_view kKinds[] = {"boolean", "number", "number", "string", "array", "object"};
  return held_ ? kKinds[held_->value.index()] : "null";
}

void Json::push_back(Json value) { std::get<std::vector<Json>>(held_->value).push_back(std::move(value)); }

Json& Json::operator[](std::string_view name) {
  auto& members = std::get<std::vector<Member>>(held_->value);
  const auto found = std::ranges::find(members, name, &Member::name);
  if (found != members.end()) return found->value;
  members.push_back({std::string(name), Json()});
  return members.back().value;
}

void Json::update(const Json& object) {
  for (const Member& member : *object.members()) (*this)[member.name] = member.value;
}

void Json::write(std::string& out) const {
  if (is_null()) {
    out += "null";
  } else if (const bool* value = truth()) {
    out += *value ? "true" : "false";
  } else if (const int64_t* value = integer()) {
    out += std::to_string(*value);
  } else if (const std::optional<double> value = number()) {
    write_number(out, *value);
  } else if (const std::string* value = text()) {
    write_text(out, *value);
  } else if (const std::vector<Json>* values = list()) {
    out += '[';
    for (const Json& value : *values) {
      if (&value != values->data()) out += ',';
      value.write(out);
    }
    out += ']';
  } else {
    out += '{';
    for (const Member& member : *members()) {
      if (&member != members()->data()) out += ',';
      write_text(out, member.name);
      out += ':';
      member.value.write(out);
    }
    out += '}';
  }
}

std::string Json::dump() const {
  std::string out;
  write(out);
  return out;
}

// Takes a document event by event.
class Json::Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Json root;
  std::string problem;

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return value <= INT64_MAX ? add(static_cast<int64_t>(value)) : add(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool key(string_t& name) override {
    open_.back().names.push_back(std::move(name));
    return true;
  }
  bool end_object() override {
    Open done = std::move(open_.back());
    auto& members = std::get<std::vector<Member>>(done.value.held_->value);
    std::unordered_map<std::string_view, size_t> last;
    for (size_t i = 0; i < done.names.size(); ++i) last[done.names[i]] = i;
    for (size_t i = 0; i < done.names.size(); ++i)
      if (last[done.names[i]] == i) members.push_back({done.names[i], std::move(done.values[i])});
    return close(std::move(done.value));
  }
  bool end_array() override {
    Open done = std::move(open_.back());
    std::get<std::vector<Json>>(done.value.held_->value) = std::move(done.values);
    return close(std::move(done.value));
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    // Of its errors those of a range mean numbers.
    problem = dynamic_cast<const nlohmann::json::out_of_range*>(&error) != nullptr
                  ? fmt::format("holds a number above all doubles at byte {}", position)
                  : fmt::format("is no JSON from byte {} on", position);
    return false;
  }

 private:
  // A list or an object whose end has not come.
  struct Open {
    Json value;
    std::vector<std::string> names;
    std::vector<Json> values;
  };

  bool add(Json value) {
    if (++count_ > kMaxJsonValues) {
      problem = fmt::format("has more than {} values", kMaxJsonValues);
      return false;
    }
    (open_.empty() ? root : open_.back().values.emplace_back()) = std::move(value);
    return true;
  }
  bool open(Json value) {
    if (open_.size() == kMaxJsonDepth) {
      problem = fmt::format("nests more than {} deep", kMaxJsonDepth);
      return false;
    }
    open_.push_back({std::move(value), {}, {}});
    return true;
  }
  bool close(Json value) {
    open_.pop_back();
    return add(std::move(value));
  }

  std::vector<Open> open_;
  int64_t count_ = 0;
};

Result<Json> parse_json(std::string_view text, std::string_view what) {
  Json::Builder builder;
  if (!nlohmann::json::sax_parse(text, &builder)) return fail(Code::file_malformed, "{} {}", what, builder.problem);
  return std::move(builder.root);
}

}  // namespace tessera
