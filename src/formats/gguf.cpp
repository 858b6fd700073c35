#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/file.h"
#include "base/result.h"

namespace tessera::gguf {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMaxAlignment = 1u << 20;
constexpr uint32_t kMaxAxes = 8;  // ggml itself has four
constexpr int kMaxNesting = 8;    // arrays inside each other; real files have one

constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                       "bool", "string", "array", "u64", "i64", "f64"};
// Bytes of a scalar; 0 for strings and arrays, which say their own.
constexpr uint8_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// A name from the file, as messages show it: real ones are short.
std::string_view shown(std::string_view text) { return text.substr(0, 100); }

size_t size_of(ValueType type) { return kSizes[static_cast<uint32_t>(type)]; }

// Takes values from the front of bytes. Every position in errors counts from the start of the file.
class Cursor {
 public:
  Cursor(Bytes bytes, size_t base = 0) : bytes_(bytes), base_(base) {}
  size_t position() const { return base_ + at_; }
  size_t left() const { return bytes_.size() - at_; }
  bool at_end() const { return left() == 0; }

  template <class T>
  Result<T> number(std::string_view what) {
    if (left() < sizeof(T)) return past_end(what, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  Result<Bytes> take(std::string_view what, uint64_t size) {
    if (size > left()) return past_end(what, size);
    const Bytes taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }
  Result<std::string_view> string(std::string_view what) {
    TESSERA_ASSIGN(const uint64_t size, number<uint64_t>(what));
    TESSERA_ASSIGN(const Bytes text, take(what, size));
    return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
  }
  Result<ValueType> type(std::string_view what) {
    const size_t at = position();
    TESSERA_ASSIGN(const uint32_t number_of_type, number<uint32_t>(what));
    if (number_of_type >= std::size(kNames))
      return fail(Code::file_malformed, "{} at byte {} has type {}, and the format has types 0 to {}", what, at,
                  number_of_type, std::size(kNames) - 1);
    return static_cast<ValueType>(number_of_type);
  }
  // A value of a type that has been read; walks over all of it.
  Result<Value> value(ValueType type, std::string_view what, int nesting = 0) {
    Value value;
    value.type = type;
    if (type == ValueType::array) {
      if (nesting == kMaxNesting)
        return fail(Code::file_malformed, "{} has arrays nested deeper than {} at byte {}", what, kMaxNesting,
                    position());
      TESSERA_ASSIGN(value.element, this->type(what));
      TESSERA_ASSIGN(value.count, number<uint64_t>(what));
    } else {
      value.element = type;
    }
    const size_t start = at_;
    if (const size_t size = size_of(value.element); size != 0) {
      if (value.count > left() / size)
        return fail(Code::file_truncated, "{} has {} elements of {} bytes at byte {}, but the file has {} bytes left",
                    what, value.count, size, position(), left());
      at_ += size * value.count;
    } else {
      // Each takes eight bytes at least, so a count that lies runs into the end.
      for (uint64_t i = 0; i < value.count; ++i) {
        if (value.element == ValueType::string) {
          TESSERA_TRY(string(what));
        } else {
          TESSERA_TRY(this->value(ValueType::array, what, nesting + 1));
        }
      }
    }
    value.payload = bytes_.subspan(start, at_ - start);
    return value;
  }

 private:
  tl::unexpected<Error> past_end(std::string_view what, uint64_t size) const {
    return fail(Code::file_truncated, "{} takes {} bytes at byte {}, but the file has {} bytes left", what, size,
                position(), left());
  }

  Bytes bytes_;
  size_t base_;
  size_t at_ = 0;
};

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// One element of an array, or a scalar. False when it is no integer, or passes 2^63.
bool read_integer(ValueType type, const std::byte* at, int64_t& out) {
  switch (type) {
    case ValueType::u8:
      return out = load<uint8_t>(at), true;
    case ValueType::i8:
      return out = load<int8_t>(at), true;
    case ValueType::u16:
      return out = load<uint16_t>(at), true;
    case ValueType::i16:
      return out = load<int16_t>(at), true;
    case ValueType::u32:
      return out = load<uint32_t>(at), true;
    case ValueType::i32:
      return out = load<int32_t>(at), true;
    case ValueType::boolean:
      return out = load<uint8_t>(at) != 0, true;
    case ValueType::u64:
    case ValueType::i64:
      out = load<int64_t>(at);
      return type == ValueType::i64 || out >= 0;
    default:
      return false;
  }
}

bool read_real(ValueType type, const std::byte* at, double& out) {
  if (type == ValueType::f32) return out = static_cast<double>(load<float>(at)), true;
  if (type == ValueType::f64) return out = load<double>(at), true;
  int64_t integer;
  if (type == ValueType::boolean || !read_integer(type, at, integer)) return false;
  out = static_cast<double>(integer);
  return true;
}

tl::unexpected<Error> wrong_type(std::string_view key, const Value& value, std::string_view wanted) {
  return fail(Code::dtype_mismatch, "metadata '{}' is {}, and {} is needed", shown(key), value.describe(), wanted);
}

std::string_view key_of(const std::pair<std::string_view, Value>& entry) { return entry.first; }
std::string_view key_of(const TensorInfo& info) { return info.name; }

// The indices of `entries` by name. E0203 for a name given twice.
template <class Entry>
Status index(const std::vector<Entry>& entries, std::string_view what, std::vector<uint32_t>& order) {
  order.resize(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return key_of(entries[a]) < key_of(entries[b]); });
  for (size_t i = 1; i < order.size(); ++i)
    if (key_of(entries[order[i - 1]]) == key_of(entries[order[i]]))
      return fail(Code::duplicate_name, "{} '{}' stands in the file twice", what, shown(key_of(entries[order[i]])));
  return {};
}

template <class Entry>
const Entry* find_by_name(const std::vector<Entry>& entries, const std::vector<uint32_t>& order,
                          std::string_view wanted) {
  const auto at = std::lower_bound(order.begin(), order.end(), wanted,
                                   [&](uint32_t a, std::string_view b) { return key_of(entries[a]) < b; });
  return at != order.end() && key_of(entries[*at]) == wanted ? &entries[*at] : nullptr;
}

uint64_t align_up(uint64_t at, uint64_t alignment) { return (at + alignment - 1) / alignment * alignment; }

}  // namespace

