#include "ir/terms.h"

#include <algorithm>
#include <cmath>

#include "ir/core_ops.h"
#include "ir/mix.h"
#include "tensor/scalar.h"

namespace tessera::ir {
namespace {

// Operators are known by name here: their folder stands to the right of this one.
bool is(const Node& node, std::string_view name) { return node.op->name == name; }

// Sums in sums that are looked through for their addends.
constexpr int kNestedSums = 8;

bool integral(double v) { return v == std::floor(v) && std::fabs(v) <= 8; }

// f(-x) is -f(x).
bool odd(const OpDef& op) {
  return op.name == "erf" || op.name == "tanh" || op.name == "sin" || op.name == "sinh" || op.name == "asin" ||
         op.name == "asinh" || op.name == "atan" || op.name == "atanh";
}

// (x^a)^b is x^(a b) wherever the left side is defined, unless x^a has lost x's sign.
bool powers_merge(double inner) { return !(integral(inner) && std::fmod(inner, 2) == 0); }

AttrsRef axes_from_end(Context& context, const OpDef& op, AttrsRef attrs, int rank) {
  if (op.attrs.size() == 0) return attrs;
  Attrs changed = *attrs;
  if (auto* axes = std::get_if<std::vector<int64_t>>(&changed.values[0]); axes && op.attrs[0].name == "axes") {
    for (int64_t& a : *axes) a = a >= 0 ? a - rank : a;
    std::sort(axes->begin(), axes->end());
  } else if (auto* axis = std::get_if<int64_t>(&changed.values[0]);
             axis && (op.name == "softmax" || op.name == "log_softmax" || op.name == "concat")) {
    if (*axis >= 0) *axis -= rank;
  } else {
    return attrs;
  }
  return context.attrs(std::move(changed));
}

}  // namespace

size_t Terms::Hash::operator()(const Term& t) const {
  size_t seed = static_cast<size_t>(t.kind);
  mix(seed, std::hash<const void*>()(t.op));
  mix(seed, std::hash<const void*>()(t.attrs));
  mix(seed, std::hash<double>()(t.number));
  mix(seed, t.size.hash());
  mix(seed, t.leaf);
  for (TermId arg : t.args) mix(seed, arg);
  for (double e : t.exponents) mix(seed, std::hash<double>()(e));
  return seed;
}

Terms::Terms(const Graph& graph, bool pull_scalars) : graph_(graph), pull_scalars_(pull_scalars) {
  uses_.assign(graph.value_count(), 0);
  for (NodeId n = 0; n < graph.node_count(); ++n)
    for (ValueId v : graph.operands(n))
      if (v != kNoValue) ++uses_[v];
  for (ValueId v : graph.outputs) ++uses_[v];
  of_value_.assign(graph.value_count(), kNoTerm);
  for (ValueId v : graph.inputs) of_value_[v] = leaf(v);
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const Node& node = graph.node(n);
    if (node.n_results == 1) {
      of_value_[node.results] = of_node(n);
    } else {
      for (int i = 0; i < node.n_results; ++i) of_value_[graph.result(n, i)] = leaf(graph.result(n, i));
    }
  }
  first_value_.assign(terms_.size() + 1, 0);
  for (TermId t : of_value_) ++first_value_[t + 1];
  for (size_t t = 0; t < terms_.size(); ++t) first_value_[t + 1] += first_value_[t];
  values_.resize(of_value_.size());
  std::vector<uint32_t> next(first_value_.begin(), first_value_.end() - 1);
  for (ValueId v = 0; v < graph.value_count(); ++v) values_[next[of_value_[v]]++] = v;
  collect_operators();
}

uint64_t Terms::own_operator(TermId t) const {
  const Term& term = terms_[t];
  switch (term.kind) {
    case Term::Kind::sum:
      return uint64_t{1} << 63;
    case Term::Kind::mean:
      return uint64_t{1} << 62;
    case Term::Kind::apply:
      return uint64_t{1} << (reinterpret_cast<uintptr_t>(term.op) / sizeof(OpDef) % 62);
    default:
      return 0;
  }
}

