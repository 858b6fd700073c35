#include "plan/sizes.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::plan {
namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

// Deep expressions are cut off: they are for reading.
constexpr int kPrintDepth = 12;

std::string print_at(const Routine& routine, ExprId id, int depth) {
  const Expr& e = routine.exprs[id];
  if (e.op == ExprOp::constant) return std::to_string(e.value);
  if (e.op == ExprOp::symbol) return routine.symbols[e.a].name;
  if (depth == 0) return "...";
  const std::string a = print_at(routine, e.a, depth - 1), b = print_at(routine, e.b, depth - 1);
  auto factor = [&](ExprId operand, const std::string& text) {
    return routine.exprs[operand].op == ExprOp::add ? "(" + text + ")" : text;
  };
  switch (e.op) {
    case ExprOp::add:
      return a + " + " + b;
    case ExprOp::multiply:
      return factor(e.a, a) + "*" + factor(e.b, b);
    case ExprOp::floordiv:
      return "floordiv(" + a + ", " + b + ")";
    case ExprOp::min:
      return "min(" + a + ", " + b + ")";
    default:
      return "max(" + a + ", " + b + ")";
  }
}

}  // namespace

Sizes::Sizes(const Routine& routine, const Bindings& symbols)
    : values_(routine.exprs.size(), 0), states_(routine.exprs.size(), State::open) {
  for (ExprId id = 0; id < routine.exprs.size(); ++id) {
    states_[id] = evaluate(routine.exprs[id], symbols, values_[id]);
    if (states_[id] == State::open) open_.push_back(id);
  }
}

void Sizes::update(const Routine& routine, const Bindings& symbols) {
  // Operands come before users, so one pass in order settles all that can be settled.
  std::erase_if(open_, [&](ExprId id) {
    states_[id] = evaluate(routine.exprs[id], symbols, values_[id]);
    return states_[id] != State::open;
  });
}

Sizes::State Sizes::evaluate(const Expr& expr, const Bindings& symbols, int64_t& value) const {
  if (expr.op == ExprOp::constant) {
    value = expr.value;
    return State::known;
  }
  if (expr.op == ExprOp::symbol) {
    if (!symbols[expr.a]) return State::open;
    value = *symbols[expr.a];
    return State::known;
  }
  if (states_[expr.a] != State::known) return states_[expr.a];
  if (states_[expr.b] != State::known) return states_[expr.b];
  const int64_t a = values_[expr.a], b = values_[expr.b];
  switch (expr.op) {
    case ExprOp::add:
      return __builtin_add_overflow(a, b, &value) ? State::impossible : State::known;
    case ExprOp::multiply:
      return __builtin_mul_overflow(a, b, &value) ? State::impossible : State::known;
    case ExprOp::floordiv:
      if (b == 0 || (a == INT64_MIN && b == -1)) return State::impossible;
      value = floor_div(a, b);
      return State::known;
    case ExprOp::min:
      value = std::min(a, b);
      return State::known;
    default:
      value = std::max(a, b);
      return State::known;
  }
}

std::string print(const Routine& routine, ExprId id) { return print_at(routine, id, kPrintDepth); }

std::string print_shape(const Routine& routine, ValueId value) {
  if (!routine.values[value].ranked) return "[*]";
  std::string text = "[";
  for (ExprId size : routine.shape(value)) text += (text.size() > 1 ? ", " : "") + print(routine, size);
  return text + "]";
}

}  // namespace tessera::plan
