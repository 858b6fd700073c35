#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/jinja.h"
#include "text/unicode.h"

namespace tessera::text {

using Scope = std::vector<std::pair<std::string, Value>>;

// What a macro's name stands for; `native` is a function of ours instead.
struct Macro {
  const JinjaNode* node = nullptr;
  std::string native = {};
};

namespace {

using Node = JinjaNode::Kind;
constexpr std::string_view kTooDeep = "a list or mapping nests too deep, or holds a namespace";
constexpr int kMaxDepth = 400;  // of evaluations in each other: expressions nest 200, macros call macros

enum class Flow : uint8_t { on, break_, continue_ };

class Renderer {
 public:
  Renderer(std::string_view source, const RenderOptions& options) : source_(source), options_(options) {}
  Result<std::string> run(const JinjaNode& root, const Value& context);

 private:
  tl::unexpected<Error> bad(const JinjaNode& node, std::string_view what, Code code = Code::template_failed) const {
    return fail(code, "{}", at_line(source_, node.line, what));
  }
  // Errors of filters and methods get the line.
  template <class T>
  Result<T> located(const JinjaNode& node, Result<T> result) const {
    if (!result) return bad(node, result.error().message, result.error().code);
    return result;
  }
  Status charge(const JinjaNode& node, uint64_t steps) {
    steps_ += std::min(steps, options_.max_steps + 1);
    if (steps_ > options_.max_steps) return bad(node, "the template runs too long", Code::iteration_limit);
    return {};
  }
  Value look_up(std::string_view name);
  void assign(const std::string& name, Value value);

  Result<Flow> block(const JinjaNode& node, std::string& out);
  Result<Flow> statement(const JinjaNode& node, std::string& out);
  Result<Flow> loop(const JinjaNode& node, std::string& out);
  Status set(const JinjaNode& node);
  Status unpack(const JinjaNode& node, const Value& value, Scope& scope) const;
  Result<Value> evaluate(const JinjaNode& node);
  Result<Value> evaluate_plain(const JinjaNode& node);
  Result<Value> binary(const JinjaNode& node);
  Result<Value> compute(const JinjaNode& node, const Value& left, const Value& right);
  Result<bool> contains(const JinjaNode& node, const Value& value, const Value& in) const;
  Result<Value> attribute(const JinjaNode& node, const Value& object, std::string_view name) const;
  Result<Value> item(const JinjaNode& node);
  Result<Value> slice(const JinjaNode& node);
  Result<Value> invoke(const JinjaNode& node, const JinjaNode* caller);
  Result<Value> run_macro(const JinjaNode& macro, const Arguments& arguments, const JinjaNode* caller);
  Result<Value> native(const JinjaNode& node, std::string_view name, const Arguments& arguments);
  Result<Arguments> arguments(const JinjaNode& node, size_t first);

  std::string_view source_;
  RenderOptions options_;
  std::vector<Scope> scopes_;
  uint64_t steps_ = 0;
  int depth_ = 0;
};

Value Renderer::look_up(std::string_view name) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    steps_ += scope->size() / 16;  // charge() looks when the name's node is left
    for (const auto& [key, value] : *scope)
      if (key == name) return value;
  }
  return {};
}

void Renderer::assign(const std::string& name, Value value) {
  steps_ += scopes_.back().size() / 16;
  for (auto& [key, old] : scopes_.back()) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  scopes_.back().emplace_back(name, std::move(value));
}

