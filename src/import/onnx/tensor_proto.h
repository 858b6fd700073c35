// Between ONNX's TensorProto and Tensor.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/file.h"
#include "import/onnx/proto.h"
#include "tessera/tensor.h"

namespace tessera::onnx {

// The element type of a TensorProto.DataType; nothing for numbers that are unknown, undefined or complex.
std::optional<DType> dtype_of(int32_t data_type);
DataType data_type_of(DType dtype);
// As dtype_of, but an error that names the tensor: E0402 for complex numbers, E0201 for what is no type.
Result<DType> require_dtype(int32_t data_type, std::string_view tensor);

// The files beside a model that hold its external data, each mapped once. For one thread.
class ExternalFiles {
 public:
  // `folder` is the model's. Nothing outside it is ever opened.
  explicit ExternalFiles(std::string folder) : folder_(std::move(folder)) {}
  Result<std::shared_ptr<const MappedFile>> open(std::string_view location);

 private:
  std::string folder_;
  std::unordered_map<std::string, std::shared_ptr<const MappedFile>> files_;
};

// Where the bytes of tensors come from.
struct TensorSource {
  std::shared_ptr<const void> file = nullptr;  // keeps the bytes that messages point into alive; tensors share it
  ExternalFiles* external = nullptr;           // null where external data is not allowed
  // Whether a tensor may borrow bytes that are not aligned for its type: only for callers that load elements with
  // memcpy or unaligned vector loads. Otherwise such bytes are copied.
  bool unaligned = false;
  // Bytes that sparse tensors of few values may still take; null: only the limit of one tensor holds.
  int64_t* sparse_left = nullptr;
};

// The tensor, borrowing the file's bytes where it can. Errors name it: E0201 when its data does not fit its type and
// shape, E0313 for impossible shapes, E0402 for complex types and segments, E0101 and E0105 for external files that
// are not there or not allowed, E0103 for those that end too early. Never allocates more than a small multiple of the
// bytes that are there.
Result<Tensor> to_tensor(const TensorProto& proto, const TensorSource& source);

// The dense form. Also E0315 for an index outside the shape, and E0503 for one that would be out of all proportion to
// the values that are there.
Result<Tensor> to_dense(const SparseTensorProto& proto, const TensorSource& source);

// The tensor as a serialised TensorProto, with raw_data.
std::string serialize(const Tensor& tensor, std::string_view name);

}  // namespace tessera::onnx
