// GGUF files, versions 2 and 3, little-endian (github.com/ggml-org/ggml/blob/master/docs/gguf.md): metadata, and
// tensors that may be block-quantized. Read in place over a mapping; written whole or not at all.
//
// The reader is for untrusted bytes: what it allocates is proportional to the entries that really stand in the file,
// and every count, length and offset is checked against the file's end before use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/ggml_type.h"
#include "tessera/tensor.h"

namespace tessera::gguf {

using Bytes = std::span<const std::byte>;

// The types of metadata, numbered as in files.
enum class ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
std::string_view name(ValueType type);

// One metadata value, in place. Its bytes have been checked: walking it cannot pass their end.
struct Value {
  ValueType type = ValueType::u8;
  ValueType element = ValueType::u8;  // of an array
  uint64_t count = 1;                 // of an array's elements
  Bytes payload = {};                 // the value, or an array's elements, as the file has them; strings with lengths

  bool is_array() const { return type == ValueType::array; }
  // "u32", "array of 3 strings"
  std::string describe() const;
};

// The items of an array of arrays. E0302 when it is none.
Result<std::vector<Value>> items(const Value& array);

// Bytes that a tensor takes. E0313 when its shape is impossible, or its rows do not divide into the type's blocks.
Result<uint64_t> byte_size(std::string_view tensor, GgmlType type, const Dims& shape);

struct TensorInfo {
  std::string_view name;
  GgmlType type;
  Dims shape;       // outermost first: the reverse of the file's order
  uint64_t offset;  // in the file
  uint64_t bytes;
};

class File {
 public:
  static Result<File> open(const std::string& path);
  // Views `file`, kept alive by `keep`. E0103 when something passes the end; E0104 when the bytes are no GGUF, or of an
  // unknown version, byte order or type; E0203 for names given twice; E0313 for impossible shapes.
  static Result<File> parse(Bytes file, std::shared_ptr<const void> keep = nullptr);

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  size_t size() const { return file_.size(); }

  // In the file's order.
  const std::vector<std::pair<std::string_view, Value>>& metadata() const { return metadata_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // nullptr when there is none.
  const Value* find(std::string_view key) const;
  const TensorInfo* find_tensor(std::string_view name) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // A value by key: E0202 when it is missing, E0302 when it has another type. Integers may be of any width (E0505 when
  // an u64 passes 2^63), reals may be integers. Lists may be stored as one scalar.
  Result<int64_t> integer(std::string_view key) const;
  Result<double> real(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string_view> string(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key) const;  // booleans are 0 and 1
  Result<std::vector<float>> reals(std::string_view key) const;
  Result<std::vector<std::string_view>> strings(std::string_view key) const;
  // `otherwise` when it is missing; a wrong type is still an error.
  Result<int64_t> integer(std::string_view key, int64_t otherwise) const;
  Result<double> real(std::string_view key, double otherwise) const;
  Result<bool> boolean(std::string_view key, bool otherwise) const;
  Result<std::string_view> string(std::string_view key, std::string_view otherwise) const;

  // The tensor in place, sharing the mapping. E0402 when Tessera does not compute on its type.
  Result<Tensor> tensor(const TensorInfo& info) const;
  Bytes bytes(const TensorInfo& info) const { return file_.subspan(info.offset, info.bytes); }

 private:
  friend class Parser;
  File() = default;
  Result<const Value*> need(std::string_view key) const;

  Bytes file_;
  std::shared_ptr<const void> keep_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 0;
  std::vector<std::pair<std::string_view, Value>> metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> keys_, names_;  // indices of entries and tensors, by name
};

// Gathers metadata and tensors, then writes a version 3 file. Setting a key again replaces its value.
class Writer {
 public:
  void set_u32(std::string_view key, uint32_t value);
  void set_i64(std::string_view key, int64_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set_i32s(std::string_view key, std::span<const int32_t> values);
  void set_f32s(std::string_view key, std::span<const float> values);
  void set(std::string_view key, const Value& value);  // as another file has it

  // `data` gives the tensor's bytes when its turn to be written comes: no more than one is held at a time.
  using Data = std::function<Result<Tensor>()>;
  void add(std::string name, GgmlType type, Dims shape, Data data);

  // E0203 for two tensors of one name, E0313 when a row does not divide into blocks, E0312 when the data has another
  // size than declared, and what AtomicFile gives. `alignment` is a power of two. What `check` says of the whole file,
  // which it gets under another name, decides whether it comes to stand at `path`.
  using Check = std::function<Status(const std::string& path)>;
  Status write(const std::string& path, uint32_t alignment = 32, const Check& check = {}) const;
  // The bytes before the tensors' data: all of a file that has none. E0203 and E0313 as write().
  Result<std::string> head(uint32_t alignment = 32) const;

 private:
  struct Entry {
    std::string key;
    std::string encoded;  // type and value
  };
  struct Item {
    std::string name;
    GgmlType type;
    Dims shape;
    Data data;
  };
  std::string& entry(std::string_view key, ValueType type);
  std::vector<Entry> entries_;
  std::vector<Item> items_;
};

}  // namespace tessera::gguf
