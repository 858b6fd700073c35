// The parts that statements of the graph's text form are made of: strings, numbers, sizes, types, places.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/lexer.h"

namespace tessera::ir {

class TextReader {
 public:
  // The text and the context must outlive it. `max_depth`: of types in types.
  TextReader(std::string_view text, Context& context, int max_depth)
      : lexer(text), context(context), text_size(text.size()), max_depth_(max_depth) {}

  Lexer lexer;
  Context& context;
  const size_t text_size;

  Status expect(std::string_view punctuation_or_word);
  Result<std::string> string();
  // A string where one stands, else "".
  Result<std::string> optional_string();
  Result<int64_t> integer();
  // An integer, or inf or -inf for the largest and the smallest.
  Result<int64_t> bound();
  Result<double> real();

  // One or more of `item`, separated by commas, up to `close`; none at all where `close` follows at once. `item`
  // returns a Status.
  template <class F>
  Status list(std::string_view close, F&& item) {
    if (lexer.accept(close)) return {};
    do {
      TESSERA_TRY(item());
    } while (lexer.accept(","));
    if (lexer.accept(close)) return {};
    return lexer.expected(fmt::format("',' or '{}'", close));
  }

  // A size, whose symbols are declared.
  Result<Dim> size();
  Result<Shape> sizes();                    // [a, b]
  Result<std::vector<int64_t>> integers();  // [1, 2]
  Result<View> view();
  Result<TypeRef> type();
  // Where a node comes from; nowhere when no "@" follows.
  Result<LocId> location();
  // One place, behind its "@".
  Result<LocId> place();

 private:
  Result<Shape> sizes_behind_bracket();
  Result<TypeRef> type_at(int depth);
  // What a parse in the table of sizes gave, at `token`. No symbol may have been made by it.
  template <class T>
  Result<T> declared(Result<T> parsed, const Token& token, int symbols_before);

  int max_depth_;
};

}  // namespace tessera::ir
