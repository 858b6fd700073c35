// Arrays of the reference interpreter: row-major, concrete shapes, elements in one of three exact scalars.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "tensor/dim.h"
#include "tensor/scalar.h"
#include "tessera/tensor.h"

namespace tessera::ir {

// Wide enough for every i64 and u64 and for their sums and products before these are wrapped to the declared type.
using Int = Int128;

// Floats and the values of blocks are doubles, integers and booleans are Ints (or Dims while shapes are folded).
struct Array {
  DType dtype = DType::f32;
  Dims shape;
  std::variant<std::vector<double>, std::vector<Int>, std::vector<Dim>> data;

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t count() const;
  bool is_real() const { return data.index() == 0; }
  template <class S>
  const std::vector<S>& of() const {
    return std::get<std::vector<S>>(data);
  }
  template <class S>
  std::vector<S>& of() {
    return std::get<std::vector<S>>(data);
  }
};

// The number of elements of a shape. E0503 past the memory limit: operators ask before they allocate.
Result<int64_t> array_count(const Dims& shape);
// Zeroes in the scalar that dtype calls for. E0503 past the memory limit.
Result<Array> make_array(DType dtype, Dims shape);
Result<Array> to_array(const Tensor& tensor);
// Elements must already be rounded to dtype.
Result<Tensor> to_tensor(const Array& array);
// Rounds (floats) or wraps (integers) every element to dtype.
void round_to_dtype(Array& array);

// A value of the interpreter: an array, a list, or an optional.
struct RefValue {
  struct List {
    DType element;
    std::vector<RefValue> items;
  };
  struct Maybe {
    std::shared_ptr<const RefValue> value;
  };
  std::variant<std::shared_ptr<const Array>, List, Maybe> held;
  const Array& array() const { return *std::get<0>(held); }
  const List& list() const { return std::get<List>(held); }
  const Maybe& maybe() const { return std::get<Maybe>(held); }
};

}  // namespace tessera::ir
