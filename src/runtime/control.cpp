// Steps that call other routines.
#include <fmt/format.h>

#include <cstring>

#include "base/result.h"
#include "base/strings.h"
#include "runtime/executor.h"
#include "tensor/scalar.h"

namespace tessera::runtime {

using plan::Step;

namespace {

Result<Value> scalar(DType dtype, int64_t value) {
  TESSERA_ASSIGN(Tensor tensor, Tensor::make(dtype, {}));
  encode_int(dtype, tensor.mutable_data(), 0, value);
  return Value(std::move(tensor));
}

// The one element of a tensor that stands for a number or a condition.
Result<int64_t> element(const Value& value, std::string_view what) {
  const Tensor* tensor = value.tensor();
  if (tensor == nullptr || tensor->count() != 1 || !(is_int(tensor->dtype()) || tensor->dtype() == DType::boolean))
    return fail(Code::value_invalid, "the {} is not one integer or boolean", what);
  return static_cast<int64_t>(decode_int(tensor->dtype(), tensor->data(), 0));
}

// Element `index` of axis 0, without a copy where elements are whole bytes.
Result<Value> slice_of(const Tensor& tensor, int64_t index) {
  Dims dims(tensor.shape().begin() + 1, tensor.shape().end());
  TESSERA_ASSIGN(const int64_t count, element_count(dims));
  if (tensor.dtype() == DType::string) {
    const auto first = tensor.strings().begin() + index * count;
    return Value(Tensor::of_strings(std::move(dims), {first, first + count}));
  }
  const int width = bits(tensor.dtype());
  if (width % 8 == 0)
    return Value(Tensor::borrow(tensor.dtype(), std::move(dims),
                                static_cast<const char*>(tensor.data()) + index * count * (width / 8)));
  TESSERA_ASSIGN(Tensor slice, Tensor::make(tensor.dtype(), std::move(dims)));
  for (int64_t i = 0; i < count; ++i)
    encode(tensor.dtype(), slice.mutable_data(), i, decode(tensor.dtype(), tensor.data(), index * count + i));
  return Value(std::move(slice));
}

std::vector<const Value*> pointers_to(std::span<const Value> values) {
  std::vector<const Value*> pointers;
  for (const Value& value : values) pointers.push_back(&value);
  return pointers;
}

}  // namespace

Result<std::vector<Value>> Executor::run_branch(const Active& a, const Step& step, std::span<const Value> operands) {
  TESSERA_ASSIGN(const int64_t condition, element(operands[0], "condition of a branch"));
  return call(step.routines[condition != 0 ? 0 : 1], pointers_to(operands.subspan(1)), a.frame.symbols);
}

Result<std::vector<Value>> Executor::run_loop(const Active& a, const Step& step, std::span<const Value> operands) {
  const auto given = a.routine.operands(step);
  int64_t trips = INT64_MAX;
  int64_t condition = 1;
  if (given[0] != plan::kNone) {
    TESSERA_ASSIGN(trips, element(operands[0], "trip count of a loop"));
  }
  if (given[1] != plan::kNone) {
    TESSERA_ASSIGN(condition, element(operands[1], "condition of a loop"));
  }
  std::vector<Value> inputs(operands.begin(), operands.end());
  const uint32_t n_stacks = step.results.count - step.carried;
  std::vector<std::vector<Value>> stacks(n_stacks);
  for (int64_t i = 0; i < trips && condition != 0; ++i) {
    if (i >= shared_.max_iterations)
      return fail(Code::iteration_limit, "the loop has run {} times, which is the limit, and would go on", i);
    TESSERA_ASSIGN(inputs[0], scalar(DType::i64, i));
    TESSERA_ASSIGN(inputs[1], scalar(DType::boolean, condition));
    TESSERA_ASSIGN(std::vector<Value> results, call(step.routines[0], pointers_to(inputs), a.frame.symbols));
    TESSERA_ASSIGN(condition, element(results[0], "condition of a loop"));
    for (uint32_t c = 0; c < step.carried; ++c) inputs[2 + c] = std::move(results[1 + c]);
    for (uint32_t k = 0; k < n_stacks; ++k) stacks[k].push_back(std::move(results[1 + step.carried + k]));
  }
  std::vector<Value> results(inputs.begin() + 2, inputs.begin() + 2 + step.carried);
  for (uint32_t c = 0; c < step.carried; ++c) TESSERA_TRY(keep_own(a, given[2 + c], results[c]));
  for (uint32_t k = 0; k < n_stacks; ++k) {
    TESSERA_ASSIGN(Value stacked, stack(a, step, step.carried + k, stacks[k]));
    results.push_back(std::move(stacked));
  }
  return results;
}

Result<std::vector<Value>> Executor::run_scan(const Active& a, const Step& step, std::span<const Value> operands) {
  int64_t trips = -1;
  for (uint32_t i = 0; i < step.scanned; ++i) {
    const Tensor* tensor = operands[step.carried + i].tensor();
    if (tensor == nullptr || tensor->rank() == 0)
      return fail(Code::rank_mismatch, "scanned operand {} has no axis to be walked along", i);
    if (trips >= 0 && tensor->shape()[0] != trips)
      return fail(Code::shape_mismatch, "the scanned axis of operand {} is {}, that of operand 0 is {}", i,
                  tensor->shape()[0], trips);
    trips = tensor->shape()[0];
  }
  if (trips > shared_.max_iterations)
    return fail(Code::iteration_limit, "the scan would run {} times, the limit is {}", trips, shared_.max_iterations);
  const auto given = a.routine.operands(step);
  std::vector<Value> inputs(operands.begin(), operands.end());
  const uint32_t n_stacks = step.results.count - step.carried;
  std::vector<std::vector<Value>> stacks(n_stacks);
  for (int64_t i = 0; i < trips; ++i) {
    for (uint32_t k = step.carried; k < step.carried + step.scanned; ++k) {
      TESSERA_ASSIGN(inputs[k], slice_of(*operands[k].tensor(), i));
    }
    TESSERA_ASSIGN(std::vector<Value> results, call(step.routines[0], pointers_to(inputs), a.frame.symbols));
    for (uint32_t c = 0; c < step.carried; ++c) inputs[c] = std::move(results[c]);
    for (uint32_t k = 0; k < n_stacks; ++k) stacks[k].push_back(std::move(results[step.carried + k]));
  }
  std::vector<Value> results(inputs.begin(), inputs.begin() + step.carried);
  for (uint32_t c = 0; c < step.carried; ++c) TESSERA_TRY(keep_own(a, given[c], results[c]));
  for (uint32_t k = 0; k < n_stacks; ++k) {
    TESSERA_ASSIGN(Value stacked, stack(a, step, step.carried + k, stacks[k]));
    results.push_back(std::move(stacked));
  }
  return results;
}

// After no iteration a carried value is still the operand, whose memory may be the arena's.
Status Executor::keep_own(const Active& a, plan::ValueId operand, Value& value) {
  const plan::Storage storage = a.routine.values[operand].storage;
  if (value.tensor() == nullptr || storage == plan::Storage::boxed || storage == plan::Storage::constant) return {};
  TESSERA_ASSIGN(value, copy_of(*value.tensor()));
  return {};
}

Result<Value> Executor::stack(const Active& a, const Step& step, uint32_t result, std::span<const Value> slices) {
  const plan::ValueId v = a.routine.results(step)[result];
  if (v == plan::kNone) return Value();
  const auto n = static_cast<int64_t>(slices.size());
  const DType dtype = a.routine.values[v].dtype;
  Dims dims = {n};
  if (n == 0) {
    // No slice tells its size: what is not known beforehand is 0.
    const auto shape = a.routine.shape(v);
    for (size_t axis = 1; axis < shape.size(); ++axis) dims.push_back(a.frame.sizes->get(shape[axis]).value_or(0));
    TESSERA_ASSIGN(Tensor empty, Tensor::make(dtype, std::move(dims)));
    return Value(std::move(empty));
  }
  const Tensor* first = slices[0].tensor();
  for (const Value& slice : slices) {
    const Tensor* tensor = slice.tensor();
    if (tensor == nullptr || tensor->dtype() != dtype)
      return fail(Code::dtype_mismatch, "iterations give values that are no {} tensors", name(dtype));
    if (tensor->shape() != first->shape())
      return fail(Code::shape_mismatch, "one iteration gives [{}] and another [{}], which do not stack",
                  joined(first->shape(), ", "), joined(tensor->shape(), ", "));
  }
  dims.insert(dims.end(), first->shape().begin(), first->shape().end());
  if (dtype == DType::string) {
    std::vector<std::string> all;
    for (const Value& slice : slices)
      all.insert(all.end(), slice.tensor()->strings().begin(), slice.tensor()->strings().end());
    return Value(Tensor::of_strings(std::move(dims), std::move(all)));
  }
  TESSERA_ASSIGN(Tensor stacked, Tensor::make(dtype, std::move(dims)));
  const int64_t count = first->count();
  for (int64_t i = 0; i < n; ++i) {
    const void* from = slices[static_cast<size_t>(i)].tensor()->data();
    if (bits(dtype) % 8 == 0) {
      if (count > 0)
        std::memcpy(static_cast<char*>(stacked.mutable_data()) + i * count * (bits(dtype) / 8), from, first->bytes());
    } else {
      for (int64_t k = 0; k < count; ++k) encode(dtype, stacked.mutable_data(), i * count + k, decode(dtype, from, k));
    }
  }
  return Value(std::move(stacked));
}

}  // namespace tessera::runtime