void Terms::collect_operators() {
  std::vector<uint64_t> own(terms_.size());
  for (TermId t = 0; t < own.size(); ++t) own[t] = own_operator(t);
  operators_ = own;
  std::vector<uint64_t> deeper(own.size());
  for (int depth = 0; depth < kDepthOfOperators; ++depth) {
    for (TermId t = 0; t < own.size(); ++t) {
      deeper[t] = own[t];
      for (TermId arg : terms_[t].args)
        if (arg != kNoTerm) deeper[t] |= operators_[arg];
    }
    operators_.swap(deeper);
  }
}

TermId Terms::intern(Term term) {
  if (2 * (terms_.size() + 1) > interned_.size()) {
    std::vector<Slot> old = std::move(interned_);
    interned_.assign(std::max<size_t>(64, 2 * old.size()), Slot());
    for (const Slot& slot : old)
      if (slot.term != kNoTerm) *free_slot(slot.hash) = slot;
  }
  // Ids of neighbours differ in few bits: multiplying spreads them, so that probes stay short.
  const auto hash = static_cast<uint32_t>((uint64_t{Hash()(term)} * 0x9e3779b97f4a7c15u) >> 32);
  const size_t mask = interned_.size() - 1;
  for (size_t at = hash & mask; interned_[at].term != kNoTerm; at = (at + 1) & mask)
    if (interned_[at].hash == hash && terms_[interned_[at].term] == term) return interned_[at].term;
  const TermId id = static_cast<TermId>(terms_.size());
  terms_.push_back(std::move(term));
  *free_slot(hash) = {hash, id};
  return id;
}

Terms::Slot* Terms::free_slot(uint32_t hash) {
  const size_t mask = interned_.size() - 1;
  size_t at = hash & mask;
  while (interned_[at].term != kNoTerm) at = (at + 1) & mask;
  return &interned_[at];
}

TermId Terms::leaf(ValueId v) {
  Term term;
  term.leaf = v;
  return intern(std::move(term));
}

TermId Terms::literal(double number) {
  Term term;
  term.kind = Term::Kind::literal;
  term.number = number;
  return intern(std::move(term));
}

TermId Terms::apply(const OpDef& op, AttrsRef attrs, std::vector<TermId> args, Dim size) {
  if (op.commutative) std::sort(args.begin(), args.end());
  Term term;
  term.kind = Term::Kind::apply;
  term.op = &op;
  term.attrs = attrs;
  term.args = std::move(args);
  term.size = size;
  return intern(std::move(term));
}

std::pair<double, std::vector<Terms::Factor>> Terms::factors(TermId t) const {
  const Term& term = terms_[t];
  if (term.kind == Term::Kind::literal) return {term.number, {}};
  if (term.kind != Term::Kind::product) return {1, {{t, 1}}};
  std::vector<Factor> factors;
  for (size_t i = 0; i < term.args.size(); ++i) factors.emplace_back(term.args[i], term.exponents[i]);
  return {term.number, std::move(factors)};
}

TermId Terms::product(double number, std::vector<Factor> factors) {
  std::sort(factors.begin(), factors.end());
  // Powers of one base merge when their exponents have one sign: x / x is 1 only where x is not 0.
  std::vector<Factor> merged;
  for (const Factor& f : factors) {
    auto same = std::find_if(merged.begin(), merged.end(),
                             [&](const Factor& m) { return m.first == f.first && (m.second > 0) == (f.second > 0); });
    if (same == merged.end()) {
      merged.push_back(f);
    } else {
      same->second += f.second;
    }
  }
  // A sum over n elements times 1/n.
  for (Factor& f : merged) {
    const Term& total = terms_[f.first];
    if (f.second != 1 || total.kind != Term::Kind::apply || total.op->name != "reduce_sum") continue;
    const Dim count = total.size;
    auto divisor = std::find_if(merged.begin(), merged.end(), [&](const Factor& m) {
      return m.second == -1 && terms_[m.first].kind == Term::Kind::size && terms_[m.first].size == count;
    });
    const bool by_number =
        count.is_const() && count.value() > 1 && std::fabs(number * static_cast<double>(count.value()) - 1) < 2e-6;
    if (!by_number && divisor == merged.end()) continue;
    Term mean;
    mean.kind = Term::Kind::mean;
    mean.attrs = total.attrs;
    mean.args = total.args;
    f.first = intern(std::move(mean));
    if (by_number) {
      number = 1;
    } else {
      merged.erase(divisor);
    }
    return product(number, std::move(merged));
  }
  if (merged.empty() || number == 0) return literal(number);
  if (number == 1 && merged.size() == 1 && merged[0].second == 1) return merged[0].first;
  Term term;
  term.kind = Term::Kind::product;
  term.number = number;
  for (const Factor& f : merged) {
    term.args.push_back(f.first);
    term.exponents.push_back(f.second);
  }
  return intern(std::move(term));
}