Result<Flow> Renderer::block(const JinjaNode& node, std::string& out) {
  for (const JinjaPtr& child : node.children) {
    TESSERA_ASSIGN(const Flow flow, statement(*child, out));
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Result<Flow> Renderer::statement(const JinjaNode& node, std::string& out) {
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
    case Node::set_block:
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
    case Node::filter_block: {
      std::string inner;
      TESSERA_ASSIGN(const Flow flow, block(*node.children[0], inner));
      TESSERA_ASSIGN(const Arguments given, arguments(node, 1));
      const Value text(std::move(inner));
      TESSERA_TRY(charge(node, cost_of(node.text, text, given)));
      TESSERA_ASSIGN(const Value value, located(node, apply_filter(node.text, text, given)));
      out += value.text();
      return flow;
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

Status Renderer::unpack(const JinjaNode& node, const Value& value, Scope& scope) const {
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

Result<Flow> Renderer::loop(const JinjaNode& node, std::string& out) {
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
  } else {
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

Status Renderer::set(const JinjaNode& node) {
  Value value;
  const JinjaNode& last = *node.children.back();
  if (node.kind == Node::set_block) {
    std::string text;
    TESSERA_ASSIGN([[maybe_unused]] const Flow flow, block(last, text));
    value = std::move(text);
  } else {
    TESSERA_ASSIGN(value, evaluate(last));
  }
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

Result<Value> Renderer::evaluate(const JinjaNode& node) {
  TESSERA_TRY(charge(node, 1));
  const Deeper deeper(depth_);
  if (depth_ > kMaxDepth) return bad(node, "the template nests too deep", Code::iteration_limit);
  TESSERA_ASSIGN(Value value, evaluate_plain(node));
  if (value.depth() > Value::kMaxDepth) return bad(node, kTooDeep, Code::iteration_limit);
  // What is only looked up is shared; all else may have been made.
  const bool looked_up = node.kind == Node::name || node.kind == Node::literal || node.kind == Node::attribute ||
                         node.kind == Node::item || node.kind == Node::choice;
  TESSERA_TRY(charge(node, looked_up ? 0 : value.size()));
  return value;
}

Result<Value> Renderer::evaluate_plain(const JinjaNode& node) {
  switch (node.kind) {
    case Node::literal:
      return node.value;
    case Node::name: {
      Value value = look_up(node.text);
      if (!value.is_undefined()) return value;
      for (std::string_view name : {"raise_exception", "range", "strftime_now", "namespace", "dict"})
        if (node.text == name) return Value(std::make_shared<const Macro>(Macro{nullptr, node.text}));
      return value;
    }
    case Node::list: {
      ValueList items;
      for (const JinjaPtr& child : node.children) {
        TESSERA_ASSIGN(Value value, evaluate(*child));
        items.push_back(std::move(value));
      }
      return Value::list(std::move(items));
    }
    case Node::dict: {
      ValueDict fields;
      for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
        TESSERA_ASSIGN(const Value key, evaluate(*node.children[i]));
        TESSERA_ASSIGN(Value value, evaluate(*node.children[i + 1]));
        TESSERA_TRY(charge(node, fields.size() / 16));
        if (key.string() == nullptr && !key.is_number() && key.get<bool>() == nullptr)
          return bad(node, fmt::format("{} cannot be a key", key.type_name()));
        const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& f) { return f.first == key; });
        found != fields.end() ? void(found->second = std::move(value))
                              : void(fields.emplace_back(key, std::move(value)));
      }
      return Value::dict(std::move(fields));
    }
    case Node::attribute: {
      TESSERA_ASSIGN(const Value object, evaluate(*node.children[0]));
      TESSERA_TRY(charge(node, object.size() / 16));
      return attribute(node, object, node.text);
    }
    case Node::item:
      return item(node);
    case Node::slice:
      return slice(node);
    case Node::invoke:
      return invoke(node, nullptr);
    case Node::filter: {
      TESSERA_ASSIGN(const Value value, evaluate(*node.children[0]));
      TESSERA_ASSIGN(const Arguments given, arguments(node, 1));
      TESSERA_TRY(charge(node, cost_of(node.text, value, given)));
      return located(node, apply_filter(node.text, value, given));
    }
    case Node::test: {
      TESSERA_ASSIGN(const Value value, evaluate(*node.children[0]));
      TESSERA_ASSIGN(const Arguments given, arguments(node, 1));
      TESSERA_TRY(charge(node, given.values.empty() ? 0 : cost_of(node.text, value, given)));
      TESSERA_ASSIGN(const bool holds, located(node, apply_test(node.text, value, given)));
      return Value(holds);
    }
    case Node::unary: {
      TESSERA_ASSIGN(const Value value, evaluate(*node.children[0]));
      if (node.text == "not") return Value(!value.truth());
      if (!value.is_number()) return bad(node, fmt::format("{} has no sign", value.type_name()));
      if (node.text == "+") return value;
      if (const int64_t* whole = value.get<int64_t>(); whole != nullptr && *whole != INT64_MIN) return Value(-*whole);
      return Value(-value.number());
    }
    case Node::binary:
      return binary(node);
    case Node::choice: {
      TESSERA_ASSIGN(const Value condition, evaluate(*node.children[1]));
      if (condition.truth()) return evaluate(*node.children[0]);
      if (node.children[2]) return evaluate(*node.children[2]);
      return Value();
    }
    default:
      return bad(node, "a value is missing");
  }
}

Result<Value> Renderer::binary(const JinjaNode& node) {
  TESSERA_ASSIGN(const Value left, evaluate(*node.children[0]));
  if (node.text == "and" && !left.truth()) return left;
  if (node.text == "or" && left.truth()) return left;
  TESSERA_ASSIGN(const Value right, evaluate(*node.children[1]));
  if (node.text == "and" || node.text == "or") return right;
  if (node.text == "==" || node.text == "!=") {
    TESSERA_TRY(charge(node, std::min(left.weight(), right.weight())));
    return Value((left == right) == (node.text == "=="));
  }
  if (node.text == "in" || node.text == "not in") {
    TESSERA_TRY(charge(node, cost_of("in", left, {{right}, {}})));
    TESSERA_ASSIGN(const bool found, contains(node, left, right));
    return Value(found == (node.text == "in"));
  }
  return compute(node, left, right);
}

Result<bool> Renderer::contains(const JinjaNode& node, const Value& value, const Value& in) const {
  if (const ValueList* items = in.items()) return std::find(items->begin(), items->end(), value) != items->end();
  if (in.fields() != nullptr)
    return std::any_of(in.fields()->begin(), in.fields()->end(), [&](const auto& f) { return f.first == value; });
  if (in.string() != nullptr && value.string() != nullptr)
    return in.string()->find(*value.string()) != std::string::npos;
  if (in.is_undefined() || in.is_null() || value.is_undefined() || value.is_null()) return false;
  return bad(node, fmt::format("{} cannot be looked for in {}", value.type_name(), in.type_name()));
}

Result<Value> Renderer::compute(const JinjaNode& node, const Value& left, const Value& right) {
  const std::string& op = node.text;
  const bool texts = left.string() != nullptr || right.string() != nullptr;
  if (op == "~" || (op == "+" && texts)) {
    TESSERA_TRY(charge(node, left.weight()));
    TESSERA_TRY(charge(node, right.weight()));
    if (op == "+" && (left.is_undefined() || right.is_undefined() || left.is_null() || right.is_null()))
      return bad(node, fmt::format("{} and {} cannot be added", left.type_name(), right.type_name()));
    return Value(left.text() + right.text());
  }
  if (op == "+" && left.items() != nullptr && right.items() != nullptr) {
    ValueList joined = *left.items();
    joined.insert(joined.end(), right.items()->begin(), right.items()->end());
    return Value::list(std::move(joined));
  }
  if (const int64_t* times = right.get<int64_t>(); op == "*" && left.string() != nullptr && times != nullptr) {
    TESSERA_TRY(charge(node, static_cast<uint64_t>(std::max<int64_t>(*times, 0))));
    TESSERA_TRY(charge(node, left.weight() * static_cast<uint64_t>(std::max<int64_t>(*times, 0)) / 4));
    std::string text;
    for (int64_t i = 0; i < *times; ++i) text += *left.string();
    return Value(std::move(text));
  }
  const bool order = op[0] == '<' || op[0] == '>';
  if (order && left.string() != nullptr && right.string() != nullptr) {
    const int sign = left.string()->compare(*right.string());
    return Value(op == "<" ? sign < 0 : op == ">" ? sign > 0 : op == "<=" ? sign <= 0 : sign >= 0);
  }
  const auto numeric = [](const Value& v) { return v.is_number() || v.get<bool>() != nullptr; };
  if (!numeric(left) || !numeric(right))
    return bad(node, fmt::format("'{}' does not take {} and {}", op, left.type_name(), right.type_name()));
  const double a = left.number(), b = right.number();
  if (order) return Value(op == "<" ? a < b : op == ">" ? a > b : op == "<=" ? a <= b : a >= b);
  if (b == 0 && (op == "/" || op == "//" || op == "%")) return bad(node, "division by zero");
  const double result = op == "+"    ? a + b
                        : op == "-"  ? a - b
                        : op == "*"  ? a * b
                        : op == "/"  ? a / b
                        : op == "//" ? std::floor(a / b)
                        : op == "%"  ? a - b * std::floor(a / b)
                                     : std::pow(a, b);
  const bool whole = left.get<double>() == nullptr && right.get<double>() == nullptr && op != "/";
  if (whole && std::abs(result) < 9e15) return Value(static_cast<int64_t>(result));
  return Value(result);
}

Result<Value> Renderer::attribute(const JinjaNode& node, const Value& object, std::string_view name) const {
  if (object.is_undefined() || object.is_null())
    return bad(node, fmt::format("{} has no attribute '{}'", object.type_name(), name));
  return object.field(name);
}

Result<Value> Renderer::item(const JinjaNode& node) {
  TESSERA_ASSIGN(const Value object, evaluate(*node.children[0]));
  TESSERA_ASSIGN(const Value index, evaluate(*node.children[1]));
  if (object.items() == nullptr) TESSERA_TRY(charge(node, object.size() / 8));
  if (index.string() != nullptr) return attribute(node, object, *index.string());
  if (const ValueDict* fields = object.fields()) {
    const auto found = std::find_if(fields->begin(), fields->end(), [&](const auto& f) { return f.first == index; });
    return found != fields->end() ? found->second : Value();
  }
  const int64_t* place = index.get<int64_t>();
  if (object.is_undefined() || object.is_null() || place == nullptr)
    return bad(node, fmt::format("{} cannot be indexed by {}", object.type_name(), index.type_name()));
  const auto wrap = [&](size_t size) { return *place < 0 ? *place + static_cast<int64_t>(size) : *place; };
  if (const ValueList* items = object.items()) {
    const int64_t at = wrap(items->size());
    return at >= 0 && at < static_cast<int64_t>(items->size()) ? (*items)[static_cast<size_t>(at)] : Value();
  }
  if (object.string() != nullptr) {
    const Arguments none;
    TESSERA_ASSIGN(const Value characters, apply_filter("list", object, none));
    const int64_t at = wrap(characters.items()->size());
    if (at >= 0 && at < static_cast<int64_t>(characters.items()->size()))
      return (*characters.items())[static_cast<size_t>(at)];
  }
  return Value();
}

// Python's slices, of lists and of a string's characters.
Result<Value> Renderer::slice(const JinjaNode& node) {
  TESSERA_ASSIGN(const Value object, evaluate(*node.children[0]));
  const Arguments none;
  if (object.items() == nullptr && object.string() == nullptr)
    return bad(node, fmt::format("{} cannot be sliced", object.type_name()));
  TESSERA_TRY(charge(node, object.size()));
  TESSERA_ASSIGN(const Value list, apply_filter("list", object, none));
  const ValueList& items = *list.items();
  std::optional<int64_t> parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (node.children.size() <= i + 1 || !node.children[i + 1]) continue;
    TESSERA_ASSIGN(const Value part, evaluate(*node.children[i + 1]));
    if (part.is_null() || part.is_undefined()) continue;
    if (part.get<int64_t>() == nullptr) return bad(node, fmt::format("a slice is bounded by {}", part.type_name()));
    parts[i] = *part.get<int64_t>();
  }
  const auto size = static_cast<int64_t>(items.size());
  const int64_t step = parts[2].value_or(1);
  if (step == 0 || step < -size - 1 || step > size + 1) return bad(node, "a slice's step is wrong");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto bound = [&](std::optional<int64_t> value, int64_t otherwise) {
    if (!value) return otherwise;
    return std::clamp(*value < 0 ? *value + size : *value, low, high);
  };
  const int64_t begin = bound(parts[0], step > 0 ? low : high), end = bound(parts[1], step > 0 ? high : low);
  ValueList out;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) out.push_back(items[static_cast<size_t>(i)]);
  if (object.items() != nullptr) return Value::list(std::move(out));
  std::string text;
  for (const Value& item : out) text += *item.string();
  return Value(std::move(text));
}

Result<Arguments> Renderer::arguments(const JinjaNode& node, size_t first) {
  Arguments out;
  for (size_t i = first; i < node.children.size(); ++i) {
    const JinjaNode& child = *node.children[i];
    const bool keyword = child.kind == Node::keyword;
    TESSERA_ASSIGN(Value value, evaluate(keyword ? *child.children[0] : child));
    keyword ? void(out.named.emplace_back(child.text, std::move(value))) : out.values.push_back(std::move(value));
  }
  return out;
}

Result<Value> Renderer::invoke(const JinjaNode& node, const JinjaNode* caller) {
  const JinjaNode& callee = *node.children[0];
  TESSERA_ASSIGN(const Arguments given, arguments(node, 1));
  if (callee.kind == Node::attribute) {
    TESSERA_ASSIGN(const Value object, evaluate(*callee.children[0]));
    // In ' '.join(list) the list is what is joined.
    const bool joins = callee.text == "join" && !given.values.empty();
    TESSERA_TRY(
        charge(node, joins ? cost_of("join", given.values[0], {{object}, {}}) : cost_of(callee.text, object, given)));
    return located(node, call_method(object, callee.text, given));
  }
  TESSERA_ASSIGN(const Value value, evaluate(callee));
  const Macro* macro = value.macro();
  if (macro == nullptr) return bad(node, fmt::format("{} cannot be called", value.type_name()));
  if (macro->node == nullptr) return native(node, macro->native, given);
  return run_macro(*macro->node, given, caller);
}

// A macro sees the outermost variables and its own.
Result<Value> Renderer::run_macro(const JinjaNode& macro, const Arguments& given, const JinjaNode* caller) {
  Scope scope;
  for (size_t i = 0; i < macro.names.size(); ++i) {
    Value value = given.get(i, macro.names[i]);
    const size_t otherwise = i + 1;
    if (value.is_undefined() && macro.kind == Node::macro && macro.children[otherwise]) {
      TESSERA_ASSIGN(value, evaluate(*macro.children[otherwise]));
    }
    scope.emplace_back(macro.names[i], std::move(value));
  }
  if (caller != nullptr) scope.emplace_back("caller", Value(std::make_shared<const Macro>(Macro{caller})));
  std::vector<Scope> outer;
  // The caller's block still sees where it stands.
  const bool isolated = macro.kind == Node::macro;
  if (isolated) {
    outer.assign(std::make_move_iterator(scopes_.begin() + 1), std::make_move_iterator(scopes_.end()));
    scopes_.resize(1);
    // Scopes are put back below; what they hold must stay visible to nobody else.
  }
  scopes_.push_back(std::move(scope));
  std::string out;
  const Result<Flow> flow = block(*macro.children[0], out);
  scopes_.pop_back();
  for (Scope& kept : outer) scopes_.push_back(std::move(kept));
  if (!flow) return tl::unexpected<Error>(flow.error());
  return Value(std::move(out));
}

Result<Value> Renderer::native(const JinjaNode& node, std::string_view name, const Arguments& given) {
  if (name == "raise_exception") return bad(node, given.get(0, "message").text());
  if (name == "strftime_now")
    return Value(format_time(given.get(0, "format").text(), options_.now != 0 ? options_.now : std::time(nullptr)));
  if (name == "namespace" || name == "dict") {
    ValueDict fields;
    if (!given.values.empty() && given.values[0].fields() != nullptr) fields = *given.values[0].fields();
    for (const auto& [key, value] : given.named) fields.emplace_back(key, value);
    return name == "dict" ? Value::dict(std::move(fields)) : Value::name_space(std::move(fields));
  }
  int64_t bounds[3] = {0, 0, 1};
  if (given.values.empty() || given.values.size() > 3) return bad(node, "range takes one to three numbers");
  for (size_t i = 0; i < given.values.size(); ++i) {
    const int64_t* bound = given.values[i].get<int64_t>();
    if (bound == nullptr || std::abs(*bound) > INT32_MAX) return bad(node, "range takes one to three numbers");
    bounds[given.values.size() == 1 ? 1 : i] = *bound;
  }
  if (bounds[2] == 0) return bad(node, "range's step is 0");
  ValueList out;
  for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1]; i += bounds[2]) {
    TESSERA_TRY(charge(node, 1));
    out.emplace_back(i);
  }
  return Value::list(std::move(out));
}

Result<std::string> Renderer::run(const JinjaNode& root, const Value& context) {
  scopes_.emplace_back();
  if (const ValueDict* fields = context.fields())
    for (const auto& [name, value] : *fields) scopes_.back().emplace_back(name.text(), value);
  std::string out;
  TESSERA_ASSIGN([[maybe_unused]] const Flow flow, block(root, out));
  return out;
}

}  // namespace

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
  return Renderer(*source_, options).run(*root_, context);
}

}  // namespace tessera::text
