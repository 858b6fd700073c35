#include "formats/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "base/file.h"
#include "base/result.h"
#include "base/strings.h"
#include "tensor/scalar.h"

namespace tessera {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxNpyHeader = size_t{1} << 20;  // bytes; NumPy writes some hundred
constexpr size_t kMaxNpyRank = 64;                 // NumPy's own limit
constexpr size_t kDataAlignment = 64;              // of the data in files that NumPy writes

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  Dims shape;
  bool has_descr = false, has_order = false, has_shape = false;
};

// Reads the header: a Python dictionary of a string, a bool and a tuple of integers.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}
  Result<NpyHeader> parse();

 private:
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }
  bool take(std::string_view token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  auto bad(std::string_view what) const {
    return fail(Code::file_malformed, "the .npy header has no {} at '{}'", what, rest_.substr(0, 20));
  }
  Result<std::string_view> string();
  Result<Dims> tuple();
  Status value(std::string_view key, NpyHeader& out);

  std::string_view rest_;
};

Result<std::string_view> HeaderParser::string() {
  skip_space();
  if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return bad("string");
  const size_t end = rest_.find(rest_[0], 1);
  if (end == std::string_view::npos) return bad("end of the string");
  std::string_view text = rest_.substr(1, end - 1);
  rest_.remove_prefix(end + 1);
  return text;
}

