// Values of chat templates: JSON's, and what only templates have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/error.h"

namespace tessera::text {

class Value;
using ValueList = std::vector<Value>;
// In order of insertion, as templates print it.
using ValueDict = std::vector<std::pair<std::string, Value>>;

struct Undefined {
  friend bool operator==(Undefined, Undefined) { return true; }
};
struct Macro;  // of jinja.cpp

class Value {
 public:
  using Data = std::variant<Undefined, std::nullptr_t, bool, int64_t, double, std::string, std::shared_ptr<ValueList>,
                            std::shared_ptr<ValueDict>, std::shared_ptr<const Macro>>;
  Value() = default;
  template <class T>
  Value(T value) : data_(std::move(value)) {}  // NOLINT: values are written as what they hold
  Value(const char* text) : data_(std::string(text)) {}
  static Value list(ValueList items) { return Value(std::make_shared<ValueList>(std::move(items))); }
  static Value dict(ValueDict items) { return Value(std::make_shared<ValueDict>(std::move(items))); }
  // E0104.
  static Result<Value> parse_json(std::string_view text);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  const std::string* string() const { return get<std::string>(); }
  const ValueList* items() const {
    const auto* list = get<std::shared_ptr<ValueList>>();
    return list != nullptr ? list->get() : nullptr;
  }
  ValueDict* fields() const {
    const auto* dict = get<std::shared_ptr<ValueDict>>();
    return dict != nullptr ? dict->get() : nullptr;
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_null() const { return get<std::nullptr_t>() != nullptr; }
  bool is_number() const { return get<int64_t>() != nullptr || get<double>() != nullptr; }
  // Of numbers and booleans; 0 for others.
  double number() const;
  bool truth() const;
  // The field of a dict, or undefined.
  Value field(std::string_view key) const;
  // How templates print it: JSON for lists and dicts, nothing for undefined and none.
  std::string text() const;
  // As Python's json.dumps writes it, with `indent` spaces a level where that is not 0. Depth is bounded.
  std::string json(int indent = 0) const;
  std::string_view type_name() const;
  friend bool operator==(const Value& a, const Value& b);

 private:
  Data data_;
};

}  // namespace tessera::text