TermId Terms::sum(std::vector<TermId> addends) {
  double constant = 0;
  std::vector<std::pair<TermId, double>> parts;  // base, number; ascending by base
  for (TermId t : addends) {
    if (terms_[t].kind == Term::Kind::literal) {
      constant += terms_[t].number;
      continue;
    }
    auto [number, all] = factors(t);
    const TermId base = number == 1 ? t : product(1, std::move(all));
    auto same = std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p.first == base; });
    if (same == parts.end()) {
      parts.emplace_back(base, number);
    } else {
      same->second += number;
    }
  }
  if (constant != 0) parts.emplace_back(literal(1), constant);
  if (parts.empty()) return literal(0);

  // h + h y, where h is c x and others use it too, is c x + c x y.
  std::vector<std::pair<TermId, double>> plain = parts, apart = parts;
  if (take_apart(apart) && take_common(plain).empty()) {
    plain = apart;
    if (!take_common(plain).empty()) parts = std::move(apart);
  }

  // c x + c y is c (x + y), also with c = -1.
  const double first = parts[0].second;
  const bool same_size = std::all_of(parts.begin(), parts.end(), [&](const auto& p) {
    return std::fabs(std::fabs(p.second) - std::fabs(first)) <= 2e-6 * std::fabs(first);
  });
  const bool all_negative = std::all_of(parts.begin(), parts.end(), [](const auto& p) { return p.second < 0; });
  double outside = same_size && std::fabs(first) != 1 ? std::fabs(first) : 1;
  if (same_size && all_negative) outside = -outside;
  if (outside != 1)
    for (auto& part : parts) part.second = part.second * outside > 0 ? 1 : -1;

  std::vector<Factor> common = take_common(parts);
  // x (a + b x^2) is a x (1 + b/a x^2).
  double constant_part = 1;
  if (!common.empty() && !same_size)
    for (const auto& [base, number] : parts)
      if (terms_[base].kind == Term::Kind::literal) constant_part = number;
  if (constant_part != 1) {
    for (auto& part : parts) part.second /= constant_part;
    outside *= constant_part;
  }

  Term term;
  term.kind = Term::Kind::sum;
  for (const auto& [base, number] : parts) {
    auto [own, all] = factors(base);
    term.args.push_back(product(own * number, std::move(all)));
  }
  std::sort(term.args.begin(), term.args.end());
  const TermId total = term.args.size() == 1 ? term.args[0] : intern(std::move(term));
  if (outside == 1 && common.empty()) return total;
  auto [number, all] = factors(total);
  if (terms_[total].kind == Term::Kind::sum) all = {{total, 1}};
  all.insert(all.end(), common.begin(), common.end());
  return product(number * outside, std::move(all));
}

bool Terms::take_apart(std::vector<std::pair<TermId, double>>& parts) {
  bool any = false;
  for (auto& [base, number] : parts) {
    std::vector<Factor> all;
    bool nested = false;
    for (const Factor& f : factors(base).second) {
      if (f.second != 1 || terms_[f.first].kind != Term::Kind::product) {
        all.push_back(f);
        continue;
      }
      auto [own, inner] = factors(f.first);
      number *= own;
      all.insert(all.end(), inner.begin(), inner.end());
      nested = true;
    }
    if (!nested) continue;
    any = true;
    auto [own, merged] = factors(product(1, std::move(all)));
    number *= own;
    base = product(1, std::move(merged));
  }
  return any;
}

