// A dense tensor in host memory, and the other values that models take and give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tessera/dtype.h"
#include "tessera/error.h"

namespace tessera {

using Dims = std::vector<int64_t>;  // concrete sizes, outermost first; all >= 0

// A contiguous row-major tensor. It shares its memory: copies of a Tensor see the same elements. It either owns the
// memory, or borrows the caller's (which must outlive it) or a mapped file's (kept alive by `keep`).
class Tensor {
 public:
  Tensor() = default;
  // Zeroed, 64-byte aligned. Fails on negative or overflowing shapes and on rows that do not divide into blocks
  // (E0313), and on exhaustion (E0503).
  static Result<Tensor> make(DType dtype, Dims shape);
  // Views `data`, `storage_bytes(dtype, count)` bytes, without a copy. `keep` may hold whatever keeps it alive.
  static Tensor borrow(DType dtype, Dims shape, const void* data, std::shared_ptr<const void> keep = nullptr);
  // A tensor of strings (dtype string).
  static Tensor of_strings(Dims shape, std::vector<std::string> strings);

  DType dtype() const { return dtype_; }
  const Dims& shape() const { return shape_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  int64_t count() const { return count_; }
  size_t bytes() const { return storage_bytes(dtype_, count_); }
  const void* data() const { return data_; }
  // Only for tensors made by make(), or borrowed from memory that the caller may write.
  void* mutable_data() { return const_cast<void*>(data_); }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }
  template <class T>
  T* as() {
    return static_cast<T*>(mutable_data());
  }
  const std::vector<std::string>& strings() const;
  // The same elements under another shape of equal count. CHECKs the count.
  Tensor reshaped(Dims shape) const;

 private:
  DType dtype_ = DType::f32;
  Dims shape_ = {0};
  int64_t count_ = 0;
  const void* data_ = nullptr;
  std::shared_ptr<const void> keep_;
};

// Number of elements of a shape; E0313 when a size is negative or the product passes 2^62.
Result<int64_t> element_count(const Dims& shape);
// E0313 for a block type unless the innermost axis is a whole number of blocks.
Status check_blocks(DType dtype, const Dims& shape);

struct Value;
// A list of values of one kind. ONNX's sequence.
struct Sequence {
  DType element = DType::f32;
  std::vector<Value> items;
};
// A value that may be absent. ONNX's optional.
struct Optional {
  std::shared_ptr<const Value> value;
};

// What a model takes or gives: nearly always a Tensor.
struct Value {
  std::variant<Tensor, Sequence, Optional> held;
  Value() = default;
  Value(Tensor t) : held(std::move(t)) {}
  Value(Sequence s) : held(std::move(s)) {}
  Value(Optional o) : held(std::move(o)) {}
  const Tensor* tensor() const { return std::get_if<Tensor>(&held); }
  const Sequence* sequence() const { return std::get_if<Sequence>(&held); }
  const Optional* optional() const { return std::get_if<Optional>(&held); }
};

}  // namespace tessera
