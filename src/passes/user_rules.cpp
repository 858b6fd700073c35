#include "passes/user_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/result.h"
#include "base/strings.h"
#include "ir/core_ops.h"
#include "ir/interpreter.h"
#include "ir/lexer.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ops/ops.h"
#include "passes/guards.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

enum class Class : uint8_t { bitwise, real, approx };

struct Written {
  std::string name, source;
  Class kind = Class::real;
  RuleSides sides{ir::Graph(nullptr), ir::Graph(nullptr), {}};
  std::vector<std::pair<std::string, std::string_view>> guards;  // variable, guard
};

class RuleReader {
 public:
  explicit RuleReader(std::string_view text) : text_(text), lexer_(text) {}

  bool at_end() const { return lexer_.peek().kind == ir::TokenKind::end; }

  Result<Written> rule() {
    Written made;
    if (!lexer_.accept("rule")) return lexer_.expected("'rule'");
    TESSERA_ASSIGN(made.name, quoted("the rule's name"));
    if (!lexer_.accept("{")) return lexer_.expected("'{'");
    while (!lexer_.at("graph")) TESSERA_TRY(property(made));
    TESSERA_ASSIGN(made.sides.left, graph());
    TESSERA_ASSIGN(made.sides.right, graph());
    if (!lexer_.accept("}")) return lexer_.expected("'}' behind the two sides");
    return made;
  }

 private:
  Result<std::string> quoted(std::string_view what) {
    if (lexer_.peek().kind != ir::TokenKind::string || lexer_.peek().text.empty()) return lexer_.expected(what);
    return std::string(lexer_.take().text);
  }

  Status property(Written& made) {
    if (lexer_.accept("source")) {
      TESSERA_ASSIGN(made.source, quoted("where the rule comes from, in quotes"));
      return {};
    }
    if (lexer_.accept("tolerance")) {
      const ir::Token token = lexer_.take();
      char* end = nullptr;
      const std::string number(token.text);
      made.sides.tolerance = std::strtod(number.c_str(), &end);
      if (token.kind != ir::TokenKind::number || *end != 0 ||
          !(made.sides.tolerance >= 0 && made.sides.tolerance < 0.1))
        return lexer_.fail_at(token.begin, "a tolerance is a number from 0 to 0.1");
      return {};
    }
    if (lexer_.accept("class")) {
      if (lexer_.accept("bitwise")) {
        made.kind = Class::bitwise;
      } else if (lexer_.accept("real")) {
        made.kind = Class::real;
      } else if (lexer_.accept("approx")) {
        made.kind = Class::approx;
      } else {
        return lexer_.expected("'bitwise', 'real' or 'approx'");
      }
      return {};
    }
    if (lexer_.accept("guard")) {
      TESSERA_ASSIGN(std::string variable, quoted("the name of a variable, in quotes"));
      for (const Guard& guard : guards())
        if (lexer_.accept(guard.name)) {
          made.guards.emplace_back(std::move(variable), guard.name);
          return {};
        }
      return lexer_.expected("a guard: 'constant', 'row' or 'finite'");
    }
    return lexer_.expected("'class', 'tolerance', 'source', 'guard' or a graph");
  }

  // The text up to the brace that closes the graph; lines before it stay as empty ones, so that errors tell its place.
  Result<ir::Graph> graph() {
    const size_t begin = lexer_.peek().begin;
    if (!lexer_.accept("graph")) return lexer_.expected("a graph: the other side");
    int depth = 0;
    for (;;) {
      const ir::Token token = lexer_.take();
      if (token.kind == ir::TokenKind::end) return lexer_.fail_at(begin, "the graph that begins here has no end");
      if (token.kind == ir::TokenKind::unknown)
        return lexer_.fail_at(token.begin, "this starts no word of the grammar");
      if (token.kind != ir::TokenKind::punctuation) continue;
      if (token.text == "{") ++depth;
      if (token.text == "}" && --depth == 0) {
        const auto lines =
            static_cast<size_t>(std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(begin), '\n'));
        const size_t end = token.begin + 1;
        return ir::parse_graph(std::string(lines, '\n') + std::string(text_.substr(begin, end - begin)), ops::find_op);
      }
    }
  }

  std::string_view text_;
  ir::Lexer lexer_;
};