Result<Dims> HeaderParser::tuple() {
  Dims dims;
  if (!take("(")) return bad("shape");
  while (!take(")")) {
    skip_space();
    int64_t size = 0;
    auto [stop, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
    if (error != std::errc()) return bad("size");
    rest_.remove_prefix(static_cast<size_t>(stop - rest_.data()));
    take("L");  // Python 2's long integers
    dims.push_back(size);
    if (dims.size() > kMaxNpyRank)
      return fail(Code::shape_invalid, "the .npy array has more than {} axes", kMaxNpyRank);
    if (take(")")) return dims;
    if (!take(",")) return bad("comma");
  }
  return dims;
}

Status HeaderParser::value(std::string_view key, NpyHeader& out) {
  if (key == "descr") {
    if (take("[")) return fail(Code::unsupported_feature, "the .npy array has fields of several types");
    TESSERA_ASSIGN(out.descr, string());
    out.has_descr = true;
  } else if (key == "fortran_order") {
    out.has_order = true;
    out.fortran_order = take("True");
    if (!out.fortran_order && !take("False")) return bad("True or False");
  } else if (key == "shape") {
    TESSERA_ASSIGN(out.shape, tuple());
    out.has_shape = true;
  } else {
    return fail(Code::file_malformed, "the .npy header has an unknown key '{}'", key.substr(0, 20));
  }
  return {};
}

Result<NpyHeader> HeaderParser::parse() {
  NpyHeader header;
  if (!take("{")) return bad("dictionary");
  while (!take("}")) {
    TESSERA_ASSIGN(std::string_view key, string());
    if (!take(":")) return bad("colon");
    TESSERA_TRY(value(key, header));
    if (take("}")) break;
    if (!take(",")) return bad("comma");
  }
  skip_space();
  if (!rest_.empty()) return bad("end");
  if (!header.has_descr || !header.has_order || !header.has_shape)
    return fail(Code::file_malformed, "the .npy header lacks descr, fortran_order or shape");
  return header;
}

// How the elements of a file become those of a tensor.
struct Encoding {
  DType dtype;        // of the tensor
  size_t size;        // bytes of an element in the file
  bool swap = false;  // big-endian
  DType stored;       // how to read an element of the file, where it is not as the tensor stores it
};

Result<Encoding> encoding_of(std::string_view descr, std::optional<DType> expected) {
  auto unsupported = [&](std::string_view why) {
    return fail(Code::unsupported_feature, "the .npy array is of type '{}': {}", descr.substr(0, 20), why);
  };
  if (descr.size() < 2) return fail(Code::file_malformed, "the .npy array's type is '{}'", descr);
  const bool has_order = std::string_view("<>|=").find(descr[0]) != std::string_view::npos;
  const char kind = descr[has_order ? 1 : 0];
  const std::string_view digits = descr.substr(has_order ? 2 : 1);
  if (kind == 'O') return unsupported("pickled Python objects are not read");
  size_t size = 0;
  auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (error != std::errc() || stop != digits.data() + digits.size()) return unsupported("not one that Tessera reads");
  const bool swap = descr[0] == '>' && size > 1;

  if (kind == 'V' && size == 2) return Encoding{DType::bf16, 2, swap, DType::bf16};
  if (kind == 'V' && size == 1) {
    if (!expected || bits(*expected) > 8 || bits(*expected) == 0)
      return unsupported("what its bytes mean is known only where a type of at most 8 bits is wanted");
    const DType stored = bits(*expected) == 8 ? *expected : is_signed_int(*expected) ? DType::i8 : DType::u8;
    return Encoding{*expected, 1, false, stored};
  }
  struct Native {
    char kind;
    size_t size;
    DType dtype;
  };
  constexpr Native kNative[] = {{'f', 8, DType::f64}, {'f', 4, DType::f32}, {'f', 2, DType::f16},
                                {'i', 8, DType::i64}, {'i', 4, DType::i32}, {'i', 2, DType::i16},
                                {'i', 1, DType::i8},  {'u', 8, DType::u64}, {'u', 4, DType::u32},
                                {'u', 2, DType::u16}, {'u', 1, DType::u8},  {'b', 1, DType::boolean}};
  for (const Native& n : kNative) {
    if (n.kind != kind || n.size != size) continue;
    const bool pack =
        expected && is_int(*expected) && bits(*expected) < 8 && (n.dtype == DType::i8 || n.dtype == DType::u8);
    return Encoding{pack ? *expected : n.dtype, size, swap, n.dtype};
  }
  return unsupported("not one that Tessera reads");
}

// The elements of a column-major file, in row-major order. `out` has room for all.
void to_row_major(const Dims& shape, size_t size, const std::byte* data, std::byte* out) {
  const int rank = static_cast<int>(shape.size());
  std::vector<int64_t> at(shape.size(), 0), stride(shape.size(), 1);
  for (int i = 1; i < rank; ++i) stride[i] = stride[i - 1] * shape[i - 1];
  for (int64_t from = 0;;) {
    std::memcpy(out, data + static_cast<size_t>(from) * size, size);
    out += size;
    int axis = rank - 1;
    for (; axis >= 0; --axis) {
      from += stride[axis];
      if (++at[axis] < shape[axis]) break;
      from -= stride[axis] * shape[axis];
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}

void swap_bytes(std::byte* data, int64_t count, size_t size) {
  for (int64_t i = 0; i < count; ++i)
    std::reverse(data + static_cast<size_t>(i) * size, data + static_cast<size_t>(i + 1) * size);
}

// Packs elements that the file holds one a byte.
Result<Tensor> pack(const Encoding& encoding, const Dims& shape, const std::byte* data) {
  TESSERA_ASSIGN(Tensor tensor, Tensor::make(encoding.dtype, shape));
  // Codes (of f4e2m1, or raw bytes) are stored as the integer of as many bits.
  const DType target = is_int(encoding.dtype) ? encoding.dtype : DType::u4;
  for (int64_t i = 0; i < tensor.count(); ++i) {
    const Int128 value = decode_int(encoding.stored, data, i);
    encode_int(target, tensor.mutable_data(), i, value);
    if (decode_int(target, tensor.data(), i) != value)
      return fail(Code::value_invalid, "element {} of the .npy array is {}, which {} cannot hold", i,
                  static_cast<int64_t>(value), name(encoding.dtype));
  }
  return tensor;
}

// Splits the file into header text and data.
Status split(std::span<const std::byte> file, std::string_view& header, std::span<const std::byte>& data) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic)) return fail(Code::file_malformed, "the file does not start as a .npy file does");
  const size_t prefix = kMagic.size() + 2;
  if (text.size() < prefix + 4) return fail(Code::file_truncated, "the .npy file ends in its header");
  const int version = static_cast<unsigned char>(text[kMagic.size()]);
  if (version < 1 || version > 3) return fail(Code::file_malformed, "the .npy file is of unknown version {}", version);
  const size_t length_bytes = version == 1 ? 2 : 4;
  uint32_t length = 0;
  std::memcpy(&length, text.data() + prefix, length_bytes);
  if (length > kMaxNpyHeader)
    return fail(Code::file_malformed, "the .npy header has {} bytes, more than {}", length, kMaxNpyHeader);
  if (length > text.size() - prefix - length_bytes)
    return fail(Code::file_truncated, "the .npy file ends in its header");
  header = text.substr(prefix + length_bytes, length);
  data = file.subspan(prefix + length_bytes + length);
  return {};
}

