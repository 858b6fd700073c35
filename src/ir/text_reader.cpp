#include "ir/text_reader.h"

#include <utility>

#include "ir/literal.h"

namespace tessera::ir {

Status TextReader::expect(std::string_view punctuation_or_word) {
  if (lexer.accept(punctuation_or_word)) return {};
  return lexer.expected(fmt::format("'{}'", punctuation_or_word));
}

Result<std::string> TextReader::string() {
  std::string text;
  if (lexer.peek().kind != TokenKind::string) return lexer.expected("a string in quotes");
  if (!unescape(lexer.peek().text, text))
    return lexer.fail_at(lexer.peek().begin, "a string holds an escape other than \\\" \\\\ \\n \\r \\t \\xHH");
  lexer.take();
  return text;
}

Result<std::string> TextReader::optional_string() {
  if (lexer.peek().kind != TokenKind::string) return std::string();
  return string();
}

Result<int64_t> TextReader::integer() {
  int64_t value;
  if (lexer.peek().kind != TokenKind::number || !parse_integer(lexer.peek().text, value))
    return lexer.expected("an integer of 64 bits");
  lexer.take();
  return value;
}

Result<int64_t> TextReader::bound() {
  const Token& token = lexer.peek();
  if (token.kind == TokenKind::number && (token.text == "inf" || token.text == "-inf"))
    return lexer.take().text == "inf" ? INT64_MAX : INT64_MIN;
  return integer();
}

Result<double> TextReader::real() {
  double value;
  if (lexer.peek().kind != TokenKind::number || !parse_real(lexer.peek().text, value))
    return lexer.expected("a number");
  lexer.take();
  return value;
}

template <class T>
Result<T> TextReader::declared(Result<T> parsed, const Token& token, int symbols_before) {
  const DimTable& dims = context.dims();
  if (!parsed) return lexer.fail_at(token.begin, parsed.error().message, parsed.error().code);
  if (dims.symbol_count() != symbols_before)
    return lexer.fail_at(token.begin,
                         fmt::format("'{}' is not declared by a 'dim' line", dims.symbol_name(symbols_before)),
                         Code::unknown_name);
  return parsed;
}

Result<Dim> TextReader::size() {
  DimTable& dims = context.dims();
  Token token = lexer.take_size_text();
  if (token.text.empty()) return lexer.expected("a size");
  int64_t value;
  if (parse_integer(token.text, value)) return Dim(value);
  if (is_word(token.text))
    if (std::optional<Dim> symbol = dims.find(token.text)) return *symbol;
  int before = dims.symbol_count();
  return declared(dims.parse(token.text), token, before);
}

Result<Shape> TextReader::sizes() {
  TESSERA_TRY(expect("["));
  return sizes_behind_bracket();
}

Result<Shape> TextReader::sizes_behind_bracket() {
  Shape shape;
  TESSERA_TRY(list("]", [&]() -> Status {
    TESSERA_ASSIGN(Dim d, size());
    shape.push_back(d);
    return {};
  }));
  return shape;
}

Result<std::vector<int64_t>> TextReader::integers() {
  std::vector<int64_t> values;
  TESSERA_TRY(expect("["));
  TESSERA_TRY(list("]", [&]() -> Status {
    TESSERA_ASSIGN(int64_t value, integer());
    values.push_back(value);
    return {};
  }));
  return values;
}

Result<View> TextReader::view() {
  Token token = lexer.take_view_text();
  if (token.text.empty()) return lexer.fail_at(token.begin, "expected a view, '[...] from [...]'");
  int before = context.dims().symbol_count();
  return declared(parse_view(context.dims(), token.text), token, before);
}

Result<TypeRef> TextReader::type() { return type_at(0); }

Result<TypeRef> TextReader::type_at(int depth) {
  if (depth >= max_depth_)
    return lexer.fail_at(lexer.peek().begin, fmt::format("types are nested more than {} deep", depth));
  Type made;
  if (lexer.at("seq") || lexer.at("opt")) {
    made.kind = lexer.take().text == "seq" ? Kind::sequence : Kind::optional;
    TESSERA_TRY(expect("<"));
    TESSERA_ASSIGN(made.element, type_at(depth + 1));
    TESSERA_TRY(expect(">"));
    return context.type(std::move(made));
  }
  if (lexer.accept("state")) made.kind = Kind::state;
  if (lexer.accept("nothing")) made.kind = Kind::nothing;
  if (lexer.peek().kind != TokenKind::word || !parse_dtype(lexer.peek().text, made.dtype))
    return lexer.expected("a type");
  Token dtype = lexer.take();
  if (made.kind == Kind::nothing) return context.type(std::move(made));
  if (!lexer.accept("[")) return lexer.expected(fmt::format("'[' and the sizes of {}", dtype.text));
  if (lexer.accept("*")) {
    made.ranked = false;
    TESSERA_TRY(expect("]"));
  } else {
    TESSERA_ASSIGN(made.shape, sizes_behind_bracket());
  }
  return context.type(std::move(made));
}

Result<LocId> TextReader::location() {
  std::vector<LocId> places;
  while (lexer.accept("@")) {
    TESSERA_ASSIGN(const LocId place, this->place());
    places.push_back(place);
  }
  return context.covering(places);
}

Result<LocId> TextReader::place() {
  Location made;
  if (lexer.peek().kind == TokenKind::string) {
    TESSERA_ASSIGN(std::string text, string());
    made.node = context.name(text);
    if (lexer.peek().kind == TokenKind::word && !is_reserved(lexer.peek().text)) {
      text = lexer.take().text;
    } else {
      TESSERA_ASSIGN(text, optional_string());
    }
    made.op_type = context.name(text);
  }
  if (lexer.accept("#")) {
    size_t at = lexer.peek().begin;
    TESSERA_ASSIGN(int64_t index, integer());
    if (index < 0 || index > UINT32_MAX) return lexer.fail_at(at, "the position of a node is at most 2^32 - 1");
    made.index = static_cast<uint32_t>(index);
  }
  return context.location(made);
}

}  // namespace tessera::ir