// Whether an attribute names a symbol: such a node cannot be made over other sizes.
bool names_sizes(const ir::AttrValue& value) {
  const auto symbolic = [](const Dim& d) { return !d.is_const(); };
  if (const auto* shape = std::get_if<Shape>(&value)) return std::any_of(shape->begin(), shape->end(), symbolic);
  const auto* view = std::get_if<ir::View>(&value);
  if (view == nullptr) return false;
  if (std::any_of(view->offsets.begin(), view->offsets.end(), symbolic)) return true;
  for (const auto& axis : view->axes)
    for (const ir::ViewAtom& atom : axis)
      if (symbolic(atom.size) || symbolic(atom.stride)) return true;
  return false;
}

Status check_form(Written& rule) {
  const auto wrong = [&](std::string_view what) { return fail(Code::graph_invalid, "rule '{}': {}", rule.name, what); };
  ir::Graph &left = rule.sides.left, &right = rule.sides.right;
  if (left.outputs.size() != 1 || right.outputs.size() != 1) return wrong("each side has one output");
  if (left.inputs.size() != right.inputs.size() || left.inputs.empty())
    return wrong("both sides have the same inputs, one at least");
  std::vector<ir::ValueId> order;
  for (ir::ValueId v : left.inputs) {
    const std::string_view name = left.value_name(v);
    const auto same = std::find_if(right.inputs.begin(), right.inputs.end(),
                                   [&](ir::ValueId other) { return right.value_name(other) == name; });
    if (same == right.inputs.end()) return wrong(fmt::format("the right side has no input '{}'", name));
    if (to_string(*left.type(v)) != to_string(*right.type(*same)))
      return wrong(fmt::format("input '{}' is {} on the left and {} on the right", name, to_string(*left.type(v)),
                               to_string(*right.type(*same))));
    if (!left.type(v)->is_tensor() || !left.type(v)->ranked || left.type(v)->dtype == DType::string)
      return wrong(fmt::format("input '{}' is no tensor of known rank", name));
    order.push_back(*same);
    rule.sides.names.emplace_back(name);
  }
  right.reorder_inputs(std::move(order));
  for (ir::NodeId n = 0; n < right.node_count(); ++n)
    for (const ir::AttrValue& value : right.node(n).attrs->values)
      if (names_sizes(value) || right.node(n).n_regions > 0)
        return wrong(fmt::format("{} on the right depends on sizes of the left", right.describe(n)));
  const ir::NodeId root = left.value(left.outputs[0]).def;
  if (root == ir::kNoNode || left.node(root).op == &ir::core::constant || left.node(root).op == &ir::core::view)
    return wrong("the left side computes nothing");
  for (const auto& [variable, guard] : rule.guards)
    if (std::find(rule.sides.names.begin(), rule.sides.names.end(), variable) == rule.sides.names.end())
      return wrong(fmt::format("guard {} is of '{}', which is no input", guard, variable));
  return {};
}

Tensor draw(const ir::Type& type, const DimTable& dims, const DimBindings& sizes, std::mt19937& random) {
  Dims shape;
  for (Dim d : type.shape) shape.push_back(d.is_const() ? d.value() : dims.evaluate(d, sizes).value_or(1));
  Result<Tensor> tensor = Tensor::make(type.dtype, std::move(shape));
  TESSERA_CHECK(tensor.has_value());
  for (int64_t i = 0; i < tensor->count(); ++i) {
    if (is_float(type.dtype)) {
      encode(type.dtype, tensor->mutable_data(), i, std::uniform_real_distribution<double>(-2, 2)(random));
    } else {
      encode_int(type.dtype, tensor->mutable_data(), i, static_cast<int64_t>(random() % 2));
    }
  }
  return std::move(*tensor);
}

