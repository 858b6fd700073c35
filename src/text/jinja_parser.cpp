#include "text/jinja_parser.h"

namespace tessera::text {

// Statements up to a tag that one of `ends` begins, which stays.
Result<JinjaPtr> JinjaParser::block(std::vector<std::string_view> ends) {
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

Status JinjaParser::end_block(std::string_view end) {
  TESSERA_TRY(need(Kind::begin, "", "a statement"));
  TESSERA_TRY(need(Kind::name, end, end));
  return close_tag();
}

Result<JinjaPtr> JinjaParser::statement() {
  TESSERA_TRY(need(Kind::begin, "", "a statement"));
  if (word("if")) return if_statement();
  if (word("for")) return for_statement();
  if (word("set")) return set_statement();
  if (word("macro")) return macro_statement(false);
  if (word("call")) return macro_statement(true);
  if (word("filter")) return filter_statement();
  if (word("with")) return with_statement();
  if (word("do")) {
    JinjaPtr node = make(Node::do_);
    TESSERA_ASSIGN(JinjaPtr value, expression());
    node->children.push_back(std::move(value));
    TESSERA_TRY(close_tag());
    return node;
  }
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
Result<JinjaPtr> JinjaParser::if_statement() {
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
Result<JinjaPtr> JinjaParser::for_statement() {
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

// names: the variables, or none and text: the attribute of children[0]; the last child is the value.
Result<JinjaPtr> JinjaParser::set_statement() {
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
  JinjaPtr text = make(Node::block);
  JinjaNode* const within = text.get();
  TESSERA_ASSIGN(JinjaPtr value, filters(std::move(text)));
  TESSERA_TRY(capture(*within, "endset"));
  node->children.push_back(std::move(value));
  return node;
}

// macro: text: its name; names: parameters; children: the block, then a default for each parameter (may be null).
// call: names: of the caller; children: the block, then the call.
Result<JinjaPtr> JinjaParser::macro_statement(bool call) {
  JinjaPtr node = make(call ? Node::call : Node::macro);
  if (!call) {
    TESSERA_ASSIGN(node->text, name());
  }
  std::vector<JinjaPtr> defaults;
  if (op("(")) TESSERA_TRY(list(")", [&] { return assignment(*node, defaults); }));
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

// A name, and what it becomes: null where that is not said.
Status JinjaParser::assignment(JinjaNode& node, std::vector<JinjaPtr>& values) {
  TESSERA_ASSIGN(std::string variable, name());
  node.names.push_back(std::move(variable));
  values.emplace_back();
  if (!op("=")) return {};
  TESSERA_ASSIGN(values.back(), expression());
  return {};
}

// names: the variables; children: the block, then their values (may be null).
Result<JinjaPtr> JinjaParser::with_statement() {
  JinjaPtr node = make(Node::with);
  std::vector<JinjaPtr> values;
  TESSERA_TRY(list("", [&] { return assignment(*node, values); }));
  TESSERA_TRY(close_tag());
  TESSERA_ASSIGN(JinjaPtr body, block({"endwith"}));
  TESSERA_TRY(end_block("endwith"));
  node->children.push_back(std::move(body));
  for (JinjaPtr& value : values) node->children.push_back(std::move(value));
  return node;
}

// The output of filters of a block.
Result<JinjaPtr> JinjaParser::filter_statement() {
  JinjaPtr node = make(Node::output), text = make(Node::block);
  JinjaNode* const within = text.get();
  TESSERA_ASSIGN(JinjaPtr value, filter(std::move(text)));
  TESSERA_ASSIGN(value, filters(std::move(value)));
  TESSERA_TRY(capture(*within, "endfilter"));
  node->children.push_back(std::move(value));
  return node;
}

// The end of a statement, and the block up to `end` as the statements of `into`.
Status JinjaParser::capture(JinjaNode& into, std::string_view end) {
  TESSERA_TRY(close_tag());
  TESSERA_ASSIGN(const JinjaPtr body, block({end}));
  into.children = std::move(body->children);
  return end_block(end);
}

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
  return JinjaParser(source, std::move(tokens)).run();
}

}  // namespace tessera::text
