#include "ir/constant_text.h"

#include <algorithm>

#include "ir/literal.h"

namespace tessera::ir {
namespace {

tl::unexpected<Error> no_element(const Lexer& lexer, const Token& token, DType dtype) {
  return lexer.fail_at(token.begin,
                       fmt::format("expected an element of {}, found '{}'", name(dtype), token.text.substr(0, 40)));
}

tl::unexpected<Error> wrong_count(const Lexer& lexer, size_t at, int64_t count, size_t found) {
  return lexer.fail_at(at, fmt::format("expected {} elements, found {}", count, found));
}

Result<Tensor> read_uniform(TextReader& reader, DType dtype, const Dims& shape, int64_t count, size_t& bytes_left) {
  Token element = reader.lexer.take();
  if (dtype == DType::string) return no_element(reader.lexer, element, dtype);
  if (Status blocks = check_blocks(dtype, shape); !blocks)
    return reader.lexer.fail_at(element.begin, blocks.error().message, blocks.error().code);
  // Divided, because the product may not fit.
  const BlockSize block = block_size(dtype);
  if (is_block(dtype) ? static_cast<uint64_t>(count) / block.elements > bytes_left / block.bytes
                      : static_cast<uint64_t>(count) / 8 > bytes_left / static_cast<size_t>(bits(dtype)))
    return reader.lexer.fail_at(
        element.begin,
        fmt::format("{} elements take more than the {} bytes left for constants of one element", count, bytes_left),
        Code::out_of_memory);
  bytes_left -= std::min(bytes_left, storage_bytes(dtype, count));
  TESSERA_ASSIGN(Tensor tensor, Tensor::make(dtype, shape));
  for (int64_t i = 0; i < literal_count(tensor); ++i)
    if (!store_element(tensor, i, element)) return no_element(reader.lexer, element, dtype);
  return tensor;
}

Result<Tensor> read_strings(TextReader& reader, const Dims& shape, int64_t count, size_t at) {
  std::vector<std::string> elements;
  TESSERA_TRY(reader.list("]", [&]() -> Status {
    TESSERA_ASSIGN(std::string element, reader.string());
    elements.push_back(std::move(element));
    return {};
  }));
  if (static_cast<int64_t>(elements.size()) != count) return wrong_count(reader.lexer, at, count, elements.size());
  return Tensor::of_strings(shape, std::move(elements));
}

Result<Tensor> read_elements(TextReader& reader, DType dtype, const Dims& shape, int64_t count) {
  size_t at = reader.lexer.peek().begin;
  TESSERA_TRY(reader.expect("["));
  if (dtype == DType::string) return read_strings(reader, shape, count, at);
  if (Status blocks = check_blocks(dtype, shape); !blocks)
    return reader.lexer.fail_at(at, blocks.error().message, blocks.error().code);
  count /= block_size(dtype).elements;
  // Each element takes a byte of the text, each byte of a block two: no memory is taken for more than can be there.
  if (static_cast<uint64_t>(count) > reader.text_size - at)
    return reader.lexer.fail_at(at, fmt::format("{} elements do not fit in the rest of the text", count));
  TESSERA_ASSIGN(Tensor tensor, Tensor::make(dtype, shape));
  int64_t found = 0;
  TESSERA_TRY(reader.list("]", [&]() -> Status {
    Token element = reader.lexer.take();
    if (found < count && !store_element(tensor, found, element)) return no_element(reader.lexer, element, dtype);
    ++found;
    return {};
  }));
  if (found != count) return wrong_count(reader.lexer, at, count, static_cast<size_t>(found));
  return tensor;
}

Result<Tensor> read_external(TextReader& reader, DType dtype, const Dims& shape, int64_t count,
                             const ExternalLoader& load) {
  size_t at = reader.lexer.peek().begin;
  ExternalData data;
  TESSERA_ASSIGN(data.file, reader.string());
  TESSERA_TRY(reader.expect("offset"));
  TESSERA_ASSIGN(data.offset, reader.integer());
  TESSERA_TRY(reader.expect("length"));
  TESSERA_ASSIGN(data.length, reader.integer());
  if (data.offset < 0 || data.length < 0) return reader.lexer.fail_at(at, "offset and length are not negative");
  // storage_bytes() must not overflow; no file is as large as that.
  if (dtype == DType::string || count > INT64_MAX / 64 || !check_blocks(dtype, shape) ||
      storage_bytes(dtype, count) != static_cast<uint64_t>(data.length))
    return reader.lexer.fail_at(at,
                                fmt::format("{} elements of {} do not take {} bytes", count, name(dtype), data.length));
  if (!load) return reader.lexer.fail_at(at, "constants in files cannot be read here");
  Result<Tensor> tensor = load(data, dtype, shape);
  if (!tensor) return tl::unexpected<Error>(std::move(tensor).error().within("reading " + reader.lexer.position(at)));
  return tensor;
}

}  // namespace

Result<Tensor> read_constant(TextReader& reader, DType dtype, const Dims& shape, size_t& uniform_bytes_left,
                             const ExternalLoader& load) {
  size_t at = reader.lexer.peek().begin;
  Result<int64_t> count = element_count(shape);
  if (!count) return reader.lexer.fail_at(at, count.error().message, count.error().code);
  if (reader.lexer.accept("file")) return read_external(reader, dtype, shape, *count, load);
  if (reader.lexer.accept("all")) return read_uniform(reader, dtype, shape, *count, uniform_bytes_left);
  if (reader.lexer.at("elided"))
    return reader.lexer.fail_at(at, "this text is for reading only: the elements of this constant were left out of it");
  return read_elements(reader, dtype, shape, *count);
}

}  // namespace tessera::ir
