// JSON documents: read from untrusted files, bounded in depth and size, without exceptions; and written.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tessera {

constexpr int kMaxJsonDepth = 64;
constexpr int64_t kMaxJsonValues = int64_t{1} << 22;

// A value. Objects keep the order of their members. Ours, so that only one file compiles the templates of a library for
// JSON: they take longer than most files that read a field or two.
class Json {
 public:
  struct Member;

  Json();  // null
  Json(std::nullptr_t) : Json() {}
  Json(double number);
  template <std::integral T>
  Json(T value) : Json(std::same_as<T, bool> ? of_truth(value != 0) : of_integer(static_cast<int64_t>(value))) {}
  Json(std::string text);
  Json(std::string_view text) : Json(std::string(text)) {}
  Json(const char* text) : Json(std::string(text)) {}
  template <class T>
  Json(const std::optional<T>& value) : Json(value ? Json(*value) : Json()) {}
  template <class T>
  Json(const std::vector<T>& values) : Json(array()) {
    for (const T& value : values) push_back(value);
  }
  Json(const std::map<std::string, int64_t>& counts);
  Json(std::initializer_list<Member> members);

  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(Json) noexcept;
  ~Json();

  static Json array(std::initializer_list<Json> values = {});
  static Json object();

  bool is_null() const { return !held_; }
  // What it holds; null when that is of another kind.
  const bool* truth() const;
  const int64_t* integer() const;
  const std::string* text() const;
  const std::vector<Json>* list() const;
  const std::vector<Member>* members() const;
  // Of any number: those above an i64 are doubles.
  std::optional<double> number() const;
  // The member of an object; null where there is none.
  const Json* find(std::string_view name) const;
  // "null", "boolean", "number", "string", "array" or "object".
  std::string_view kind() const;

  void push_back(Json value);               // to an array
  Json& operator[](std::string_view name);  // of an object; a new member is null
  void update(const Json& object);          // the members of another object go over those of this one

  // On one line. Text that is no UTF-8 has replacement characters; infinities and NaN become null.
  std::string dump() const;

 private:
  struct Held;
  class Builder;
  friend Result<Json> parse_json(std::string_view text, std::string_view what);
  static Json of_truth(bool value);
  static Json of_integer(int64_t value);
  explicit Json(Held held);
  void write(std::string& out) const;

  std::unique_ptr<Held> held_;  // none: null
};

struct Json::Member {
  std::string name;
  Json value;
};

// E0104 with the byte at which the text stops being JSON, for what nests deeper than kMaxJsonDepth, has more than
// kMaxJsonValues values or a number above all doubles; `what` names the document ("config.json"). Of members of one
// name the last is kept.
Result<Json> parse_json(std::string_view text, std::string_view what);

}  // namespace tessera
