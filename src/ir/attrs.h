// Attributes of operators.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/view.h"
#include "tensor/dim.h"
#include "tessera/dtype.h"

namespace tessera::ir {

enum class AttrKind : uint8_t {
  integer,   // int64_t
  boolean,   // int64_t 0 or 1
  dtype,     // int64_t(DType)
  word,      // int64_t index into AttrSpec::words
  real,      // double
  integers,  // std::vector<int64_t>
  dims,      // Shape
  view,      // View
};
using AttrValue = std::variant<int64_t, double, std::vector<int64_t>, Shape, View>;

// The attribute values of one node, in the order in which the operator declares them. Interned by Context.
struct Attrs {
  std::vector<AttrValue> values;
  bool operator==(const Attrs&) const = default;
};
using AttrsRef = const Attrs*;

// One declared attribute. Constant-initialised in an OpDef.
struct AttrSpec {
  std::string_view name = {};
  AttrKind kind = AttrKind::integer;
  bool required = false;  // otherwise `integer_default` / `real_default` / empty list
  int64_t integer_default = 0;
  double real_default = 0;
  std::string_view words = {};  // word: "constant|reflect|edge|wrap"
};

constexpr AttrSpec int_attr(std::string_view name) { return {name, AttrKind::integer, true}; }
constexpr AttrSpec int_attr(std::string_view name, int64_t value) { return {name, AttrKind::integer, false, value}; }
constexpr AttrSpec bool_attr(std::string_view name, bool value) { return {name, AttrKind::boolean, false, value}; }
constexpr AttrSpec dtype_attr(std::string_view name) { return {name, AttrKind::dtype, true}; }
constexpr AttrSpec real_attr(std::string_view name) { return {name, AttrKind::real, true}; }
constexpr AttrSpec real_attr(std::string_view name, double value) { return {name, AttrKind::real, false, 0, value}; }
constexpr AttrSpec ints_attr(std::string_view name) { return {name, AttrKind::integers, true}; }
constexpr AttrSpec dims_attr(std::string_view name) { return {name, AttrKind::dims, true}; }
constexpr AttrSpec view_attr(std::string_view name) { return {name, AttrKind::view, true}; }
// `words` is "first|second|..."; the default is the first.
constexpr AttrSpec word_attr(std::string_view name, std::string_view words) {
  return {name, AttrKind::word, false, 0, 0, words};
}

// A fixed-capacity constexpr list, so that an OpDef is constant-initialised.
class AttrSpecs {
 public:
  static constexpr int kCapacity = 16;
  constexpr AttrSpecs() = default;
  constexpr AttrSpecs(std::initializer_list<AttrSpec> list) {
    for (const AttrSpec& spec : list) specs_[size_++] = spec;
  }
  constexpr const AttrSpec* begin() const { return specs_; }
  constexpr const AttrSpec* end() const { return specs_ + size_; }
  constexpr int size() const { return size_; }
  constexpr const AttrSpec& operator[](int i) const { return specs_[i]; }
  // Index of the attribute of this name; -1 when there is none.
  constexpr int find(std::string_view name) const {
    for (int i = 0; i < size_; ++i)
      if (specs_[i].name == name) return i;
    return -1;
  }

 private:
  AttrSpec specs_[kCapacity] = {};
  int size_ = 0;
};

// What an attribute that is not required is when it is not given.
AttrValue default_value(const AttrSpec& spec);

// The i-th word of "first|second|..."; empty when out of range.
std::string_view word_at(std::string_view words, int64_t index);
// Index of `word`; -1 when it is not among them.
int64_t word_index(std::string_view words, std::string_view word);

}  // namespace tessera::ir