std::string_view name(ValueType type) { return kNames[static_cast<uint32_t>(type)]; }

std::string Value::describe() const {
  if (!is_array()) return std::string(gguf::name(type));
  return fmt::format("array of {} {}", count, gguf::name(element));
}

Result<std::vector<Value>> items(const Value& array) {
  if (!array.is_array() || array.element != ValueType::array)
    return fail(Code::dtype_mismatch, "the value is {}, and an array of arrays is needed", array.describe());
  std::vector<Value> values;
  Cursor cursor(array.payload);
  while (!cursor.at_end()) {
    TESSERA_ASSIGN(values.emplace_back(), cursor.value(ValueType::array, "an array's item"));
  }
  return values;
}

Result<uint64_t> byte_size(std::string_view tensor, GgmlType type, const Dims& shape) {
  const GgmlTypeInfo& known = gguf::describe(type);
  Result<int64_t> count = element_count(shape);
  if (!count)
    return tl::unexpected<Error>(std::move(count).error().within(fmt::format("reading tensor '{}'", shown(tensor))));
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % known.elements != 0)
    return fail(Code::shape_invalid, "tensor '{}' has rows of {} elements, and {} blocks have {}", shown(tensor), row,
                known.name, known.elements);
  uint64_t bytes;
  if (__builtin_mul_overflow(static_cast<uint64_t>(*count) / known.elements, uint64_t{known.bytes}, &bytes))
    return fail(Code::shape_invalid, "tensor '{}' has {} elements of {}, more bytes than can be counted", shown(tensor),
                *count, known.name);
  return bytes;
}

// Reads a file's head into a File.
class Parser {
 public:
  explicit Parser(Bytes file) : cursor_(file) { file_.file_ = file; }

