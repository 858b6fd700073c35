#include <cmath>

#include "text/jinja_renderer.h"
#include "text/unicode.h"

namespace tessera::text {

using Node = JinjaNode::Kind;

Value JinjaRenderer::look_up(std::string_view name) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    steps_ += scope->size() / 16;  // charge() looks when the name's node is left
    for (const auto& [key, value] : *scope)
      if (key == name) return value;
  }
  return {};
}

void JinjaRenderer::assign(const std::string& name, Value value) {
  steps_ += scopes_.back().size() / 16;
  for (auto& [key, old] : scopes_.back()) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  scopes_.back().emplace_back(name, std::move(value));
}

Result<JinjaRenderer::Flow> JinjaRenderer::block(const JinjaNode& node, std::string& out) {
  for (const JinjaPtr& child : node.children) {
    TESSERA_ASSIGN(const Flow flow, statement(*child, out));
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Result<JinjaRenderer::Flow> JinjaRenderer::statement(const JinjaNode& node, std::string& out) {
  TESSERA_TRY(charge(node, 1));
  const Deeper deeper(depth_);
  if (depth_ > kMaxDepth) return bad(node, "the template nests too deep", Code::iteration_limit);
  switch (node.kind) {
    case Node::text:
      out += node.text;
      break;
    case Node::output: {
      TESSERA_ASSIGN(const Value value, evaluate(*node.children[0]));
      TESSERA_TRY(charge(node, value.weight() / 4));
      out += value.text();
      break;
    }
    case Node::block:
      return block(node, out);
    case Node::if_: {
      TESSERA_ASSIGN(const Value condition, evaluate(*node.children[0]));
      if (condition.truth()) return block(*node.children[1], out);
      return node.children[2] ? statement(*node.children[2], out) : Flow::on;
    }
    case Node::for_:
      return loop(node, out);
    case Node::set:
      TESSERA_TRY(set(node));
      break;
    case Node::macro:
      assign(node.text, Value(std::make_shared<const Macro>(Macro{&node})));
      break;
    case Node::call: {
      TESSERA_ASSIGN(const Value text, invoke(*node.children[1], &node));
      out += text.text();
      break;
    }
    case Node::with: {
      // The values do not see each other.
      Scope scope;
      for (size_t i = 0; i < node.names.size(); ++i) {
        Value value;
        if (node.children[i + 1]) {
          TESSERA_ASSIGN(value, evaluate(*node.children[i + 1]));
        }
        scope.emplace_back(node.names[i], std::move(value));
      }
      scopes_.push_back(std::move(scope));
      const Result<Flow> flow = block(*node.children[0], out);
      scopes_.pop_back();
      return flow;
    }
    case Node::do_: {
      TESSERA_ASSIGN([[maybe_unused]] const Value value, evaluate(*node.children[0]));
      break;
    }
    case Node::break_:
      return Flow::break_;
    case Node::continue_:
      return Flow::continue_;
    default:
      return bad(node, "a statement is missing");
  }
  if (out.size() > options_.max_output) return bad(node, "the template writes too much", Code::iteration_limit);
  TESSERA_TRY(charge(node, node.kind == Node::text ? node.text.size() / 64 : 0));
  return Flow::on;
}

Status JinjaRenderer::unpack(const JinjaNode& node, const Value& value, Scope& scope) const {
  if (node.names.size() == 1) {
    scope.emplace_back(node.names[0], value);
    return {};
  }
  const ValueList* items = value.items();
  if (items == nullptr || items->size() != node.names.size())
    return bad(node, fmt::format("{} cannot be unpacked into {} variables", value.type_name(), node.names.size()));
  for (size_t i = 0; i < items->size(); ++i) scope.emplace_back(node.names[i], (*items)[i]);
  return {};
}

Result<JinjaRenderer::Flow> JinjaRenderer::loop(const JinjaNode& node, std::string& out) {
  TESSERA_ASSIGN(const Value walked, evaluate(*node.children[0]));
  ValueList items;
  if (const ValueList* list = walked.items()) {
    items = *list;
  } else if (const ValueDict* fields = walked.fields()) {
    for (const auto& [key, value] : *fields) items.push_back(key);
  } else if (const std::string* text = walked.string()) {
    for (size_t at = 0; at < text->size();) {
      const Utf8Step step = utf8_step(*text, at);
      const size_t length = std::max<size_t>(1, step.valid);
      items.emplace_back(text->substr(at, length));
      at += length;
    }
  } else if (!walked.is_undefined()) {
    return bad(node, fmt::format("{} cannot be walked", walked.type_name()));
  }
  TESSERA_TRY(charge(node, items.size()));
  if (node.children[1]) {
    ValueList kept;
    for (Value& item : items) {
      scopes_.emplace_back();
      TESSERA_TRY(unpack(node, item, scopes_.back()));
      TESSERA_ASSIGN(const Value condition, evaluate(*node.children[1]));
      scopes_.pop_back();
      if (condition.truth()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty() && node.children[3]) return block(*node.children[3], out);
  const auto count = static_cast<int64_t>(items.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    Scope scope;
    TESSERA_TRY(unpack(node, items[at], scope));
    ValueDict facts = {{"index", i + 1},        {"index0", i},
                       {"revindex", count - i}, {"revindex0", count - i - 1},
                       {"first", i == 0},       {"last", i + 1 == count},
                       {"length", count}};
    facts.emplace_back("previtem", i > 0 ? items[at - 1] : Value());
    facts.emplace_back("nextitem", i + 1 < count ? items[at + 1] : Value());
    scope.emplace_back("loop", Value::dict(std::move(facts)));
    scopes_.push_back(std::move(scope));
    const Result<Flow> flow = block(*node.children[2], out);
    scopes_.pop_back();
    if (!flow) return flow;
    if (*flow == Flow::break_) break;
    TESSERA_TRY(charge(node, 1));
  }
  return Flow::on;
}

Status JinjaRenderer::set(const JinjaNode& node) {
  TESSERA_ASSIGN(Value value, evaluate(*node.children.back()));
  if (!node.names.empty()) {
    Scope pairs;
    TESSERA_TRY(unpack(node, value, pairs));
    for (auto& [name, part] : pairs) assign(name, std::move(part));
    return {};
  }
  TESSERA_ASSIGN(Value object, evaluate(*node.children[0]));
  // A namespace that held itself would never be freed.
  if (value.depth() >= Value::kMaxDepth) return bad(node, kTooDeep, Code::iteration_limit);
  if (!object.set_field(node.text, value))
    return bad(node, fmt::format("{} is no namespace: its attributes cannot be set", object.type_name()));
  return charge(node, object.fields()->size() / 16);
}

Result<std::string> JinjaRenderer::run(const JinjaNode& root, const Value& context) {
  scopes_.emplace_back();
  if (const ValueDict* fields = context.fields())
    for (const auto& [name, value] : *fields) scopes_.back().emplace_back(name.text(), value);
  std::string out;
  TESSERA_ASSIGN([[maybe_unused]] const Flow flow, block(root, out));
  return out;
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  constexpr size_t longest = size_t{1} << 20;  // bytes
  if (source.size() > longest)
    return fail(Code::template_syntax, "the template has {} bytes, more than {}", source.size(), longest);
  ChatTemplate out;
  TESSERA_ASSIGN(JinjaPtr root, parse_jinja(source));
  out.root_ = std::move(root);
  out.source_ = std::make_shared<const std::string>(source);
  return out;
}

Result<std::string> ChatTemplate::render(const Value& context, const RenderOptions& options) const {
  return JinjaRenderer(*source_, options).run(*root_, context);
}

}  // namespace tessera::text
