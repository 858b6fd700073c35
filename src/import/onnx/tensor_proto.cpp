#include "import/onnx/tensor_proto.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/result.h"
#include "base/strings.h"
#include "tensor/scalar.h"

namespace tessera::onnx {
namespace {

using protobuf::Reader;

// By TensorProto.DataType.
constexpr DataType kDataTypes[kPlainTypeCount] = {
    DataType::f64,        DataType::f32,    DataType::f16,        DataType::bf16,   DataType::f8e4m3fn,
    DataType::f8e4m3fnuz, DataType::f8e5m2, DataType::f8e5m2fnuz, DataType::f8e8m0, DataType::f4e2m1,
    DataType::i64,        DataType::i32,    DataType::i16,        DataType::i8,     DataType::i4,
    DataType::i2,         DataType::u64,    DataType::u32,        DataType::u16,    DataType::u8,
    DataType::u4,         DataType::u2,     DataType::boolean,    DataType::string};

// The fields of TensorProto that hold typed data.
constexpr uint32_t kFloatData = 4, kInt32Data = 5, kStringData = 6, kInt64Data = 7, kDoubleData = 10, kUint64Data = 11;

uint32_t typed_field(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return kDoubleData;
    case DType::f32:
      return kFloatData;
    case DType::i64:
      return kInt64Data;
    case DType::u64:
    case DType::u32:
      return kUint64Data;
    case DType::string:
      return kStringData;
    default:
      return kInt32Data;
  }
}

// More axes than any operator has a use for, and few enough to print.
constexpr size_t kMaxRank = 64;

Result<int64_t> count_of(const Dims& dims) {
  if (dims.size() > kMaxRank)
    return fail(Code::shape_invalid, "a shape has {} axes, more than {}", dims.size(), kMaxRank);
  return element_count(dims);
}

// "tensor 'w' of type f32 and shape [2, 3]"
std::string describe(const TensorProto& proto, DType dtype) {
  return fmt::format("tensor '{}' of type {} and shape [{}]", proto.name, name(dtype), joined(proto.dims, ", "));
}

// Whether `count` elements take exactly `bytes` bytes; count may be anything up to 2^62.
bool fills(DType dtype, int64_t count, size_t bytes) {
  return (static_cast<Int128>(count) * bits(dtype) + 7) / 8 == static_cast<Int128>(bytes);
}

Result<Tensor> make_boolean(Dims shape, Bytes data) {
  TESSERA_ASSIGN(Tensor tensor, Tensor::make(DType::boolean, std::move(shape)));
  std::transform(data.begin(), data.end(), tensor.as<uint8_t>(), [](std::byte b) { return b != std::byte{0}; });
  return tensor;
}

// A tensor of the bytes, which fill it exactly and are kept alive by `keep`.
Result<Tensor> borrow(DType dtype, Dims shape, Bytes data, std::shared_ptr<const void> keep, bool unaligned) {
  // Booleans are 0 or 1 everywhere in Tessera, but a file may hold any byte for true.
  if (dtype == DType::boolean && std::any_of(data.begin(), data.end(), [](std::byte b) { return b > std::byte{1}; }))
    return make_boolean(std::move(shape), data);
  const size_t alignment = static_cast<size_t>(std::max(bits(dtype) / 8, 1));
  if (unaligned || reinterpret_cast<uintptr_t>(data.data()) % alignment == 0)
    return Tensor::borrow(dtype, std::move(shape), data.data(), std::move(keep));
  TESSERA_ASSIGN(Tensor tensor, Tensor::make(dtype, std::move(shape)));
  if (!data.empty()) std::memcpy(tensor.mutable_data(), data.data(), data.size());
  return tensor;
}

// Stores the values of the typed data fields one after the other, up to the tensor's size, and counts all.
class TypedData {
 public:
  // `storage` has room for `capacity` stored units: elements, or bytes of packed ones.
  TypedData(const TensorProto& proto, DType dtype, void* storage, int64_t capacity)
      : proto_(proto), dtype_(dtype), storage_(static_cast<char*>(storage)), capacity_(capacity) {}

  Status read();
  int64_t count() const { return count_; }

 private:
  Status read_field(Reader& r);
  Status put_varint(uint64_t value);
  // Fixed-size values are stored as they are.
  void put_fixed(Bytes run, size_t size);