  Result<File> parse() {
    TESSERA_ASSIGN(const Bytes magic, cursor_.take("the magic number", kMagic.size()));
    if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0)
      return fail(Code::file_malformed, "the file does not start with '{}'", kMagic);
    TESSERA_ASSIGN(file_.version_, cursor_.number<uint32_t>("the version"));
    if (file_.version_ != 0 && (file_.version_ & 0xffff) == 0)
      return fail(Code::file_malformed, "the file is big-endian, and only little-endian GGUF files are read");
    if (file_.version_ != 2 && file_.version_ != 3)
      return fail(Code::file_malformed, "the file is GGUF version {}, and versions 2 and 3 are read", file_.version_);
    TESSERA_ASSIGN(const uint64_t tensors, cursor_.number<uint64_t>("the number of tensors"));
    TESSERA_ASSIGN(const uint64_t entries, cursor_.number<uint64_t>("the number of metadata entries"));
    // Each takes some bytes, so a count that lies runs into the end before it costs anything.
    for (uint64_t i = 0; i < entries; ++i) TESSERA_TRY(parse_entry(i));
    TESSERA_TRY(index(file_.metadata_, "metadata", file_.keys_));
    TESSERA_TRY(find_alignment());
    for (uint64_t i = 0; i < tensors; ++i) TESSERA_TRY(parse_tensor(i));
    TESSERA_TRY(index(file_.tensors_, "tensor", file_.names_));
    TESSERA_TRY(place_tensors());
    return std::move(file_);
  }

 private:
  Status parse_entry(uint64_t index) {
    TESSERA_ASSIGN(const std::string_view key, cursor_.string(fmt::format("the key of metadata entry {}", index)));
    const std::string what = fmt::format("metadata '{}'", shown(key));
    TESSERA_ASSIGN(const ValueType type, cursor_.type(what));
    TESSERA_ASSIGN(const Value value, cursor_.value(type, what));
    file_.metadata_.emplace_back(key, value);
    return {};
  }

  Status find_alignment() {
    TESSERA_ASSIGN(const int64_t alignment, file_.integer("general.alignment", kDefaultAlignment));
    if (alignment <= 0 || alignment > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(alignment)))
      return fail(Code::file_malformed, "general.alignment is {}, and must be a power of two up to {}", alignment,
                  kMaxAlignment);
    file_.alignment_ = static_cast<uint64_t>(alignment);
    return {};
  }

  Status parse_tensor(uint64_t index) {
    TensorInfo info;
    TESSERA_ASSIGN(info.name, cursor_.string(fmt::format("the name of tensor {}", index)));
    const std::string what = fmt::format("tensor '{}'", shown(info.name));
    TESSERA_ASSIGN(const uint32_t axes, cursor_.number<uint32_t>(what));
    if (axes > kMaxAxes)
      return fail(Code::file_malformed, "{} has {} axes, and at most {} are read", what, axes, kMaxAxes);
    for (uint32_t a = 0; a < axes; ++a) {
      TESSERA_ASSIGN(const uint64_t size, cursor_.number<uint64_t>(what));
      if (size > uint64_t{1} << 62) return fail(Code::shape_invalid, "{} has {} elements along an axis", what, size);
      info.shape.insert(info.shape.begin(), static_cast<int64_t>(size));
    }
    TESSERA_ASSIGN(const uint32_t type, cursor_.number<uint32_t>(what));
    const GgmlTypeInfo* known = find_type(type);
    if (known == nullptr) return fail(Code::file_malformed, "{} has type {}, which is not known", what, type);
    info.type = known->type;
    TESSERA_ASSIGN(info.offset, cursor_.number<uint64_t>(what));
    TESSERA_ASSIGN(info.bytes, byte_size(info.name, info.type, info.shape));
    file_.tensors_.push_back(std::move(info));
    return {};
  }

  // Makes offsets the file's, and checks that no tensor passes the end or overlaps another.
  Status place_tensors() {
    const uint64_t size = file_.file_.size();
    const uint64_t start = align_up(cursor_.position(), file_.alignment_);
    std::vector<const TensorInfo*> order;
    for (TensorInfo& info : file_.tensors_) {
      if (info.offset % file_.alignment_ != 0)
        return fail(Code::file_malformed, "tensor '{}' lies at {}, which is no multiple of the alignment {}",
                    shown(info.name), info.offset, file_.alignment_);
      uint64_t end;
      if (start > size || __builtin_add_overflow(info.offset, info.bytes, &end) || end > size - start)
        return fail(Code::file_truncated, "tensor '{}' takes {} bytes at {} of the data, which has {}",
                    shown(info.name), info.bytes, info.offset, start > size ? 0 : size - start);
      info.offset += start;
      if (info.bytes > 0) order.push_back(&info);
    }
    std::sort(order.begin(), order.end(),
              [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); ++i) {
      const TensorInfo &before = *order[i - 1], &after = *order[i];
      if (before.offset + before.bytes > after.offset)
        return fail(Code::file_malformed,
                    "tensors '{}' and '{}' overlap: the first ends at byte {}, the second starts at {}",
                    shown(before.name), shown(after.name), before.offset + before.bytes, after.offset);
    }
    return {};
  }

  Cursor cursor_;
  File file_;
};

Result<File> File::open(const std::string& path) {
  TESSERA_ASSIGN(const std::shared_ptr<const MappedFile> mapped, MappedFile::open(path));
  Result<File> file = parse(mapped->bytes(), mapped);
  if (!file) return tl::unexpected<Error>(std::move(file).error().within(fmt::format("reading '{}'", path)));
  return file;
}

