#include "ir/literal.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>

#include "base/result.h"
#include "base/utf8.h"
#include "tensor/scalar.h"

namespace tessera::ir {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

template <class T>
bool parse_whole(std::string_view text, T& out, auto... base) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base...);
  return error == std::errc() && end == text.data() + text.size();
}

uint64_t bits_of(DType dtype, const void* data, int64_t index) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  int width = bits(dtype);
  if (width < 8) {
    int64_t per_byte = 8 / width;
    return (bytes[index / per_byte] >> (index % per_byte * width)) & ((1u << width) - 1);
  }
  uint64_t value = 0;
  std::memcpy(&value, bytes + index * (width / 8), static_cast<size_t>(width / 8));
  return value;
}

void set_bits(DType dtype, void* data, int64_t index, uint64_t value) {
  auto* bytes = static_cast<unsigned char*>(data);
  int width = bits(dtype);
  if (width < 8) {
    int64_t per_byte = 8 / width;
    int shift = static_cast<int>(index % per_byte) * width;
    unsigned mask = ((1u << width) - 1) << shift;
    unsigned char& byte = bytes[index / per_byte];
    byte = static_cast<unsigned char>((byte & ~mask) | (static_cast<unsigned>(value) << shift));
    return;
  }
  std::memcpy(bytes + index * (width / 8), &value, static_cast<size_t>(width / 8));
}

// The narrow floats are all values of f32, so their text is parsed as that: it rounds once to the type.
bool parse_float_element(DType dtype, std::string_view text, double& out) {
  if (text == "inf" || text == "-inf" || text == "nan" || dtype == DType::f64) return parse_real(text, out);
  float narrow;
  if (!parse_whole(text, narrow) || !std::isfinite(narrow)) return false;
  out = narrow;
  return true;
}

void append_int128(std::string& out, Int128 value) {
  // i64 and u64 are the widest types.
  out += value < 0 ? std::to_string(static_cast<int64_t>(value)) : std::to_string(static_cast<uint64_t>(value));
}

// A block's bytes as hexadecimal digits in quotes.
bool store_block(Tensor& tensor, int64_t index, const Token& token) {
  const size_t bytes = block_size(tensor.dtype()).bytes;
  const std::string_view text = token.text;
  if (token.kind != TokenKind::string || text.size() != 2 * bytes) return false;
  auto* block = static_cast<unsigned char*>(tensor.mutable_data()) + static_cast<size_t>(index) * bytes;
  for (size_t i = 0; i < bytes; ++i) {
    const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    block[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return true;
}

}  // namespace

int64_t literal_count(const Tensor& tensor) { return tensor.count() / block_size(tensor.dtype()).elements; }

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    unsigned char c = static_cast<unsigned char>(text[0]);
    size_t length = 1;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[0];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c >= 0x20 && c < 0x7f) {
      out += text[0];
    } else if (const uint32_t valid = c >= 0x80 ? utf8_step(text, 0).valid : 0; valid > 0) {
      length = valid;
      out += text.substr(0, length);
    } else {
      out += fmt::format("\\x{:02x}", c);
    }
    text.remove_prefix(length);
  }
  out += '"';
}

bool unescape(std::string_view escaped, std::string& out) {
  out.clear();
  out.reserve(escaped.size());
  for (size_t i = 0; i < escaped.size(); ++i) {
    if (escaped[i] != '\\') {
      out += escaped[i];
      continue;
    }
    if (++i == escaped.size()) return false;
    switch (escaped[i]) {
      case '"':
      case '\\':
        out += escaped[i];
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'x': {
        if (i + 2 >= escaped.size()) return false;
        int high = hex_digit(escaped[i + 1]), low = hex_digit(escaped[i + 2]);
        if (high < 0 || low < 0) return false;
        out += static_cast<char>(high * 16 + low);
        i += 2;
        break;
      }
      default:
        return false;
    }
  }
  return true;
}

void append_real(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "nan";
  } else {
    out += fmt::format("{}", value);
  }
}