// What the file's header says of the tensor's type.
std::string descr_of(DType dtype) {
  if (dtype == DType::bf16) return "|V2";
  if (dtype == DType::boolean) return "|b1";
  if (is_float(dtype) && bits(dtype) <= 8) return "|V1";
  const char kind = is_float(dtype) ? 'f' : is_signed_int(dtype) ? 'i' : 'u';
  const int size = std::max(bits(dtype) / 8, 1);
  return fmt::format("{}{}{}", size == 1 ? '|' : '<', kind, size);
}

std::string header_of(const Tensor& tensor) {
  std::string shape = fmt::format("{}", joined(tensor.shape(), ", "));
  if (tensor.rank() == 1) shape += ",";
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr_of(tensor.dtype()), shape);
  const size_t prefix = kMagic.size() + 4;
  const size_t total = (prefix + text.size() + 1 + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  text.append(total - prefix - text.size() - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace

Result<Tensor> parse_npy(std::span<const std::byte> file, std::shared_ptr<const void> keep,
                         std::optional<DType> expected) {
  std::string_view text;
  std::span<const std::byte> data;
  TESSERA_TRY(split(file, text, data));
  TESSERA_ASSIGN(NpyHeader header, HeaderParser(text).parse());
  TESSERA_ASSIGN(Encoding encoding, encoding_of(header.descr, expected));
  TESSERA_ASSIGN(int64_t count, element_count(header.shape));
  const Int128 needed = static_cast<Int128>(count) * static_cast<Int128>(encoding.size);
  if (needed != static_cast<Int128>(data.size()))
    return fail(needed > static_cast<Int128>(data.size()) ? Code::file_truncated : Code::file_malformed,
                "the .npy array of type '{}' and shape ({}) has {} bytes of data", header.descr,
                joined(header.shape, ", "), data.size());

  const bool packed = bits(encoding.dtype) < 8;
  const bool reorder = header.fortran_order && header.shape.size() > 1 && count > 0;
  const bool aligned = reinterpret_cast<uintptr_t>(data.data()) % encoding.size == 0;
  const bool booleans_clean = encoding.dtype != DType::boolean ||
                              std::all_of(data.begin(), data.end(), [](std::byte b) { return b <= std::byte{1}; });
  if (!packed && !reorder && !encoding.swap && aligned && booleans_clean)
    return Tensor::borrow(encoding.dtype, std::move(header.shape), data.data(), std::move(keep));

  const DType flat_type = packed ? DType::u8 : encoding.dtype;
  TESSERA_ASSIGN(Tensor flat, Tensor::make(flat_type, header.shape));
  std::byte* out = flat.as<std::byte>();
  if (reorder) {
    to_row_major(header.shape, encoding.size, data.data(), out);
  } else if (count > 0) {
    std::memcpy(out, data.data(), data.size());
  }
  if (encoding.swap) swap_bytes(out, count, encoding.size);
  if (!booleans_clean) std::transform(out, out + count, out, [](std::byte b) { return std::byte{b != std::byte{0}}; });
  return packed ? pack(encoding, header.shape, out) : flat;
}

Result<Tensor> read_npy(const std::string& path, std::optional<DType> expected) {
  TESSERA_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  Result<Tensor> tensor = parse_npy(file->bytes(), file, expected);
  if (!tensor) return tl::unexpected(std::move(tensor).error().within(fmt::format("reading '{}'", path)));
  return tensor;
}

Status write_npy(const std::string& path, const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  if (dtype == DType::string || is_block(dtype))
    return fail(Code::unsupported_feature, "'{}' cannot be written: .npy files of {} are not supported", path,
                dtype == DType::string ? "strings" : "quantized weights");
  TESSERA_ASSIGN(AtomicFile file, AtomicFile::create(path));
  TESSERA_TRY(file.write(header_of(tensor)));
  if (bits(dtype) >= 8) {
    TESSERA_TRY(file.write(std::span(static_cast<const std::byte*>(tensor.data()), tensor.bytes())));
    return file.commit();
  }
  // One element a byte: a number, or f4e2m1's code.
  const DType source = is_int(dtype) ? dtype : DType::u4;
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.count()));
  for (int64_t i = 0; i < tensor.count(); ++i)
    encode_int(DType::u8, bytes.data(), i, decode_int(source, tensor.data(), i));
  TESSERA_TRY(file.write(std::span<const std::byte>(bytes)));
  return file.commit();
}

}  // namespace tessera
