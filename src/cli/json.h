// What --json prints.
#pragma once

#include <concepts>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cli {

// A value to print. Objects keep the order of their members. Ours, because the commands only write: a reader's document
// type takes longer to compile than all else that they do.
class Json {
 public:
  struct Member;

  Json();  // null
  Json(std::nullptr_t) : Json() {}
  Json(double number);
  template <std::integral T>
  Json(T value) : Json(std::same_as<T, bool> ? of_truth(value) : of_integer(static_cast<int64_t>(value))) {}
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

  static Json array();
  static Json object();

  void push_back(Json value);               // to an array
  Json& operator[](std::string_view name);  // the member; a new one is null
  void append(Json object);                 // the members of another object

  // On one line. Text that is no UTF-8 has replacement characters; infinities and NaN become null.
  std::string text() const;

 private:
  struct Held;
  static Json of_truth(bool value);
  static Json of_integer(int64_t value);
  explicit Json(Held held);
  void write(std::string& out) const;

  std::unique_ptr<Held> held_;  // none: null
};

struct Json::Member {
  std::string_view name;
  mutable Json value;  // moved from: the elements of a list in braces are constant
};

// One object on one line of stdout.
void print_json(const Json& object);

}  // namespace tessera::cli
