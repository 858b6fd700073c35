// The sizes of a routine: Dims of the graph as expressions of the plan.
#include <algorithm>

#include "base/result.h"
#include "compile/routine_writer.h"

namespace tessera::compile {

using plan::ExprId;
using plan::ExprOp;
using plan::Symbol;

// Which symbols become known with this value: sizes that are a bare symbol, and known elements that are one.
void RoutineWriter::define_symbols(ir::ValueId value, plan::ValueId planned) {
  const ir::TypeRef type = graph_.type(value);
  if (type->kind != ir::Kind::tensor && type->kind != ir::Kind::state) return;
  const DimTable& table = graph_.dims();
  auto define = [&](Dim dim, Symbol::Source source, size_t index) {
    if (dim.is_const()) return;
    const std::optional<int> symbol = table.symbol_index(dim);
    if (!symbol || resolvable_symbol(*symbol)) return;
    definers_.emplace(*symbol, Definer{source, planned, static_cast<uint32_t>(index)});
  };
  for (size_t axis = 0; axis < type->shape.size(); ++axis) define(type->shape[axis], Symbol::Source::dim, axis);
  if (!is_int(type->dtype) || bits(type->dtype) < 8) return;
  if (auto contents = graph_.contents.find(value); contents != graph_.contents.end())
    for (size_t i = 0; i < contents->second.size(); ++i) define(contents->second[i], Symbol::Source::element, i);
}

// Sizes made of symbols that nothing decides, "2*n": read off the value as a whole.
void RoutineWriter::define_sizes(ir::TypeRef type, plan::ValueId planned) {
  for (size_t axis = 0; axis < type->shape.size(); ++axis) {
    const Dim dim = type->shape[axis];
    if (resolvable(dim)) continue;
    dims_[dim] =
        out_.add_symbol({to_string(dim), 0, INT64_MAX, Symbol::Source::dim, planned, static_cast<uint32_t>(axis)});
  }
}

bool RoutineWriter::resolvable_symbol(int index) const {
  return definers_.contains(index) || (parent_ != nullptr && parent_->resolvable_symbol(index));
}

bool RoutineWriter::resolvable(Dim dim) const {
  if (dim.is_const() || dims_.contains(dim)) return true;
  return std::ranges::all_of(graph_.dims().symbols_of(dim), [&](int symbol) { return resolvable_symbol(symbol); });
}

bool RoutineWriter::decides(Dim dim) const {
  if (dim.is_const()) return false;
  return std::ranges::any_of(graph_.dims().symbols_of(dim), [&](int symbol) { return definers_.contains(symbol); });
}

ExprId RoutineWriter::constant(int64_t value) {
  const auto [at, fresh] = constants_.try_emplace(value, 0);
  if (fresh) at->second = out_.add_constant(value);
  return at->second;
}

Result<ExprId> RoutineWriter::symbol(int index) {
  if (auto found = symbols_.find(index); found != symbols_.end()) return found->second;
  const DimTable& table = graph_.dims();
  const DimBounds bounds = table.symbol_bounds(index);
  Symbol made;
  made.name = table.symbol_name(index);
  made.lo = bounds.lo;
  made.hi = bounds.hi;
  if (auto definer = definers_.find(index); definer != definers_.end()) {
    made.source = definer->second.source;
    made.value = definer->second.value;
    made.index = definer->second.index;
  } else if (parent_ != nullptr && parent_->resolvable_symbol(index)) {
    TESSERA_ASSIGN(const ExprId outer, parent_->symbol(index));
    made.source = Symbol::Source::outer;
    made.index = parent_->out_.exprs[outer].a;
  } else {
    return fail(Code::plan_invalid, "the size '{}' is needed, but no value before it decides it", made.name);
  }
  const ExprId id = out_.add_symbol(std::move(made));
  symbols_.emplace(index, id);
  return id;
}

Result<ExprId> RoutineWriter::expr(Dim dim) {
  if (dim.is_const()) return constant(dim.value());
  if (auto found = dims_.find(dim); found != dims_.end()) return found->second;
  const DimTable& table = graph_.dims();
  ExprId sum = plan::kNone;
  for (const DimTable::Term& term : table.terms(dim)) {
    ExprId product = plan::kNone;
    if (term.coefficient != 1 || term.factors.empty()) product = constant(term.coefficient);
    for (const auto& [atom_id, power] : term.factors) {
      const DimTable::Atom atom = table.atom(atom_id);
      ExprId factor = plan::kNone;
      if (atom.kind == DimTable::AtomKind::symbol) {
        TESSERA_ASSIGN(factor, symbol(atom.symbol));
      } else {
        TESSERA_ASSIGN(const ExprId a, expr(atom.a));
        TESSERA_ASSIGN(const ExprId b, expr(atom.b));
        const ExprOp op = atom.kind == DimTable::AtomKind::floordiv ? ExprOp::floordiv
                          : atom.kind == DimTable::AtomKind::min    ? ExprOp::min
                                                                    : ExprOp::max;
        factor = out_.add_expr(op, a, b);
      }
      for (int i = 0; i < power; ++i)
        product = product == plan::kNone ? factor : out_.add_expr(ExprOp::multiply, product, factor);
    }
    sum = sum == plan::kNone ? product : out_.add_expr(ExprOp::add, sum, product);
  }
  dims_.emplace(dim, sum);
  return sum;
}

Result<plan::List> RoutineWriter::exprs(std::span<const Dim> dims) {
  std::vector<ExprId> ids;
  for (Dim dim : dims) {
    TESSERA_ASSIGN(const ExprId id, expr(dim));
    ids.push_back(id);
  }
  return out_.add_list(ids);
}

// A guard belongs to the outermost routine that knows its sizes. Those that no routine knows assume nothing about any
// run.
Status RoutineWriter::attach_guards() {
  std::vector<const ir::Guard*> left;
  for (const ir::Guard* guard : shared_.guards) {
    const bool here =
        resolvable(guard->a) && resolvable(guard->b) && (parent_ == nullptr || decides(guard->a) || decides(guard->b));
    if (!here) {
      left.push_back(guard);
      continue;
    }
    plan::Guard made;
    TESSERA_ASSIGN(made.a, expr(guard->a));
    TESSERA_ASSIGN(made.b, expr(guard->b));
    const std::string a = to_string(guard->a), b = to_string(guard->b);
    switch (guard->kind) {
      case ir::Guard::Kind::equal:
        made.kind = plan::Guard::Kind::equal;
        made.what = a + " == " + b;
        break;
      case ir::Guard::Kind::not_equal:
        made.kind = plan::Guard::Kind::not_equal;
        made.what = a + " != " + b;
        break;
      case ir::Guard::Kind::at_most:
        made.kind = plan::Guard::Kind::at_most;
        made.what = a + " <= " + b;
        break;
      case ir::Guard::Kind::divisible:
        made.kind = plan::Guard::Kind::divisible;
        made.what = a + " divisible by " + b;
        break;
    }
    if (guard->location != 0) {
      const ir::Location& at = graph_.context().location(guard->location);
      made.what += fmt::format(" (node '{}')", graph_.context().text(at.node));
    }
    out_.guards.push_back(std::move(made));
  }
  shared_.guards = std::move(left);
  return {};
}

}  // namespace tessera::compile
