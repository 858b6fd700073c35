#include "runtime/frame.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"

namespace tessera::runtime {
namespace {

constexpr int kPatience = 4;                // runs that may need little before memory is given back
constexpr size_t kSpare = size_t{1} << 20;  // not worth giving back

}  // namespace

Status Workspace::begin(size_t bytes) {
  const size_t needed = std::max(bytes, used_);
  spacious_ = needed * 2 + kSpare < buffer_.size() ? spacious_ + 1 : 0;
  if (spacious_ == kPatience) {
    buffer_ = AlignedBuffer();
    spacious_ = 0;
  }
  used_ = 0;
  return grow(bytes);
}

Status Workspace::grow(size_t bytes) {
  used_ = std::max(used_, bytes);
  if (bytes <= buffer_.size()) return {};
  buffer_ = AlignedBuffer();  // before the new one is made: never both
  TESSERA_ASSIGN(buffer_, AlignedBuffer::make(bytes));
  return {};
}

size_t bytes_of(const Value& value) {
  if (const Tensor* tensor = value.tensor()) return tensor->bytes();
  size_t bytes = 0;
  if (const Sequence* sequence = value.sequence())
    for (const Value& item : sequence->items) bytes += bytes_of(item);
  if (const Optional* optional = value.optional(); optional != nullptr && optional->value != nullptr)
    bytes = bytes_of(*optional->value);
  return bytes;
}

bool is_aligned(const Tensor& tensor) {
  const auto bytes = static_cast<uintptr_t>(bits(tensor.dtype()) / 8);
  return bytes <= 1 || reinterpret_cast<uintptr_t>(tensor.data()) % bytes == 0;
}

Result<Tensor> copy_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::string) return Tensor::of_strings(tensor.shape(), tensor.strings());
  TESSERA_ASSIGN(Tensor copy, Tensor::make(tensor.dtype(), tensor.shape()));
  if (tensor.bytes() > 0) std::memcpy(copy.mutable_data(), tensor.data(), tensor.bytes());
  return copy;
}

Result<Tensor> aligned(const Tensor& tensor) { return is_aligned(tensor) ? Result<Tensor>(tensor) : copy_of(tensor); }

}  // namespace tessera::runtime