std::vector<Terms::Factor> Terms::take_common(std::vector<std::pair<TermId, double>>& parts) {
  if (parts.size() < 2) return {};
  // A literal divides no other part.
  std::vector<std::vector<Factor>> all;
  for (const auto& part : parts) {
    if (terms_[part.first].kind == Term::Kind::literal) return {};
    all.push_back(factors(part.first).second);
  }
  std::vector<Factor> common;
  for (const Factor& candidate : all[0]) {
    double lowest = candidate.second;
    for (const std::vector<Factor>& others : all) {
      const auto same = std::find_if(others.begin(), others.end(),
                                     [&](const Factor& f) { return f.first == candidate.first && f.second > 0; });
      lowest = same == others.end() || !integral(same->second) ? 0 : std::min(lowest, same->second);
      if (lowest <= 0) break;
    }
    if (lowest > 0 && integral(lowest)) common.emplace_back(candidate.first, lowest);
  }
  if (common.empty()) return {};
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const Factor& taken : common)
      for (Factor& f : all[i])
        if (f.first == taken.first && f.second > 0) {
          f.second -= taken.second;
          break;
        }
    std::erase_if(all[i], [](const Factor& f) { return f.second == 0; });
    parts[i].first = product(1, std::move(all[i]));
  }
  return common;
}

TermId Terms::view(TermId base, AttrsRef view) {
  if (terms_[base].kind == Term::Kind::literal) return base;
  if (pull_scalars_ && terms_[base].kind == Term::Kind::product && terms_[base].number != 1) {
    auto [number, all] = factors(base);
    return product(number, {{this->view(product(1, std::move(all)), view), 1}});
  }
  const Term& inner = terms_[base];
  if (inner.kind == Term::Kind::apply && inner.op == &core::view)
    if (const AttrsRef both = graph_.context().composed(inner.attrs, view)) return this->view(inner.args[0], both);
  const AttrsRef normal = graph_.context().composed(nullptr, view);
  const View& form = std::get<View>(normal->values[0]);
  if (!values(base).empty() && form.is_identity(graph_.type(values(base)[0])->shape)) return base;
  if (inner.kind == Term::Kind::leaf && form.is_identity(graph_.type(inner.leaf)->shape)) return base;
  return apply(core::view, normal, {base});
}

void Terms::add_addends(ValueId v, double sign, std::vector<TermId>& to, int depth) {
  const TermId t = of_value_[v];
  const NodeId def = graph_.value(v).def;
  // As it stands there: common factors are those of the whole sum.
  if (depth > 0 && def != kNoNode && dissolves(v) && (is(graph_.node(def), "add") || is(graph_.node(def), "sub"))) {
    add_addends(graph_.operands(def)[0], sign, to, depth - 1);
    add_addends(graph_.operands(def)[1], is(graph_.node(def), "sub") ? -sign : sign, to, depth - 1);
    return;
  }
  std::vector<TermId> parts = {t};
  if (terms_[t].kind == Term::Kind::sum && dissolves(v)) parts = terms_[t].args;
  for (TermId part : parts) {
    auto [number, all] = factors(part);
    to.push_back(sign == 1 ? part : product(sign * number, std::move(all)));
  }
}

void Terms::add_factors(ValueId v, double exponent, double& number, std::vector<Factor>& to) {
  const TermId t = of_value_[v];
  const Term term = terms_[t];
  if (term.kind == Term::Kind::literal) {
    number *= std::pow(term.number, exponent);
    return;
  }
  if (term.kind == Term::Kind::product) {
    const bool one_power = term.number == 1 && term.args.size() == 1 && powers_merge(term.exponents[0]);
    if (one_power) {
      to.emplace_back(term.args[0], term.exponents[0] * exponent);
      return;
    }
    if (dissolves(v) && integral(exponent)) {
      number *= std::pow(term.number, exponent);
      for (size_t i = 0; i < term.args.size(); ++i) to.emplace_back(term.args[i], term.exponents[i] * exponent);
      return;
    }
  }
  to.emplace_back(t, exponent);
}

TermId Terms::of_constant(NodeId n, ValueId v) {
  const auto id = static_cast<uint32_t>(std::get<int64_t>(graph_.node(n).attrs->values[0]));
  const Tensor& tensor = graph_.context().constant(id);
  if (tensor.count() != 1 || tensor.dtype() == DType::string) return leaf(v);
  return literal(decode(tensor.dtype(), tensor.data(), 0));
}

TermId Terms::of_cast(NodeId n) {
  const ValueId x = graph_.operands(n)[0], y = graph_.result(n, 0);
  if (is_float(graph_.type(x)->dtype) && is_float(graph_.type(y)->dtype)) return of_value_[x];
  if (auto known = graph_.contents.find(x); known != graph_.contents.end() && known->second.size() == 1) {
    const Dim size = known->second[0];
    if (size.is_const()) return literal(static_cast<double>(size.value()));
    Term term;
    term.kind = Term::Kind::size;
    term.size = size;
    return intern(std::move(term));
  }
  return apply(*graph_.node(n).op, graph_.node(n).attrs, {of_value_[x]});
}

