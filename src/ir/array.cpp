#include "ir/array.h"

#include <algorithm>

#include "base/memory.h"
#include "base/result.h"
#include "tensor/block.h"
#include "tensor/scalar.h"

namespace tessera::ir {
namespace {

// The reference is for checking: it refuses arrays that a machine of the usual size cannot hold.
constexpr int64_t kMaxElements = int64_t{1} << 31;

}  // namespace

int64_t Array::count() const {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

Result<int64_t> array_count(const Dims& shape) {
  TESSERA_ASSIGN(int64_t count, element_count(shape));
  if (count > kMaxElements)
    return fail(Code::out_of_memory, "an array of {} elements is too large for the reference", count);
  TESSERA_TRY(check_allocation(static_cast<size_t>(count) * sizeof(Int)));
  return count;
}

Result<Array> make_array(DType dtype, Dims shape) {
  TESSERA_ASSIGN(int64_t count, array_count(shape));
  Array array{dtype, std::move(shape), {}};
  if (is_float(dtype) || is_block(dtype)) {
    array.data = std::vector<double>(static_cast<size_t>(count));
  } else {
    array.data = std::vector<Int>(static_cast<size_t>(count));
  }
  return array;
}

Result<Array> to_array(const Tensor& tensor) {
  if (tensor.dtype() == DType::string)
    return fail(Code::unsupported_feature, "tensors of strings cannot be computed on");
  TESSERA_ASSIGN(Array array, make_array(tensor.dtype(), tensor.shape()));
  if (is_block(tensor.dtype())) {
    std::vector<float> values(static_cast<size_t>(tensor.count()));
    decode_blocks(tensor.dtype(), tensor.data(), values);
    std::copy(values.begin(), values.end(), array.of<double>().begin());
  } else if (array.is_real()) {
    decode_all(tensor.dtype(), tensor.data(), array.of<double>());
  } else {
    decode_all(tensor.dtype(), tensor.data(), array.of<Int>());
  }
  return array;
}

Result<Tensor> to_tensor(const Array& array) {
  if (is_block(array.dtype))
    return fail(Code::unsupported_feature, "no operator computes values of {}", name(array.dtype));
  TESSERA_ASSIGN(Tensor tensor, Tensor::make(array.dtype, array.shape));
  if (array.is_real()) {
    // Elements are representable already: an infinity of a float8 must stay one.
    encode_all(array.dtype, tensor.mutable_data(), array.of<double>(), Rounding{.saturate = false});
  } else {
    encode_all(array.dtype, tensor.mutable_data(), array.of<Int>());
  }
  return tensor;
}

void round_to_dtype(Array& array) {
  // Only casts make float8 values, and they have rounded as the model asks.
  bool cast_only = is_float(array.dtype) && bits(array.dtype) <= 8;
  if (array.dtype == DType::f64 || cast_only || is_block(array.dtype) || array.data.index() == 2) return;
  if (array.is_real()) {
    if (array.dtype == DType::f32) {
      for (double& v : array.of<double>()) v = static_cast<float>(v);
    } else {
      for (double& v : array.of<double>()) v = round_to(array.dtype, v);
    }
  } else {
    unsigned char element[8];
    for (Int& v : array.of<Int>()) {
      encode_int(array.dtype, element, 0, v);
      v = decode_int(array.dtype, element, 0);
    }
  }
}

}  // namespace tessera::ir
