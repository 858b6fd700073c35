#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "text/jinja.h"

namespace tessera::text {
namespace {

using Kind = JinjaToken::Kind;
using Node = JinjaNode::Kind;

constexpr int kMaxDepth = 500;  // of expressions and blocks in each other: a pair of brackets takes ten

class Parser {
 public:
  Parser(std::string_view source, std::vector<JinjaToken> tokens) : source_(source), tokens_(std::move(tokens)) {}
  Result<JinjaPtr> run() { return block({}); }

 private:
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
  Status end_block(std::string_view end);
  Result<JinjaPtr> expression();
  Result<JinjaPtr> choice();
  Result<JinjaPtr> binary(int level);
  Result<JinjaPtr> unary(bool with_filters);
  Result<JinjaPtr> postfix(JinjaPtr value);
  Result<JinjaPtr> filters(JinjaPtr value);
  Result<JinjaPtr> subscript();
  Result<JinjaPtr> primary();
  Status arguments(std::vector<JinjaPtr>& out);
  Result<JinjaPtr> items(std::string_view close, JinjaPtr first);

  std::string_view source_;
  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

// Statements up to a tag that one of `ends` begins, which stays.
Result<JinjaPtr> Parser::block(std::vector<std::string_view> ends) {
  const Deeper deeper(depth_);
  if (depth_ > kMaxDepth) return bad("blocks nest too deep");
  JinjaPtr node = make(Node::block);
  while (true) {
    if (peek().kind == Kind::stop) {
      if (ends.empty()) return node;
      return bad(fmt::format("the template ends before {{% {} %}}", ends.back()));
    }
    if (peek().kind == Kind::text) {
      node->children.push_back(make(Node::text, peek().text));
      ++at_;
    } else if (take(Kind::open, "")) {
      JinjaPtr output = make(Node::output);
      TESSERA_ASSIGN(JinjaPtr value, expression());
      output->children.push_back(std::move(value));
      TESSERA_TRY(need(Kind::close, "", "'}}'"));
      node->children.push_back(std::move(output));
    } else {
      for (std::string_view end : ends)
        if (is(Kind::name, end, 1)) return node;
      TESSERA_ASSIGN(JinjaPtr next, statement());
      if (next) node->children.push_back(std::move(next));
    }
  }
}

Status Parser::end_block(std::string_view end) {
  TESSERA_TRY(need(Kind::begin, "", "a statement"));
  TESSERA_TRY(need(Kind::name, end, end));
  return close_tag();
}

Result<JinjaPtr> Parser::statement() {
  TESSERA_TRY(need(Kind::begin, "", "a statement"));
  if (word("if")) return if_statement();
  if (word("for")) return for_statement();
  if (word("set")) return set_statement();
  if (word("macro")) return macro_statement(false);
  if (word("call")) return macro_statement(true);
  if (word("filter")) return filter_statement();
  // The marks of what an assistant generated: training reads them, rendering does not.
  if (word("generation") || word("endgeneration")) {
    TESSERA_TRY(close_tag());
    return JinjaPtr();
  }
  for (const auto& [text, kind] : {std::pair("break", Node::break_), std::pair("continue", Node::continue_)}) {
    if (!word(text)) continue;
    JinjaPtr node = make(kind);
    TESSERA_TRY(close_tag());
    return node;
  }
  return bad(fmt::format("the statement '{}' is not supported", peek().text));
}

// children: condition, block, then the block or `if` for otherwise (may be null).
Result<JinjaPtr> Parser::if_statement() {
  const Deeper deeper(depth_);
  if (depth_ > kMaxDepth) return bad("blocks nest too deep");
  JinjaPtr node = make(Node::if_);
  TESSERA_ASSIGN(JinjaPtr condition, expression());
  TESSERA_TRY(close_tag());
  TESSERA_ASSIGN(JinjaPtr body, block({"elif", "else", "endif"}));
  TESSERA_TRY(need(Kind::begin, "", "a statement"));
  JinjaPtr otherwise;
  if (word("elif")) {
    TESSERA_ASSIGN(otherwise, if_statement());
  } else if (word("else")) {
    TESSERA_TRY(close_tag());
    TESSERA_ASSIGN(otherwise, block({"endif"}));
    TESSERA_TRY(end_block("endif"));
  } else {
    TESSERA_TRY(need(Kind::name, "endif", "endif"));
    TESSERA_TRY(close_tag());
  }
  node->children.push_back(std::move(condition));
  node->children.push_back(std::move(body));
  node->children.push_back(std::move(otherwise));
  return node;
}

// names: the variables; children: what is walked, condition (may be null), block, block of else (may be null).
Result<JinjaPtr> Parser::for_statement() {
  JinjaPtr node = make(Node::for_);
  const bool parenthesis = op("(");
  do {
    TESSERA_ASSIGN(std::string variable, name());
    node->names.push_back(std::move(variable));
  } while (op(","));
  if (parenthesis) TESSERA_TRY(need_op(")"));
  TESSERA_TRY(need(Kind::name, "in", "'in'"));
  TESSERA_ASSIGN(JinjaPtr walked, binary(0));
  JinjaPtr condition;
  if (word("if")) {
    TESSERA_ASSIGN(condition, expression());
  }
  if (is(Kind::name, "recursive")) return bad("recursive loops are not supported");
  TESSERA_TRY(close_tag());
  TESSERA_ASSIGN(JinjaPtr body, block({"else", "endfor"}));
  JinjaPtr otherwise;
  if (is(Kind::name, "else", 1)) {
    TESSERA_TRY(end_block("else"));
    TESSERA_ASSIGN(otherwise, block({"endfor"}));
  }
  TESSERA_TRY(end_block("endfor"));
  node->children.push_back(std::move(walked));
  node->children.push_back(std::move(condition));
  node->children.push_back(std::move(body));
  node->children.push_back(std::move(otherwise));
  return node;
}

// names: the variables, or none and text: the attribute of children[0]; the last child is the value or the block.
Result<JinjaPtr> Parser::set_statement() {
  JinjaPtr node = make(Node::set);
  TESSERA_ASSIGN(std::string first, name());
  if (op(".")) {
    node->children.push_back(make(Node::name, std::move(first)));
    TESSERA_ASSIGN(node->text, name());
  } else {
    node->names.push_back(std::move(first));
    while (op(",")) {
      TESSERA_ASSIGN(std::string next, name());
      node->names.push_back(std::move(next));
    }
  }
  if (op("=")) {
    TESSERA_ASSIGN(JinjaPtr value, expression());
    if (is(Kind::op, ",")) {
      TESSERA_ASSIGN(value, items("", std::move(value)));
    }
    node->children.push_back(std::move(value));
    TESSERA_TRY(close_tag());
    return node;
  }
  node->kind = Node::set_block;
  TESSERA_TRY(close_tag());
  TESSERA_ASSIGN(JinjaPtr body, block({"endset"}));
  TESSERA_TRY(end_block("endset"));
  node->children.push_back(std::move(body));
  return node;
}

// macro: text: its name; names: parameters; children: the block, then a default for each parameter (may be null).
// call: names: of the caller; children: the block, then the call.
Result<JinjaPtr> Parser::macro_statement(bool call) {
  JinjaPtr node = make(call ? Node::call : Node::macro);
  if (!call) {
    TESSERA_ASSIGN(node->text, name());
  }
  std::vector<JinjaPtr> defaults;
  if (op("(")) {
    while (!op(")")) {
      TESSERA_ASSIGN(std::string parameter, name());
      node->names.push_back(std::move(parameter));
      defaults.emplace_back();
      if (op("=")) {
        TESSERA_ASSIGN(defaults.back(), expression());
      }
      if (!is(Kind::op, ")")) TESSERA_TRY(need_op(","));
    }
  }
  JinjaPtr invoked;
  if (call) {
    TESSERA_ASSIGN(invoked, expression());
    if (invoked->kind != Node::invoke) return bad("expected a call of a macro");
  }
  TESSERA_TRY(close_tag());
  const std::string_view end = call ? "endcall" : "endmacro";
  TESSERA_ASSIGN(JinjaPtr body, block({end}));
  TESSERA_TRY(end_block(end));
  node->children.push_back(std::move(body));
  if (call) node->children.push_back(std::move(invoked));
  for (JinjaPtr& value : defaults)
    if (!call) node->children.push_back(std::move(value));
  return node;
}

// text: the filter's name; children: the block, then its arguments.
Result<JinjaPtr> Parser::filter_statement() {
  JinjaPtr node = make(Node::filter_block);
  TESSERA_ASSIGN(node->text, name());
  if (!is_filter(node->text)) return bad(fmt::format("the filter '{}' is not supported", node->text));
  node->children.emplace_back();
  if (op("(")) TESSERA_TRY(arguments(node->children));
  TESSERA_TRY(close_tag());
  TESSERA_ASSIGN(node->children[0], block({"endfilter"}));
  TESSERA_TRY(end_block("endfilter"));
  return node;
}

Result<JinjaPtr> Parser::expression() {
  const Deeper deeper(depth_);
  if (depth_ > kMaxDepth) return bad("expressions nest too deep");
  return choice();
}

// children: what if true, condition, what if false (may be null)
Result<JinjaPtr> Parser::choice() {
  TESSERA_ASSIGN(JinjaPtr value, binary(0));
  if (!is(Kind::name, "if")) return value;
  JinjaPtr node = make(Node::choice);
  ++at_;
  TESSERA_ASSIGN(JinjaPtr condition, binary(0));
  JinjaPtr otherwise;
  if (word("else")) {
    TESSERA_ASSIGN(otherwise, expression());
  }
  node->children.push_back(std::move(value));
  node->children.push_back(std::move(condition));
  node->children.push_back(std::move(otherwise));
  return node;
}

// The levels of precedence, loosest first; `not` stands between 'and' and the comparisons.
Result<JinjaPtr> Parser::binary(int level) {
  static const std::vector<std::vector<std::string_view>> levels = {{"or"},
                                                                    {"and"},
                                                                    {"not"},
                                                                    {"==", "!=", "<", ">", "<=", ">=", "in", "not in"},
                                                                    {"+", "-"},
                                                                    {"~"},
                                                                    {"*", "/", "//", "%"},
                                                                    {"**"}};
  const Deeper deeper(depth_);
  if (depth_ > kMaxDepth) return bad("expressions nest too deep");
  if (level == static_cast<int>(levels.size())) return unary(true);
  if (levels[static_cast<size_t>(level)][0] == "not") {
    if (!is(Kind::name, "not")) return binary(level + 1);
    JinjaPtr node = make(Node::unary, "not");
    ++at_;
    TESSERA_ASSIGN(JinjaPtr value, binary(level));
    node->children.push_back(std::move(value));
    return node;
  }
  TESSERA_ASSIGN(JinjaPtr left, binary(level + 1));
  while (true) {
    std::string found;
    for (std::string_view text : levels[static_cast<size_t>(level)]) {
      if (text == "not in" ? is(Kind::name, "not") && is(Kind::name, "in", 1)
                           : is(Kind::op, text) || (is(Kind::name, text) && text[0] >= 'a'))
        found = text;
    }
    if (found.empty()) return left;
    JinjaPtr node = make(Node::binary, found);
    at_ += found == "not in" ? 2 : 1;
    TESSERA_ASSIGN(JinjaPtr right, binary(level + 1));
    node->children.push_back(std::move(left));
    node->children.push_back(std::move(right));
    left = std::move(node);
  }
}

// A sign binds tighter than a filter behind it, and looser than an attribute.
Result<JinjaPtr> Parser::unary(bool with_filters) {
  if (is(Kind::op, "-") || is(Kind::op, "+")) {
    const Deeper deeper(depth_);
    if (depth_ > kMaxDepth) return bad("expressions nest too deep");
    JinjaPtr node = make(Node::unary, peek().text);
    ++at_;
    TESSERA_ASSIGN(JinjaPtr value, unary(false));
    node->children.push_back(std::move(value));
    return with_filters ? filters(std::move(node)) : Result<JinjaPtr>(std::move(node));
  }
  TESSERA_ASSIGN(JinjaPtr value, primary());
  TESSERA_ASSIGN(value, postfix(std::move(value)));
  return with_filters ? filters(std::move(value)) : Result<JinjaPtr>(std::move(value));
}

// .name, [index], [a:b:c], (arguments)
Result<JinjaPtr> Parser::postfix(JinjaPtr value) {
  while (true) {
    JinjaPtr node;
    if (op(".")) {
      node = make(Node::attribute);
      node->children.push_back(std::move(value));
      TESSERA_ASSIGN(node->text, name());
    } else if (op("[")) {
      TESSERA_ASSIGN(node, subscript());
      node->children.insert(node->children.begin(), std::move(value));
    } else if (op("(")) {
      node = make(Node::invoke);
      node->children.push_back(std::move(value));
      TESSERA_TRY(arguments(node->children));
    } else {
      return value;
    }
    value = std::move(node);
  }
}

Result<JinjaPtr> Parser::subscript() {
  JinjaPtr node = make(Node::item);
  bool slice = false;
  while (!op("]")) {
    if (op(":")) {
      if (node->children.empty()) node->children.emplace_back();
      slice = true;
      node->children.emplace_back();
      continue;
    }
    TESSERA_ASSIGN(JinjaPtr part, expression());
    if (slice) {
      if (node->children.back()) return bad("expected ']'");
      node->children.back() = std::move(part);
    } else {
      if (!node->children.empty()) return bad("expected ']'");
      node->children.push_back(std::move(part));
    }
  }
  if (node->children.empty() || node->children.size() > 3) return bad("an index is wrong");
  if (slice) {
    node->kind = Node::slice;
    node->children.resize(3);
  }
  return node;
}

Result<JinjaPtr> Parser::filters(JinjaPtr value) {
  while (true) {
    JinjaPtr node;
    if (op("|")) {
      TESSERA_ASSIGN(const std::string text, name());
      node = make(Node::filter, text);
      if (!is_filter(text)) return bad(fmt::format("the filter '{}' is not supported", text));
      node->children.push_back(std::move(value));
      if (op("(")) TESSERA_TRY(arguments(node->children));
      TESSERA_ASSIGN(node, postfix(std::move(node)));
    } else if (word("is")) {
      const bool negated = word("not");
      TESSERA_ASSIGN(const std::string text, name());
      node = make(Node::test, text);
      if (!is_test(text)) return bad(fmt::format("the test '{}' is not supported", text));
      node->children.push_back(std::move(value));
      if (op("(")) TESSERA_TRY(arguments(node->children));
      if (negated) {
        JinjaPtr inverse = make(Node::unary, "not");
        inverse->children.push_back(std::move(node));
        node = std::move(inverse);
      }
    } else {
      return value;
    }
    value = std::move(node);
  }
}

// Up to ')'. Named ones are `keyword` nodes.
Status Parser::arguments(std::vector<JinjaPtr>& out) {
  while (!op(")")) {
    JinjaPtr argument;
    if (peek().kind == Kind::name && is(Kind::op, "=", 1)) {
      argument = make(Node::keyword, peek().text);
      at_ += 2;
      TESSERA_ASSIGN(JinjaPtr value, expression());
      argument->children.push_back(std::move(value));
    } else {
      TESSERA_ASSIGN(argument, expression());
    }
    out.push_back(std::move(argument));
    if (!is(Kind::op, ")")) TESSERA_TRY(need_op(","));
  }
  return {};
}

// The rest of a list or tuple; without `close` up to the end of the statement.
Result<JinjaPtr> Parser::items(std::string_view close, JinjaPtr first) {
  JinjaPtr node = make(Node::list);
  if (first) node->children.push_back(std::move(first));
  const auto at_close = [&] { return close.empty() ? peek().kind == Kind::end : is(Kind::op, close); };
  if (!node->children.empty() && !at_close()) TESSERA_TRY(need_op(","));
  while (!at_close()) {
    TESSERA_ASSIGN(JinjaPtr item, expression());
    node->children.push_back(std::move(item));
    if (!at_close()) TESSERA_TRY(need_op(","));
  }
  if (!close.empty()) ++at_;
  return node;
}

Result<JinjaPtr> Parser::primary() {
  JinjaPtr node = make(Node::literal);
  const JinjaToken& token = peek();
  const std::string& text = token.text;
  if (token.kind == Kind::string) {
    std::string joined;
    for (; peek().kind == Kind::string; ++at_) joined += peek().text;
    node->value = std::move(joined);
  } else if (token.kind == Kind::integer || token.kind == Kind::real) {
    int64_t whole = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
    if (token.kind == Kind::integer && error == std::errc()) {
      node->value = whole;
    } else {
      double real = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), real).ec != std::errc())
        return bad("a number is wrong");
      node->value = real;
    }
    ++at_;
  } else if (op("(")) {
    if (op(")")) return make(Node::list);
    TESSERA_ASSIGN(JinjaPtr value, expression());
    if (op(")")) return value;
    return items(")", std::move(value));
  } else if (op("[")) {
    return items("]", nullptr);
  } else if (op("{")) {
    node->kind = Node::dict;
    while (!op("}")) {
      for (int part = 0; part < 2; ++part) {
        TESSERA_ASSIGN(JinjaPtr value, expression());
        node->children.push_back(std::move(value));
        if (part == 0) TESSERA_TRY(need_op(":"));
      }
      if (!is(Kind::op, "}")) TESSERA_TRY(need_op(","));
    }
  } else if (token.kind == Kind::name) {
    if (text == "true" || text == "True")
      node->value = true;
    else if (text == "false" || text == "False")
      node->value = false;
    else if (text == "none" || text == "None")
      node->value = nullptr;
    else {
      node->kind = Node::name;
      node->text = text;
    }
    ++at_;
  } else {
    return bad("expected a value");
  }
  return node;
}

}  // namespace

JinjaNode::~JinjaNode() {
  std::vector<JinjaPtr> doomed = std::move(children);
  while (!doomed.empty()) {
    const JinjaPtr node = std::move(doomed.back());
    doomed.pop_back();
    if (!node) continue;
    doomed.insert(doomed.end(), std::make_move_iterator(node->children.begin()),
                  std::make_move_iterator(node->children.end()));
    node->children.clear();
  }
}

Result<JinjaPtr> parse_jinja(std::string_view source) {
  TESSERA_ASSIGN(std::vector<JinjaToken> tokens, lex_jinja(source));
  return Parser(source, std::move(tokens)).run();
}

}  // namespace tessera::text