TermId Terms::reduction(NodeId n) {
  const Node& node = graph_.node(n);
  const Type& x = *graph_.type(graph_.operands(n)[0]);
  Dim count = 1;
  for (int64_t a : std::get<std::vector<int64_t>>(node.attrs->values[0]))
    count = count * x.shape[static_cast<size_t>(a < 0 ? a + x.rank() : a)];
  return apply(*node.op, axes_from_end(graph_.context(), *node.op, node.attrs, x.rank()),
               {of_value_[graph_.operands(n)[0]]}, count);
}

TermId Terms::dot(NodeId n) {
  double number = 1;
  std::vector<TermId> args;
  for (ValueId v : graph_.operands(n)) {
    auto [own, all] = factors(of_value_[v]);
    if (!pull_scalars_ || all.empty() || own == 1) {
      args.push_back(of_value_[v]);
    } else {
      number *= own;
      args.push_back(product(1, std::move(all)));
    }
  }
  return product(number, {{apply(*graph_.node(n).op, graph_.node(n).attrs, std::move(args)), 1}});
}

TermId Terms::of_real(NodeId n) {
  const Node& node = graph_.node(n);
  const auto operands = graph_.operands(n);
  double number = 1;
  std::vector<Factor> all;
  std::vector<TermId> addends;
  if (is(node, "add") || is(node, "sub")) {
    add_addends(operands[0], 1, addends, kNestedSums);
    add_addends(operands[1], is(node, "sub") ? -1 : 1, addends, kNestedSums);
    return sum(std::move(addends));
  }
  if (is(node, "mul") || is(node, "div")) {
    add_factors(operands[0], 1, number, all);
    add_factors(operands[1], is(node, "div") ? -1 : 1, number, all);
    return product(number, std::move(all));
  }
  if (is(node, "neg")) {
    add_factors(operands[0], 1, number, all);
    return product(-number, std::move(all));
  }
  double exponent = 0;
  if (is(node, "sqrt")) exponent = 0.5;
  if (is(node, "rsqrt")) exponent = -0.5;
  if (is(node, "pow")) {
    const Term& power = terms_[of_value_[operands[1]]];
    if (power.kind == Term::Kind::literal && (integral(power.number) || std::fabs(power.number) == 0.5))
      exponent = power.number;
  }
  if (exponent != 0) {
    add_factors(operands[0], exponent, number, all);
    return product(number, std::move(all));
  }
  return kNoTerm;
}

TermId Terms::of_node(NodeId n) {
  const Node& node = graph_.node(n);
  const ValueId y = graph_.result(n, 0);
  if (node.op == &core::constant) return of_constant(n, y);
  if (!node.op->pure || node.n_regions > 0 || node.n_operands == 0 || !graph_.type(y)->is_tensor() ||
      !graph_.type(y)->ranked)
    return leaf(y);
  for (ValueId v : graph_.operands(n))
    if (v != kNoValue && (!graph_.type(v)->is_tensor() || !graph_.type(v)->ranked)) return leaf(y);
  if (is(node, "cast")) return of_cast(n);
  if (node.op == &core::view) return view(of_value_[graph_.operands(n)[0]], node.attrs);
  if (is_float(graph_.type(y)->dtype)) {
    if (is(node, "dot")) return dot(n);
    if (const TermId real = of_real(n); real != kNoTerm) return real;
    if (odd(*node.op))
      if (auto [number, all] = factors(of_value_[graph_.operands(n)[0]]); number < 0 && !all.empty()) {
        const TermId positive = product(-number, std::move(all));
        return product(-1, {{apply(*node.op, node.attrs, {positive}), 1}});
      }
  }
  if (node.op->name.starts_with("reduce_")) return reduction(n);
  std::vector<TermId> args;
  for (ValueId v : graph_.operands(n)) args.push_back(v == kNoValue ? kNoTerm : of_value_[v]);
  const ValueId x = graph_.operands(n)[0];
  AttrsRef attrs =
      x == kNoValue ? node.attrs : axes_from_end(graph_.context(), *node.op, node.attrs, graph_.type(x)->rank());
  return apply(*node.op, attrs, std::move(args));
}

}  // namespace tessera::ir