  const TensorProto& proto_;
  DType dtype_;
  char* storage_;
  int64_t capacity_;
  int64_t count_ = 0;
};

Status TypedData::read() {
  Reader r(proto_.message);
  while (r.next()) {
    if (r.number() == typed_field(dtype_)) TESSERA_TRY(read_field(r));
  }
  return r.status();
}

Status TypedData::read_field(Reader& r) {
  const bool fixed = dtype_ == DType::f32 || dtype_ == DType::f64;
  const size_t size = dtype_ == DType::f32 ? sizeof(float) : sizeof(double);
  if (r.wire() != protobuf::Wire::bytes) {
    if (dtype_ == DType::f32) {
      const float value = r.float32();
      put_fixed(std::as_bytes(std::span(&value, 1)), size);
    } else if (dtype_ == DType::f64) {
      const double value = r.float64();
      put_fixed(std::as_bytes(std::span(&value, 1)), size);
    } else {
      return put_varint(r.uint64());
    }
    return {};
  }
  if (fixed) {
    if (r.bytes().size() % size != 0)
      return fail(Code::model_malformed, "{} has {} bytes of typed data, not a multiple of {}",
                  describe(proto_, dtype_), r.bytes().size(), size);
    put_fixed(r.bytes(), size);
    return {};
  }
  protobuf::Varints run(r.bytes());
  for (uint64_t value = 0; run.next(value);) TESSERA_TRY(put_varint(value));
  if (!run.at_end()) return fail(Code::model_malformed, "{} has damaged typed data", describe(proto_, dtype_));
  return {};
}

Status TypedData::put_varint(uint64_t value) {
  const int64_t at = count_++;
  if (at >= capacity_) return {};
  // An int32_data value holds a whole element's bits, or a byte of packed elements.
  const int unit_bits = std::max(bits(dtype_), 8);
  if (typed_field(dtype_) == kInt32Data) {
    const int32_t wide = static_cast<int32_t>(value);
    const int64_t limit = int64_t{1} << unit_bits;
    if (unit_bits < 32 && (wide >= limit || wide < -limit / 2))
      return fail(Code::model_malformed, "value {} of {} is {}, which does not fit", at, describe(proto_, dtype_),
                  wide);
  } else if (dtype_ == DType::u32 && value > UINT32_MAX) {
    return fail(Code::model_malformed, "value {} of {} is {}, which does not fit", at, describe(proto_, dtype_), value);
  }
  if (dtype_ == DType::boolean) value = static_cast<uint32_t>(value) != 0;
  const size_t bytes = static_cast<size_t>(unit_bits) / 8;
  std::memcpy(storage_ + static_cast<size_t>(at) * bytes, &value, bytes);
  return {};
}

void TypedData::put_fixed(Bytes run, size_t size) {
  const int64_t values = static_cast<int64_t>(run.size() / size);
  const int64_t kept = std::min(values, std::max<int64_t>(capacity_ - count_, 0));
  if (kept > 0)
    std::memcpy(storage_ + static_cast<size_t>(count_) * size, run.data(), static_cast<size_t>(kept) * size);
  count_ += values;
}

Result<Tensor> read_typed(const TensorProto& proto, DType dtype, int64_t count) {
  // A stored value takes at least a byte of the message, so the check bounds what is allocated.
  const int per_unit = bits(dtype) < 8 ? 8 / bits(dtype) : 1;
  const int64_t units = count / per_unit + (count % per_unit != 0);
  auto mismatch = [&](int64_t have) {
    return fail(Code::model_malformed, "{} needs {} values but has {}", describe(proto, dtype), units, have);
  };
  if (units > static_cast<int64_t>(proto.message.size())) {
    TypedData counter(proto, dtype, nullptr, 0);
    TESSERA_TRY(counter.read());
    return mismatch(counter.count());
  }
  TESSERA_ASSIGN(Tensor tensor, Tensor::make(dtype, proto.dims));
  TypedData data(proto, dtype, tensor.mutable_data(), units);
  TESSERA_TRY(data.read());
  if (data.count() != units) return mismatch(data.count());
  return tensor;
}

Result<Tensor> read_strings(const TensorProto& proto, int64_t count) {
  std::vector<std::string> strings;
  Reader r(proto.message);
  while (r.next()) {
    if (r.number() == kStringData) strings.emplace_back(r.string());
  }
  TESSERA_TRY(r.status());
  if (static_cast<int64_t>(strings.size()) != count)
    return fail(Code::model_malformed, "{} needs {} values but has {}", describe(proto, DType::string), count,
                strings.size());
  return Tensor::of_strings(proto.dims, std::move(strings));
}

// A decimal number of an external_data entry.
Result<uint64_t> parse_number(const TensorProto& proto, const StringStringEntryProto& entry) {
  uint64_t value = 0;
  const char* end = entry.value.data() + entry.value.size();
  auto [stop, error] = std::from_chars(entry.value.data(), end, value);
  if (entry.value.empty() || error != std::errc() || stop != end)
    return fail(Code::model_malformed, "external tensor '{}' has '{}' for its {}, not a number of bytes", proto.name,
                entry.value, entry.key);
  return value;
}

Result<Tensor> read_external(const TensorProto& proto, DType dtype, int64_t count, const TensorSource& source) {
  if (source.external == nullptr)
    return fail(Code::model_malformed, "tensor '{}' keeps its data in another file, which is not allowed here",
                proto.name);
  if (dtype == DType::string)
    return fail(Code::model_malformed, "tensor '{}' keeps strings in another file, which ONNX has no form for",
                proto.name);
  std::string_view location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
  for (const StringStringEntryProto& entry : proto.external_data) {
    if (entry.key == "location") location = entry.value;
    if (entry.key == "offset") {
      TESSERA_ASSIGN(offset, parse_number(proto, entry));
    }
    if (entry.key == "length") {
      TESSERA_ASSIGN(length, parse_number(proto, entry));
    }
  }
  if (location.empty()) return fail(Code::model_malformed, "external tensor '{}' has no location", proto.name);
  TESSERA_ASSIGN(std::shared_ptr<const MappedFile> file, source.external->open(location));
  const Int128 needed = (static_cast<Int128>(count) * bits(dtype) + 7) / 8;
  if (length && static_cast<Int128>(*length) != needed)
    return fail(Code::model_malformed, "{} needs {} bytes but its external data has {}", describe(proto, dtype),
                static_cast<uint64_t>(std::min<Int128>(needed, UINT64_MAX)), *length);
  if (static_cast<Int128>(offset) + needed > static_cast<Int128>(file->size()))
    return fail(Code::file_truncated, "{} starts at byte {} of '{}', which ends at byte {} before its data does",
                describe(proto, dtype), offset, location, file->size());
  const Bytes data = file->bytes().subspan(static_cast<size_t>(offset), static_cast<size_t>(needed));
  return borrow(dtype, proto.dims, data, file, source.unaligned);
}

Result<Tensor> read_tensor(const TensorProto& proto, const TensorSource& source) {
  TESSERA_ASSIGN(DType dtype, require_dtype(proto.data_type, proto.name));
  if (proto.segmented) return fail(Code::unsupported_feature, "tensor '{}' is one segment of a larger one", proto.name);
  TESSERA_ASSIGN(int64_t count, count_of(proto.dims));
  if (proto.external) return read_external(proto, dtype, count, source);
  if (dtype == DType::string) return read_strings(proto, count);
  // Some writers leave an empty raw_data beside typed data.
  if (!proto.raw_data || (proto.raw_data->empty() && count > 0)) return read_typed(proto, dtype, count);
  if (!fills(dtype, count, proto.raw_data->size()))
    return fail(Code::model_malformed, "{} cannot have {} bytes of data", describe(proto, dtype),
                proto.raw_data->size());
  return borrow(dtype, proto.dims, *proto.raw_data, source.file, source.unaligned);
}

// Dense forms up to here are always made: 64 MiB, far more than any index or mask that is worth storing sparsely.
constexpr int64_t kAlwaysDenseBytes = int64_t{64} << 20;
// Larger ones only at a density that a real tensor could have.
constexpr int64_t kLowestDensity = 1000;

// The linear index of each value, checked to be inside the shape and ascending.
Result<std::vector<int64_t>> linear_indices(const SparseTensorProto& proto, const Tensor& indices, int64_t values,
                                            int64_t count) {
  const std::string_view name = proto.values.name;
  const int64_t rank = static_cast<int64_t>(proto.dims.size());
  const bool linear = indices.rank() == 1;
  const bool fits = linear ? indices.shape()[0] == values
                           : indices.rank() == 2 && indices.shape()[0] == values && indices.shape()[1] == rank;
  if (indices.dtype() != DType::i64 || !fits)
    return fail(Code::model_malformed, "sparse tensor '{}' has {} values but indices of type {} and shape [{}]", name,
                values, tessera::name(indices.dtype()), joined(indices.shape(), ", "));
  std::vector<int64_t> out(static_cast<size_t>(values));
  int64_t last = -1;
  for (int64_t i = 0; i < values; ++i) {
    int64_t at = 0;
    for (int64_t axis = 0; axis < (linear ? 1 : rank); ++axis) {
      const int64_t size = linear ? count : proto.dims[static_cast<size_t>(axis)];
      const int64_t index = static_cast<int64_t>(decode_int(DType::i64, indices.data(), linear ? i : i * rank + axis));
      if (index < 0 || index >= size)
        return fail(Code::index_out_of_range, "index {} of sparse tensor '{}' is outside [0, {})", index, name, size);
      at = at * size + index;
    }
    if (at <= last)
      return fail(Code::model_malformed, "the indices of sparse tensor '{}' do not ascend at value {}", name, i);
    out[static_cast<size_t>(i)] = last = at;
  }
  return out;
}

template <class T>
Result<T> naming(Result<T> result, std::string_view kind, std::string_view name) {
  if (result) return result;
  return tl::unexpected(std::move(result).error().within(fmt::format("reading {} '{}'", kind, name)));
}

Result<Tensor> densify(const SparseTensorProto& proto, const TensorSource& source) {
  TESSERA_ASSIGN(Tensor values, to_tensor(proto.values, source));
  TESSERA_ASSIGN(Tensor indices, to_tensor(proto.indices, source));
  TESSERA_ASSIGN(int64_t count, count_of(proto.dims));
  if (values.rank() != 1)
    return fail(Code::model_malformed, "sparse tensor '{}' has values of shape [{}], not of one axis",
                proto.values.name, joined(values.shape(), ", "));
  if (values.count() > count)
    return fail(Code::model_malformed, "sparse tensor '{}' of shape [{}] has {} values, more than elements",
                proto.values.name, joined(proto.dims, ", "), values.count());
  if (values.dtype() == DType::string)
    return fail(Code::unsupported_feature, "sparse tensor '{}' holds strings", proto.values.name);
  const Int128 bytes = static_cast<Int128>(count) * bits(values.dtype()) / 8;
  const bool few = bytes > static_cast<Int128>(values.bytes()) * kLowestDensity;
  const int64_t most =
      source.sparse_left == nullptr ? kAlwaysDenseBytes : std::min(kAlwaysDenseBytes, *source.sparse_left);
  if (few && source.sparse_left != nullptr && bytes <= most) *source.sparse_left -= static_cast<int64_t>(bytes);
  if (few && bytes > most)
    return fail(Code::out_of_memory, "sparse tensor '{}' of shape [{}] has only {} values: its dense form is refused",
                proto.values.name, joined(proto.dims, ", "), values.count());
  TESSERA_ASSIGN(std::vector<int64_t> at, linear_indices(proto, indices, values.count(), count));
  TESSERA_ASSIGN(Tensor dense, Tensor::make(values.dtype(), proto.dims));
  const size_t size = static_cast<size_t>(bits(values.dtype())) / 8;
  for (size_t i = 0; i < at.size(); ++i) {
    if (size == 0) {
      encode(values.dtype(), dense.mutable_data(), at[i],
             decode(values.dtype(), values.data(), static_cast<int64_t>(i)));
    } else {
      std::memcpy(dense.as<char>() + static_cast<size_t>(at[i]) * size, values.as<char>() + i * size, size);
    }
  }
  return dense;
}

}  // namespace

