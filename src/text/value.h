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
// In order of insertion, as templates print it. Keys are strings, numbers or booleans.
using ValueDict = std::vector<std::pair<Value, Value>>;

struct Undefined {
  friend bool operator==(Undefined, Undefined) { return true; }
};
struct Macro;  // of jinja_eval.cpp

struct JsonStyle {
  int indent = 0;       // spaces a level; 0: all on one line
  bool ascii = false;   // \uXXXX for all else
  bool sorted = false;  // by keys
  std::string comma = ", ", colon = ": ";
};

// Strings, lists and mappings are shared and never change, but for namespaces, whose fields can be set. No value holds
// itself: the renderer refuses what holds a namespace or is deeper than kMaxDepth.
class Value {
 public:
  static constexpr uint32_t kMaxDepth = 64;

  Value() = default;
  Value(std::nullptr_t) : data_(nullptr) {}  // NOLINT: values are written as
  Value(bool value) : data_(value) {}        // NOLINT: what they hold
  Value(int64_t value) : data_(value) {}     // NOLINT
  Value(double value) : data_(value) {}      // NOLINT
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}  // NOLINT
  Value(std::string_view text) : Value(std::string(text)) {}                                // NOLINT
  Value(const char* text) : Value(std::string(text)) {}                                     // NOLINT
  Value(std::shared_ptr<const Macro> macro) : data_(std::move(macro)) {}                    // NOLINT
  static Value list(ValueList items);
  static Value dict(ValueDict fields);
  static Value name_space(ValueDict fields);
  // E0104.
  static Result<Value> parse_json(std::string_view text);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  const std::string* string() const {
    const auto* text = get<std::shared_ptr<const std::string>>();
    return text != nullptr ? text->get() : nullptr;
  }
  const ValueList* items() const;
  const ValueDict* fields() const;
  const Macro* macro() const {
    const auto* own = get<std::shared_ptr<const Macro>>();
    return own != nullptr ? own->get() : nullptr;
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_null() const { return get<std::nullptr_t>() != nullptr; }
  bool is_number() const { return get<int64_t>() != nullptr || get<double>() != nullptr; }
  // Of numbers and booleans; 0 for others.
  double number() const;
  bool truth() const;
  // The field of a dict, or undefined.
  Value field(std::string_view key) const;
  // Sets a field of a namespace; false for all else.
  bool set_field(std::string_view key, const Value& value);
  // How templates print it: JSON for lists and dicts, nothing for undefined and none.
  std::string text() const;
  // As Python's json.dumps writes it.
  std::string json(const JsonStyle& style = {}) const;
  std::string_view type_name() const;
  friend bool operator==(const Value& a, const Value& b);

  // How long it takes to walk all of it, in elements and runs of 16 bytes of text. What is shared counts wherever it
  // stands.
  uint64_t weight() const;
  // The same of the value alone: its elements, or its text.
  uint64_t size() const;
  // 0 for what holds nothing; past kMaxDepth where a namespace stands in it.
  uint32_t depth() const;

 private:
  template <class Parts>
  struct Whole {
    Parts parts;
    uint64_t weight = 1;
    uint32_t depth = 1;
    bool settable = false;
    void count(const Value& part);
  };
  using List = Whole<ValueList>;
  using Dict = Whole<ValueDict>;
  static std::shared_ptr<Dict> make_dict(ValueDict fields);

  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<Dict>, std::shared_ptr<const Macro>>
      data_;
};

}  // namespace tessera::text