bool parse_real(std::string_view text, double& out) {
  if (text == "inf" || text == "-inf" || text == "nan") {
    out = text == "nan" ? std::nan("") : text == "inf" ? HUGE_VAL : -HUGE_VAL;
    return true;
  }
  return parse_whole(text, out) && std::isfinite(out);
}

bool parse_integer(std::string_view text, int64_t& out) { return parse_whole(text, out); }

void append_element(std::string& out, const Tensor& tensor, int64_t index) {
  DType dtype = tensor.dtype();
  const void* data = tensor.data();
  if (dtype == DType::string) return append_quoted(out, tensor.strings()[static_cast<size_t>(index)]);
  if (is_block(dtype)) {
    const size_t bytes = block_size(dtype).bytes;
    const auto* block = static_cast<const unsigned char*>(data) + static_cast<size_t>(index) * bytes;
    out += '"';
    for (size_t i = 0; i < bytes; ++i) out += fmt::format("{:02x}", block[i]);
    out += '"';
    return;
  }
  if (is_int(dtype)) return append_int128(out, decode_int(dtype, data, index));
  uint64_t raw = bits_of(dtype, data, index);
  if (dtype == DType::boolean && raw <= 1) {
    out += raw ? "true" : "false";
    return;
  }
  if (is_float(dtype)) {
    double value = decode(dtype, data, index);
    if (std::isnan(value)) value = std::nan("");  // "nan" says nothing of a payload
    unsigned char again[8] = {};
    encode(dtype, again, 0, value);
    if (bits_of(dtype, again, 0) == raw) {
      if (dtype == DType::f64 || std::isnan(value)) return append_real(out, value);
      out += fmt::format("{}", static_cast<float>(value));
      return;
    }
  }
  out += fmt::format("0x{:x}", raw);
}

bool store_element(Tensor& tensor, int64_t index, const Token& token) {
  DType dtype = tensor.dtype();
  void* data = tensor.mutable_data();
  if (dtype == DType::boolean && token.kind == TokenKind::word) {
    set_bits(dtype, data, index, token.text == "true");
    return token.text == "true" || token.text == "false";
  }
  if (is_block(dtype)) return store_block(tensor, index, token);
  if (token.kind != TokenKind::number) return false;
  if (!is_int(dtype) && token.text.starts_with("0x")) {
    uint64_t raw;
    if (!parse_whole(token.text.substr(2), raw, 16) || (bits(dtype) < 64 && raw >> bits(dtype) != 0)) return false;
    set_bits(dtype, data, index, raw);
    return true;
  }
  if (is_float(dtype)) {
    double value;
    if (!parse_float_element(dtype, token.text, value)) return false;
    encode(dtype, data, index, value);
    return true;
  }
  if (!is_int(dtype)) return false;
  int64_t value = 0;
  uint64_t large = 0;
  bool fits = parse_whole(token.text, value);
  Int128 wide = value;
  if (!fits && parse_whole(token.text, large)) {
    wide = large;
    fits = true;
  }
  if (!fits) return false;
  encode_int(dtype, data, index, wide);
  return decode_int(dtype, data, index) == wide;
}

bool is_uniform(const Tensor& tensor) {
  if (literal_count(tensor) < 2 || tensor.dtype() == DType::string) return false;
  const auto* bytes = static_cast<const unsigned char*>(tensor.data());
  int width = is_block(tensor.dtype()) ? 8 * block_size(tensor.dtype()).bytes : bits(tensor.dtype());
  if (width >= 8) {
    size_t size = static_cast<size_t>(width / 8);
    return std::memcmp(bytes, bytes + size, tensor.bytes() - size) == 0;
  }
  uint64_t first = bits_of(tensor.dtype(), bytes, 0);
  for (int64_t i = 1; i < tensor.count(); ++i)
    if (bits_of(tensor.dtype(), bytes, i) != first) return false;
  return true;
}

}  // namespace tessera::ir
