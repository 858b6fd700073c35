#include "tessera/tensor.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/memory.h"
#include "base/result.h"
#include "base/strings.h"
#include "tensor/large.h"

namespace tessera {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 62;

}  // namespace

Result<int64_t> element_count(const Dims& shape) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0) return fail(Code::shape_invalid, "dimension {} is negative", size);
    empty |= size == 0;
  }
  if (empty) return 0;
  for (int64_t size : shape)
    if (__builtin_mul_overflow(count, size, &count) || count > kMaxCount)
      return fail(Code::shape_invalid, "shape [{}] has more than 2^62 elements", joined(shape, ", "));
  return count;
}

Status check_blocks(DType dtype, const Dims& shape) {
  const int64_t elements = block_size(dtype).elements;
  if (elements == 1 || (!shape.empty() && shape.back() % elements == 0)) return {};
  return fail(Code::shape_invalid, "a {} tensor has shape [{}], but its blocks have {} elements along the last axis",
              name(dtype), joined(shape, ", "), elements);
}

namespace {

Status check_count(int64_t count) {
  if (count > kMaxCount / 64) return fail(Code::out_of_memory, "a tensor of {} elements does not fit", count);
  return {};
}

Result<Tensor> made(DType dtype, Dims shape, Pages pages) {
  TESSERA_ASSIGN(int64_t count, element_count(shape));
  TESSERA_TRY(check_count(count));
  TESSERA_TRY(check_blocks(dtype, shape));
  // Functions of the C library take no null pointer, not even of no bytes.
  alignas(64) static std::byte nothing[64];
  if (count == 0) return Tensor::borrow(dtype, std::move(shape), nothing);
  TESSERA_ASSIGN(AlignedBuffer memory, AlignedBuffer::make(storage_bytes(dtype, count), pages));
  const auto keep = std::make_shared<AlignedBuffer>(std::move(memory));
  return Tensor::borrow(dtype, std::move(shape), keep->data(), keep);
}

}  // namespace

Result<Tensor> Tensor::make(DType dtype, Dims shape) {
  if (dtype != DType::string) return made(dtype, std::move(shape), Pages::normal);
  TESSERA_ASSIGN(int64_t count, element_count(shape));
  TESSERA_TRY(check_count(count));
  TESSERA_TRY(check_allocation(static_cast<size_t>(count) * sizeof(std::string)));
  return of_strings(std::move(shape), std::vector<std::string>(count));
}

Result<Tensor> make_in_large_pages(DType dtype, Dims shape) { return made(dtype, std::move(shape), Pages::huge); }

Tensor Tensor::borrow(DType dtype, Dims shape, const void* data, std::shared_ptr<const void> keep) {
  Result<int64_t> count = element_count(shape);
  TESSERA_CHECK(count.has_value() && check_blocks(dtype, shape));
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = std::move(shape);
  t.count_ = *count;
  t.data_ = data;
  t.keep_ = std::move(keep);
  return t;
}

Tensor Tensor::of_strings(Dims shape, std::vector<std::string> strings) {
  auto held = std::make_shared<const std::vector<std::string>>(std::move(strings));
  Tensor t = borrow(DType::string, std::move(shape), held.get(), held);
  TESSERA_CHECK(t.count() == static_cast<int64_t>(held->size()));
  return t;
}

const std::vector<std::string>& Tensor::strings() const {
  TESSERA_CHECK(dtype_ == DType::string && data_ != nullptr);
  return *static_cast<const std::vector<std::string>*>(data_);
}

Tensor Tensor::reshaped(Dims shape) const {
  Result<int64_t> count = element_count(shape);
  TESSERA_CHECK(count.has_value() && *count == count_ && check_blocks(dtype_, shape));
  Tensor t = *this;
  t.shape_ = std::move(shape);
  return t;
}

}  // namespace tessera
