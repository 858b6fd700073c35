#include <charconv>

#include "text/jinja_parser.h"

namespace tessera::text {
namespace {

// Tests whose argument may stand without brackets: `x is divisibleby 3`.
bool takes_argument(std::string_view test) {
  constexpr std::string_view kTests[] = {"divisibleby", "eq", "equalto", "ne",          "lt",       "le",
                                         "gt",          "ge", "in",      "greaterthan", "lessthan", "sameas"};
  return std::find(std::begin(kTests), std::end(kTests), test) != std::end(kTests);
}

}  // namespace

Result<JinjaPtr> JinjaParser::expression() {
  const Deeper deeper(depth_);
  if (depth_ > kMaxDepth) return bad("expressions nest too deep");
  return choice();
}

// children: what if true, condition, what if false (may be null)
Result<JinjaPtr> JinjaParser::choice() {
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
Result<JinjaPtr> JinjaParser::binary(int level) {
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
Result<JinjaPtr> JinjaParser::unary(bool with_filters) {
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
Result<JinjaPtr> JinjaParser::postfix(JinjaPtr value) {
  while (true) {
    JinjaPtr node;
    if (op(".")) {
      const bool place = peek().kind == Kind::integer;
      node = make(place ? Node::item : Node::attribute);
      node->children.push_back(std::move(value));
      if (place) {
        TESSERA_ASSIGN(JinjaPtr index, number());
        node->children.push_back(std::move(index));
      } else {
        TESSERA_ASSIGN(node->text, name());
      }
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

Result<JinjaPtr> JinjaParser::subscript() {
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

// A filter's name, its arguments, and what is done with the result.
Result<JinjaPtr> JinjaParser::filter(JinjaPtr value) {
  TESSERA_ASSIGN(const std::string text, name());
  JinjaPtr node = make(Node::filter, text);
  if (!is_filter(text)) return bad(fmt::format("the filter '{}' is not supported", text));
  node->children.push_back(std::move(value));
  if (op("(")) TESSERA_TRY(arguments(node->children));
  return postfix(std::move(node));
}

Result<JinjaPtr> JinjaParser::filters(JinjaPtr value) {
  while (true) {
    JinjaPtr node;
    if (op("|")) {
      TESSERA_ASSIGN(node, filter(std::move(value)));
    } else if (word("is")) {
      const bool negated = word("not");
      TESSERA_ASSIGN(const std::string text, name());
      node = make(Node::test, text);
      if (!is_test(text)) return bad(fmt::format("the test '{}' is not supported", text));
      node->children.push_back(std::move(value));
      if (op("(")) {
        TESSERA_TRY(arguments(node->children));
      } else if (takes_argument(text)) {
        TESSERA_ASSIGN(JinjaPtr other, unary(false));
        node->children.push_back(std::move(other));
      }
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

// Up to ')'. Named ones are `keyword` nodes, unpacked ones `spread`: of a mapping where text is "**".
Status JinjaParser::arguments(std::vector<JinjaPtr>& out) {
  return list(")", [&]() -> Status {
    TESSERA_ASSIGN(JinjaPtr next, argument());
    out.push_back(std::move(next));
    return {};
  });
}

Result<JinjaPtr> JinjaParser::argument() {
  JinjaPtr node;
  if (is(Kind::op, "*") || is(Kind::op, "**")) {
    node = make(Node::spread, peek().text);
    ++at_;
  } else if (peek().kind == Kind::name && is(Kind::op, "=", 1)) {
    node = make(Node::keyword, peek().text);
    at_ += 2;
  }
  TESSERA_ASSIGN(JinjaPtr value, expression());
  if (!node) return value;
  node->children.push_back(std::move(value));
  return node;
}

// The rest of a list or tuple; without `close` up to the end of the statement.
Result<JinjaPtr> JinjaParser::items(std::string_view close, JinjaPtr first) {
  JinjaPtr node = make(Node::list);
  if (first) {
    node->children.push_back(std::move(first));
    TESSERA_TRY(need_op(","));
  }
  TESSERA_TRY(list(close, [&]() -> Status {
    TESSERA_ASSIGN(JinjaPtr item, expression());
    node->children.push_back(std::move(item));
    return {};
  }));
  return node;
}

Result<JinjaPtr> JinjaParser::number() {
  JinjaPtr node = make(Node::literal);
  const std::string& text = peek().text;
  int64_t whole = 0;
  if (peek().kind == Kind::integer &&
      std::from_chars(text.data(), text.data() + text.size(), whole).ec == std::errc()) {
    node->value = whole;
  } else {
    double real = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), real).ec != std::errc())
      return bad("a number is wrong");
    node->value = real;
  }
  ++at_;
  return node;
}

Result<JinjaPtr> JinjaParser::primary() {
  JinjaPtr node = make(Node::literal);
  const JinjaToken& token = peek();
  const std::string& text = token.text;
  if (token.kind == Kind::string) {
    std::string joined;
    for (; peek().kind == Kind::string; ++at_) joined += peek().text;
    node->value = std::move(joined);
  } else if (token.kind == Kind::integer || token.kind == Kind::real) {
    return number();
  } else if (op("(")) {
    if (op(")")) return make(Node::list);
    TESSERA_ASSIGN(JinjaPtr value, expression());
    if (op(")")) return value;
    return items(")", std::move(value));
  } else if (op("[")) {
    return items("]", nullptr);
  } else if (op("{")) {
    node->kind = Node::dict;
    TESSERA_TRY(list("}", [&]() -> Status {
      for (int part = 0; part < 2; ++part) {
        TESSERA_ASSIGN(JinjaPtr value, expression());
        node->children.push_back(std::move(value));
        if (part == 0) TESSERA_TRY(need_op(":"));
      }
      return {};
    }));
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

}  // namespace tessera::text