Result<File> File::parse(Bytes file, std::shared_ptr<const void> keep) {
  TESSERA_ASSIGN(File parsed, Parser(file).parse());
  parsed.keep_ = std::move(keep);
  return parsed;
}

const Value* File::find(std::string_view key) const {
  const auto* entry = find_by_name(metadata_, keys_, key);
  return entry == nullptr ? nullptr : &entry->second;
}

const TensorInfo* File::find_tensor(std::string_view name) const { return find_by_name(tensors_, names_, name); }

Result<const Value*> File::need(std::string_view key) const {
  if (const Value* value = find(key)) return value;
  return fail(Code::unknown_name, "the file's metadata has no '{}'", key);
}

Result<int64_t> File::integer(std::string_view key) const {
  TESSERA_ASSIGN(const Value* value, need(key));
  int64_t out;
  if (value->is_array() || value->type == ValueType::boolean || value->type > ValueType::i64)
    return wrong_type(key, *value, "an integer");
  if (value->type == ValueType::u64 && load<int64_t>(value->payload.data()) < 0)
    return fail(Code::value_invalid, "metadata '{}' is {}, past 2^63", key, load<uint64_t>(value->payload.data()));
  if (!read_integer(value->type, value->payload.data(), out)) return wrong_type(key, *value, "an integer");
  return out;
}

Result<double> File::real(std::string_view key) const {
  TESSERA_ASSIGN(const Value* value, need(key));
  double out;
  if (value->is_array() || !read_real(value->type, value->payload.data(), out))
    return wrong_type(key, *value, "a number");
  return out;
}

Result<bool> File::boolean(std::string_view key) const {
  TESSERA_ASSIGN(const Value* value, need(key));
  if (value->type != ValueType::boolean) return wrong_type(key, *value, "a bool");
  return load<uint8_t>(value->payload.data()) != 0;
}

Result<std::string_view> File::string(std::string_view key) const {
  TESSERA_ASSIGN(const Value* value, need(key));
  if (value->type != ValueType::string) return wrong_type(key, *value, "a string");
  return Cursor(value->payload).string(key);
}

Result<std::vector<int64_t>> File::integers(std::string_view key) const {
  TESSERA_ASSIGN(const Value* value, need(key));
  std::vector<int64_t> out;
  const size_t step = size_of(value->element);
  if (step == 0) return wrong_type(key, *value, "integers");
  for (size_t at = 0; at < value->payload.size(); at += step)
    if (!read_integer(value->element, value->payload.data() + at, out.emplace_back()))
      return wrong_type(key, *value, "integers below 2^63");
  return out;
}

Result<std::vector<float>> File::reals(std::string_view key) const {
  TESSERA_ASSIGN(const Value* value, need(key));
  std::vector<float> out;
  const size_t step = size_of(value->element);
  if (step == 0) return wrong_type(key, *value, "numbers");
  for (size_t at = 0; at < value->payload.size(); at += step) {
    double number;
    if (!read_real(value->element, value->payload.data() + at, number)) return wrong_type(key, *value, "numbers");
    out.push_back(static_cast<float>(number));
  }
  return out;
}

Result<std::vector<std::string_view>> File::strings(std::string_view key) const {
  TESSERA_ASSIGN(const Value* value, need(key));
  if (value->element != ValueType::string) return wrong_type(key, *value, "strings");
  std::vector<std::string_view> out;
  for (Cursor cursor(value->payload); !cursor.at_end();) {
    TESSERA_ASSIGN(out.emplace_back(), cursor.string(key));
  }
  return out;
}

Result<int64_t> File::integer(std::string_view key, int64_t otherwise) const {
  return has(key) ? integer(key) : otherwise;
}
Result<double> File::real(std::string_view key, double otherwise) const { return has(key) ? real(key) : otherwise; }
Result<bool> File::boolean(std::string_view key, bool otherwise) const { return has(key) ? boolean(key) : otherwise; }
Result<std::string_view> File::string(std::string_view key, std::string_view otherwise) const {
  return has(key) ? string(key) : otherwise;
}

Result<Tensor> File::tensor(const TensorInfo& info) const {
  const std::optional<DType> dtype = to_dtype(info.type);
  if (!dtype)
    return fail(Code::unsupported_feature, "tensor '{}' has type {}, on which Tessera does not compute",
                shown(info.name), gguf::describe(info.type).name);
  return Tensor::borrow(*dtype, info.shape, bytes(info).data(), keep_);
}

}  // namespace tessera::gguf
