// The parser of templates: statements in jinja_parser.cpp, expressions in jinja_expressions.cpp.
#pragma once

#include <algorithm>

#include "base/result.h"
#include "text/jinja.h"

namespace tessera::text {

class JinjaParser {
 public:
  using Kind = JinjaToken::Kind;
  using Node = JinjaNode::Kind;
  JinjaParser(std::string_view source, std::vector<JinjaToken> tokens) : source_(source), tokens_(std::move(tokens)) {}
  Result<JinjaPtr> run() { return block({}); }

 private:
  static constexpr int kMaxDepth = 500;  // of expressions and blocks in each other: a pair of brackets takes ten
  const JinjaToken& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  bool is(Kind kind, std::string_view text, size_t ahead = 0) const {
    return peek(ahead).kind == kind && peek(ahead).text == text;
  }
  bool take(Kind kind, std::string_view text) {
    if (!is(kind, text)) return false;
    ++at_;
    return true;
  }
  bool op(std::string_view text) { return take(Kind::op, text); }
  bool word(std::string_view text) { return take(Kind::name, text); }
  tl::unexpected<Error> bad(std::string_view what) const {
    return fail(Code::template_syntax, "{}", at_line(source_, peek().line, what));
  }
  Status need(Kind kind, std::string_view text, std::string_view what) {
    return take(kind, text) ? Status() : Status(bad(fmt::format("expected {}", what)));
  }
  Status need_op(std::string_view text) { return need(Kind::op, text, fmt::format("'{}'", text)); }
  Status close_tag() { return need(Kind::end, "", "the end of the statement"); }
  Result<std::string> name() {
    if (peek().kind != Kind::name) return bad("expected a name");
    return tokens_[at_++].text;
  }
  JinjaPtr make(Node kind, std::string text = {}) const {
    auto node = std::make_unique<JinjaNode>();
    node->kind = kind;
    node->line = peek().line;
    node->text = std::move(text);
    return node;
  }

  Result<JinjaPtr> block(std::vector<std::string_view> ends);
  Result<JinjaPtr> statement();
  Result<JinjaPtr> if_statement();
  Result<JinjaPtr> for_statement();
  Result<JinjaPtr> set_statement();
  Result<JinjaPtr> macro_statement(bool call);
  Result<JinjaPtr> filter_statement();
  Status capture(JinjaNode& into, std::string_view end);
  Result<JinjaPtr> with_statement();
  Status assignment(JinjaNode& node, std::vector<JinjaPtr>& values);
  Status end_block(std::string_view end);
  Result<JinjaPtr> expression();
  Result<JinjaPtr> choice();
  Result<JinjaPtr> binary(int level);
  Result<JinjaPtr> unary(bool with_filters);
  Result<JinjaPtr> postfix(JinjaPtr value);
  Result<JinjaPtr> filter(JinjaPtr value);
  Result<JinjaPtr> filters(JinjaPtr value);
  Result<JinjaPtr> subscript();
  Result<JinjaPtr> primary();
  Status arguments(std::vector<JinjaPtr>& out);
  Result<JinjaPtr> argument();
  Result<JinjaPtr> items(std::string_view close, JinjaPtr first);
  Result<JinjaPtr> number();
  // A list up to `close`, or up to the end of the statement where it is empty, which it takes: items that `item` reads,
  // with commas between them and perhaps one at the end.
  template <class Item>
  Status list(std::string_view close, const Item& item) {
    const auto closes = [&] { return close.empty() ? peek().kind == Kind::end : op(close); };
    while (!closes()) {
      TESSERA_TRY(item());
      if (closes()) break;
      TESSERA_TRY(need_op(","));
    }
    return {};
  }

  std::string_view source_;
  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace tessera::text
