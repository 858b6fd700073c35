#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "base/file.h"
#include "base/result.h"
#include "formats/gguf.h"

namespace tessera::gguf {
namespace {

constexpr uint32_t kVersion = 3;

template <class T>
void append(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}
void append_string(std::string& out, std::string_view text) {
  append<uint64_t>(out, text.size());
  out.append(text);
}
void append_array(std::string& out, ValueType element, uint64_t count) {
  append(out, static_cast<uint32_t>(element));
  append(out, count);
}

// Zeros from `position` to the next multiple of `alignment`.
std::string padding(uint64_t position, uint64_t alignment) {
  return std::string((alignment - position % alignment) % alignment, '\0');
}

}  // namespace

std::string& Writer::entry(std::string_view key, ValueType type) {
  auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (found == entries_.end()) found = entries_.insert(entries_.end(), {std::string(key), {}});
  found->encoded.clear();
  append(found->encoded, static_cast<uint32_t>(type));
  return found->encoded;
}

void Writer::set_u32(std::string_view key, uint32_t value) { append(entry(key, ValueType::u32), value); }
void Writer::set_i64(std::string_view key, int64_t value) { append(entry(key, ValueType::i64), value); }
void Writer::set_f32(std::string_view key, float value) { append(entry(key, ValueType::f32), value); }
void Writer::set_bool(std::string_view key, bool value) { append<uint8_t>(entry(key, ValueType::boolean), value); }
void Writer::set_string(std::string_view key, std::string_view value) {
  append_string(entry(key, ValueType::string), value);
}
void Writer::set_strings(std::string_view key, std::span<const std::string> values) {
  std::string& out = entry(key, ValueType::array);
  append_array(out, ValueType::string, values.size());
  for (const std::string& value : values) append_string(out, value);
}
void Writer::set_i32s(std::string_view key, std::span<const int32_t> values) {
  std::string& out = entry(key, ValueType::array);
  append_array(out, ValueType::i32, values.size());
  for (int32_t value : values) append(out, value);
}
void Writer::set_f32s(std::string_view key, std::span<const float> values) {
  std::string& out = entry(key, ValueType::array);
  append_array(out, ValueType::f32, values.size());
  for (float value : values) append(out, value);
}
void Writer::set(std::string_view key, const Value& value) {
  std::string& out = entry(key, value.type);
  if (value.is_array()) append_array(out, value.element, value.count);
  out.append(reinterpret_cast<const char*>(value.payload.data()), value.payload.size());
}

void Writer::add(std::string name, GgmlType type, Dims shape, Data data) {
  items_.push_back({std::move(name), type, std::move(shape), std::move(data)});
}

Result<std::string> Writer::head(uint32_t alignment) const {
  TESSERA_CHECK(std::has_single_bit(alignment));
  Writer with_alignment;
  with_alignment.entries_ = entries_;
  if (alignment != 32) with_alignment.set_u32("general.alignment", alignment);
  std::string head = "GGUF";
  append(head, kVersion);
  append<uint64_t>(head, items_.size());
  append<uint64_t>(head, with_alignment.entries_.size());
  for (const Entry& e : with_alignment.entries_) {
    append_string(head, e.key);
    head += e.encoded;
  }
  std::unordered_set<std::string_view> names;
  uint64_t offset = 0;
  for (const Item& item : items_) {
    if (!names.insert(item.name).second)
      return fail(Code::duplicate_name, "tensor '{}' would stand in the file twice", item.name);
    TESSERA_ASSIGN(const uint64_t bytes, byte_size(item.name, item.type, item.shape));
    append_string(head, item.name);
    append(head, static_cast<uint32_t>(item.shape.size()));
    for (size_t a = item.shape.size(); a-- > 0;) append(head, static_cast<uint64_t>(item.shape[a]));
    append(head, static_cast<uint32_t>(item.type));
    append(head, offset);
    offset += (bytes + alignment - 1) / alignment * alignment;
  }
  return head + padding(head.size(), alignment);
}

Status Writer::write(const std::string& path, uint32_t alignment, const Check& check) const {
  TESSERA_ASSIGN(const std::string begin, head(alignment));
  TESSERA_ASSIGN(AtomicFile file, AtomicFile::create(path));
  TESSERA_TRY(file.write(begin));
  for (const Item& item : items_) {
    TESSERA_ASSIGN(const uint64_t bytes, byte_size(item.name, item.type, item.shape));
    TESSERA_ASSIGN(const Tensor tensor, item.data());
    if (tensor.bytes() != bytes)
      return fail(Code::shape_mismatch, "tensor '{}' has {} bytes of data, and its type and shape take {}", item.name,
                  tensor.bytes(), bytes);
    TESSERA_TRY(file.write(Bytes(static_cast<const std::byte*>(tensor.data()), tensor.bytes())));
    TESSERA_TRY(file.write(padding(file.position(), alignment)));
  }
  if (check) {
    TESSERA_ASSIGN(const std::string written, file.readable());
    TESSERA_TRY(check(written));
  }
  return file.commit();
}

}  // namespace tessera::gguf