// Both sides on the same inputs; the sizes that they had.
Status compare_sides(const Written& rule, std::mt19937& random) {
  const ir::Graph& left = rule.sides.left;
  DimBindings sizes(static_cast<size_t>(left.dims().symbol_count()));
  for (auto& size : sizes) size = 1 + static_cast<int64_t>(random() % 5);
  std::vector<ir::RefValue> inputs;
  std::string shapes;
  for (ir::ValueId v : left.inputs) {
    const Tensor tensor = draw(*left.type(v), left.dims(), sizes, random);
    shapes += fmt::format("{}{} [{}]", shapes.empty() ? "" : ", ", left.value_name(v), joined(tensor.shape(), ", "));
    TESSERA_ASSIGN(ir::RefValue value, ir::to_ref(Value(tensor)));
    inputs.push_back(std::move(value));
  }
  TESSERA_ASSIGN(const std::vector<ir::RefValue> a, ir::Interpreter().run(left, inputs));
  TESSERA_ASSIGN(const std::vector<ir::RefValue> b, ir::Interpreter().run(rule.sides.right, inputs));
  TESSERA_ASSIGN(const Value first, ir::from_ref(a[0]));
  TESSERA_ASSIGN(const Value second, ir::from_ref(b[0]));
  const Tensor *x = first.tensor(), *y = second.tensor();
  if (x == nullptr || y == nullptr || x->dtype() != y->dtype() || x->shape() != y->shape())
    return fail(Code::graph_invalid, "rule '{}': its sides give other types or shapes for {}", rule.name, shapes);
  double largest = 0;
  for (int64_t i = 0; i < x->count(); ++i)
    if (const double value = std::fabs(decode(x->dtype(), x->data(), i)); std::isfinite(value))
      largest = std::max(largest, value);
  const double allowed = rule.kind == Class::bitwise ? 0 : rule.kind == Class::real ? 1e-5 : 0.05;
  for (int64_t i = 0; i < x->count(); ++i) {
    const double p = decode(x->dtype(), x->data(), i), q = decode(y->dtype(), y->data(), i);
    const bool same = p == q || (std::isnan(p) && std::isnan(q));
    if (!same && !(std::fabs(p - q) <= allowed * std::max(largest, 1e-30)))
      return fail(Code::graph_invalid, "rule '{}': for {} its left side gives {} and its right side {} at element {}",
                  rule.name, shapes, p, q, i);
  }
  return {};
}

}  // namespace

bool UserRules::has(std::string_view name) const {
  return std::any_of(rules_.begin(), rules_.end(), [&](const Rule& rule) { return rule.name == name; });
}

Result<std::shared_ptr<const UserRules>> parse_rules(std::string_view text) {
  auto made = std::make_shared<UserRules>();
  RuleReader reader(text);
  while (!reader.at_end()) {
    TESSERA_ASSIGN(Written written, reader.rule());
    if (made->has(written.name)) return fail(Code::duplicate_name, "there are two rules '{}'", written.name);
    TESSERA_TRY(check_form(written));
    std::mt19937 random(7);
    constexpr int kDraws = 16;
    for (int i = 0; i < kDraws; ++i) TESSERA_TRY(compare_sides(written, random));
    made->texts_.push_back(std::move(written.name));
    const std::string_view name = made->texts_.back();
    made->texts_.push_back(std::move(written.source));
    Rule rule{name, nullptr, {}, {}, {}, 1, made->texts_.back()};
    for (const std::string& variable : written.sides.names) {
      RuleOperand operand{true, {}};
      for (const auto& [guarded, guard] : written.guards)
        if (guarded == variable)
          for (const Guard& known : guards())
            if (known.name == guard) operand.guard = known.holds, operand.why = known.why;
      rule.operands.push_back(operand);
    }
    rule.approximate = written.kind == Class::approx;
    rule.bitwise = written.kind == Class::bitwise;
    rule.sides = std::make_shared<const RuleSides>(std::move(written.sides));
    made->rules_.push_back(std::move(rule));
    made->plain_.add_sides(made->rules_.back(), nullptr);
    made->raised_.add_sides(made->rules_.back(), &built_in_rules());
  }
  return std::shared_ptr<const UserRules>(std::move(made));
}

}  // namespace tessera::passes