std::optional<DType> dtype_of(int32_t data_type) {
  const auto* found = std::find(std::begin(kDataTypes), std::end(kDataTypes), static_cast<DataType>(data_type));
  if (found == std::end(kDataTypes)) return std::nullopt;
  return static_cast<DType>(found - std::begin(kDataTypes));
}

DataType data_type_of(DType dtype) { return kDataTypes[static_cast<int>(dtype)]; }

Result<DType> require_dtype(int32_t data_type, std::string_view tensor) {
  if (std::optional<DType> dtype = dtype_of(data_type)) return *dtype;
  const DataType type = static_cast<DataType>(data_type);
  if (type == DataType::complex64 || type == DataType::complex128)
    return fail(Code::unsupported_feature, "tensor '{}' holds complex numbers", tensor);
  return fail(Code::model_malformed, "tensor '{}' is of element type {}, which ONNX does not define", tensor,
              data_type);
}

Result<std::shared_ptr<const MappedFile>> ExternalFiles::open(std::string_view location) {
  std::shared_ptr<const MappedFile>& file = files_[std::string(location)];
  if (file == nullptr) {
    TESSERA_ASSIGN(file, MappedFile::open_inside(folder_, location));
  }
  return file;
}

Result<Tensor> to_tensor(const TensorProto& proto, const TensorSource& source) {
  return naming(read_tensor(proto, source), "tensor", proto.name);
}

Result<Tensor> to_dense(const SparseTensorProto& proto, const TensorSource& source) {
  return naming(densify(proto, source), "sparse tensor", proto.values.name);
}

std::string serialize(const Tensor& tensor, std::string_view name) {
  protobuf::Writer out;
  for (int64_t size : tensor.shape()) out.int64(1, size);
  out.int64(2, static_cast<int64_t>(data_type_of(tensor.dtype())));
  if (tensor.dtype() == DType::string) {
    for (const std::string& s : tensor.strings()) out.string(kStringData, s);
  }
  if (!name.empty()) out.string(8, name);
  if (tensor.dtype() != DType::string)
    out.bytes(9, Bytes(static_cast<const std::byte*>(tensor.data()), tensor.bytes()));
  return out.take();
}

}  // namespace tessera::onnx
