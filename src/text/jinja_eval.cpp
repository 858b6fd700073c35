#include <cmath>
#include <ctime>
#include <optional>

#include "text/jinja_format.h"
#include "text/jinja_renderer.h"

namespace tessera::text {

using Node = JinjaNode::Kind;

Result<Value> JinjaRenderer::evaluate(const JinjaNode& node) {
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

Result<Value> JinjaRenderer::evaluate_plain(const JinjaNode& node) {
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
    case Node::block: {  // what a block writes, as a value
      std::string text;
      TESSERA_ASSIGN([[maybe_unused]] const Flow flow, block(node, text));
      return Value(std::move(text));
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
      return object.field(node.text);
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

Result<Value> JinjaRenderer::binary(const JinjaNode& node) {
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

Result<bool> JinjaRenderer::contains(const JinjaNode& node, const Value& value, const Value& in) const {
  if (const ValueList* items = in.items()) return std::find(items->begin(), items->end(), value) != items->end();
  if (in.fields() != nullptr)
    return std::any_of(in.fields()->begin(), in.fields()->end(), [&](const auto& f) { return f.first == value; });
  if (in.string() != nullptr && value.string() != nullptr)
    return in.string()->find(*value.string()) != std::string::npos;
  if (in.is_undefined() || (!in.is_null() && (value.is_undefined() || value.is_null()))) return false;
  return bad(node, fmt::format("{} cannot be looked for in {}", value.type_name(), in.type_name()));
}

Result<Value> JinjaRenderer::compute(const JinjaNode& node, const Value& left, const Value& right) {
  const std::string& op = node.text;
  const bool texts = left.string() != nullptr || right.string() != nullptr;
  if (op == "~" || (op == "+" && texts)) {
    TESSERA_TRY(charge(node, left.weight()));
    TESSERA_TRY(charge(node, right.weight()));
    if (op == "+" && (left.is_undefined() || right.is_undefined() || left.is_null() || right.is_null()))
      return bad(node, fmt::format("{} and {} cannot be added", left.type_name(), right.type_name()));
    const Arguments comma{{Value(",")}, {}};  // a list beside a text is its items, as the JavaScript reference has it
    std::string joined;
    for (const Value* side : {&left, &right}) {
      TESSERA_ASSIGN(const Value text, side->items() == nullptr ? *side : apply_filter("join", *side, comma));
      joined += text.text();
    }
    return Value(std::move(joined));
  }
  if (op == "+" && left.items() != nullptr && right.items() != nullptr) {
    ValueList joined = *left.items();
    joined.insert(joined.end(), right.items()->begin(), right.items()->end());
    return Value::list(std::move(joined));
  }
  if (op == "%" && left.string() != nullptr) {
    TESSERA_TRY(charge(node, cost_of("format", left, {{right}, {}})));
    return located(node, format_percent(*left.string(), right));
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

Result<Value> JinjaRenderer::item(const JinjaNode& node) {
  TESSERA_ASSIGN(const Value object, evaluate(*node.children[0]));
  TESSERA_ASSIGN(const Value index, evaluate(*node.children[1]));
  if (object.items() == nullptr) TESSERA_TRY(charge(node, object.size() / 8));
  if (index.string() != nullptr) return object.field(*index.string());
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
Result<Value> JinjaRenderer::slice(const JinjaNode& node) {
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
  if (parts[2] == 0) return bad(node, "a slice's step is 0");
  const int64_t step = std::clamp(parts[2].value_or(1), -size - 1, size + 1);  // farther steps leave the same
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

Result<Arguments> JinjaRenderer::arguments(const JinjaNode& node, size_t first) {
  Arguments out;
  for (size_t i = first; i < node.children.size(); ++i) {
    const JinjaNode& child = *node.children[i];
    if (child.kind == Node::spread) {
      TESSERA_TRY(spread(child, out));
      continue;
    }
    const bool keyword = child.kind == Node::keyword;
    TESSERA_ASSIGN(Value value, evaluate(keyword ? *child.children[0] : child));
    keyword ? void(out.named.emplace_back(child.text, std::move(value))) : out.values.push_back(std::move(value));
  }
  return out;
}

// *items, or **fields.
Status JinjaRenderer::spread(const JinjaNode& node, Arguments& out) {
  TESSERA_ASSIGN(const Value value, evaluate(*node.children[0]));
  const bool named = node.text == "**";
  if (named ? value.fields() == nullptr : value.items() == nullptr)
    return bad(node, fmt::format("{} cannot be unpacked by '{}'", value.type_name(), node.text));
  TESSERA_TRY(charge(node, value.size()));
  if (!named) out.values.insert(out.values.end(), value.items()->begin(), value.items()->end());
  for (size_t i = 0; named && i < value.fields()->size(); ++i) {
    const auto& [key, field] = (*value.fields())[i];
    out.named.emplace_back(key.text(), field);
  }
  return {};
}

Result<Value> JinjaRenderer::invoke(const JinjaNode& node, const JinjaNode* caller) {
  const JinjaNode& callee = *node.children[0];
  TESSERA_ASSIGN(const Arguments given, arguments(node, 1));
  if (callee.kind == Node::attribute) {
    TESSERA_ASSIGN(const Value object, evaluate(*callee.children[0]));
    if (const Value own = object.field(callee.text); own.macro() != nullptr) return call(node, own, given, caller);
    // In ' '.join(list) the list is what is joined.
    const bool joins = callee.text == "join" && !given.values.empty();
    TESSERA_TRY(
        charge(node, joins ? cost_of("join", given.values[0], {{object}, {}}) : cost_of(callee.text, object, given)));
    return located(node, call_method(object, callee.text, given));
  }
  TESSERA_ASSIGN(const Value value, evaluate(callee));
  return call(node, value, given, caller);
}

Result<Value> JinjaRenderer::call(const JinjaNode& node, const Value& value, const Arguments& given,
                                  const JinjaNode* caller) {
  const Macro* macro = value.macro();
  if (macro == nullptr) return bad(node, fmt::format("{} cannot be called", value.type_name()));
  if (macro->node == nullptr) return native(node, macro->native, given);
  return run_macro(node, *macro, given, caller);
}

// A macro sees the outermost variables and its own; `varargs` and `kwargs` are what it has no names for.
Result<Value> JinjaRenderer::run_macro(const JinjaNode& node, const Macro& macro, const Arguments& given,
                                       const JinjaNode* caller) {
  const std::vector<std::string>& names = macro.node->names;
  Scope scope;
  ValueList more;
  for (size_t i = names.size(); i < given.values.size(); ++i) more.push_back(given.values[i]);
  ValueDict fields;
  for (const auto& [name, value] : given.named)
    if (std::find(names.begin(), names.end(), name) == names.end()) fields.emplace_back(name, value);
  scope.emplace_back("varargs", Value::list(std::move(more)));
  scope.emplace_back("kwargs", Value::dict(std::move(fields)));
  for (size_t i = 0; i < names.size(); ++i) scope.emplace_back(names[i], given.get(i, names[i]));
  if (caller != nullptr || macro.seen != nullptr)
    for (const Scope& each : macro.seen != nullptr ? *macro.seen : scopes_) TESSERA_TRY(charge(node, each.size()));
  if (caller != nullptr) {
    auto seen = std::make_shared<const std::vector<Scope>>(scopes_);
    scope.emplace_back("caller", Value(std::make_shared<const Macro>(Macro{caller, {}, std::move(seen)})));
  }
  std::vector<Scope> outer = std::move(scopes_);
  scopes_.clear();
  if (macro.seen != nullptr)
    scopes_ = *macro.seen;
  else
    scopes_.push_back(std::move(outer[0]));
  scopes_.push_back(std::move(scope));
  Result<Value> text = macro_body(*macro.node);
  if (macro.seen == nullptr) outer[0] = std::move(scopes_[0]);
  scopes_ = std::move(outer);
  return text;
}

Result<Value> JinjaRenderer::macro_body(const JinjaNode& macro) {
  for (size_t i = 0; macro.kind == Node::macro && i < macro.names.size(); ++i) {
    if (!macro.children[i + 1] || !look_up(macro.names[i]).is_undefined()) continue;
    TESSERA_ASSIGN(Value value, evaluate(*macro.children[i + 1]));
    assign(macro.names[i], std::move(value));
  }
  std::string out;
  TESSERA_ASSIGN([[maybe_unused]] const Flow flow, block(*macro.children[0], out));
  return Value(std::move(out));
}

Result<Value> JinjaRenderer::native(const JinjaNode& node, std::string_view name, const Arguments& given) {
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

}  // namespace tessera::text
