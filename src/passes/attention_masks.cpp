#include "passes/attention_masks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/ops.h"

namespace tessera::passes {
namespace {

using ir::Graph;
using ir::ValueId;

bool hides_finitely(const Mask& mask) { return mask.kind == Mask::Kind::hides && mask.number != -kInfinity; }

// Whether each row keeps a key whose column is no larger than the row.
bool leaves_a_key(const Graph& graph, const std::vector<Affine>& planes) {
  if (planes.size() != 1 || planes[0].factors.size() < 2 || planes[0].factors.back() != -1) return false;
  return graph.dims().bounds(planes[0].constant).lo >= 0;
}

// A sum with 0 or with a number that leaves nothing of a score, as what it is: it hides.
struct Switch {
  Mask mask;
  bool banded;       // what it hides follows from positions
  bool leaves_keys;  // in every row
};
std::optional<Switch> as_switch(const Graph& graph, const Mask& added, Dim queries) {
  const ValueId value = uncast(graph, added.met.value);
  const bool rows = has_rows(added.met, queries);
  if (const Tensor* matrix = rows ? constant_of(graph, value) : nullptr) {
    std::optional<double> hidden;
    bool plain = true;
    const auto band = diagonals(*matrix, [&](double x) {
      if (x != 0) {
        plain = plain && x * added.number <= kHides && (!hidden || *hidden == x * added.number);
        hidden = x * added.number;
      }
      return x == 0;
    });
    if (!band || !plain || !hidden) return std::nullopt;
    return Switch{{Mask::Kind::hides, {value, added.met.level}, *hidden, false}, true, band->every_row};
  }
  Mask hides{Mask::Kind::hides, {ir::kNoValue, added.met.level}, 0, false};
  if (defined_by(graph, value, ops::select_op) != nullptr) {
    const auto a = number_of(graph, operand_of(graph, value, 1)), b = number_of(graph, operand_of(graph, value, 2));
    if (!a || !b || (*a != 0) == (*b != 0)) return std::nullopt;
    hides.met.value = operand_of(graph, value, 0);
    hides.holds = *a == 0;
    hides.number = (*a == 0 ? *b : *a) * added.number;
  } else if (defined_by(graph, value, ops::mul_op) != nullptr) {
    // A truth value times a number; infinity times 0 would be none.
    for (size_t i : {0, 1}) {
      const auto number = number_of(graph, operand_of(graph, value, i));
      const ValueId truth = operand_of(graph, value, 1 - i);
      if (!number || !std::isfinite(*number) || !is_zero_or_one(graph, truth)) continue;
      hides.met.value = truth;
      hides.number = *number * added.number;
    }
  }
  if (hides.met.value == ir::kNoValue || !(hides.number <= kHides)) return std::nullopt;
  const auto planes = rows ? planes_of(graph, hides.met.value, hides.holds) : std::vector<Affine>();
  const bool banded = !planes.empty() && planes[0].factors.size() >= 2;
  return Switch{hides, banded, banded && leaves_a_key(graph, planes)};
}

// A score beside such a fill is lost: filling with it is adding it.
bool is_added(const Mask& mask) { return mask.kind == Mask::Kind::hides && mask.number <= kHides; }

// Sums that hide become fills, as far as that is the same.
void hide_by_sums(const Graph& graph, std::vector<Mask>& steps, Dim queries) {
  const bool infinite = std::none_of(steps.begin(), steps.end(), hides_finitely);
  for (Mask& step : steps) {
    if (step.kind != Mask::Kind::added) continue;
    const auto found = as_switch(graph, step, queries);
    // -inf and any number are -inf.
    if (found && found->mask.number == -kInfinity && infinite) step = found->mask;
  }
  if (std::any_of(steps.begin(), steps.end(), [](const Mask& m) { return m.kind == Mask::Kind::hides; })) return;
  // The others are added to this fill, whatever the order of the sum.
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto found = as_switch(graph, steps[i], queries);
    if (!found || !found->banded) continue;
    Mask hides = found->mask;
    if (steps.size() == 1 && found->leaves_keys) hides.number = -kInfinity;  // no row is left with fills alone
    steps.erase(steps.begin() + static_cast<ptrdiff_t>(i));
    steps.push_back(hides);
    return;
  }
}

// The fill of the call: others are added, which only those that leave nothing of a score can be.
std::optional<double> fill_of(const std::vector<Mask>& steps) {
  std::optional<double> fill;
  bool infinite = false, below = false;
  for (const Mask& step : steps) {
    if (step.kind != Mask::Kind::hides) continue;
    if (step.number == -kInfinity) {
      infinite = true;
      below = below || fill.has_value();  // a fill above it makes it a number again
      continue;
    }
    if (fill && *fill != step.number && *fill > kHides && step.number > kHides) return std::nullopt;
    if (!fill || (*fill <= kHides && step.number > kHides)) fill = step.number;
  }
  if (!fill) return -kInfinity;
  return infinite && !below && *fill <= kHides ? -kInfinity : *fill;
}

}  // namespace

bool has_rows(const Met& met, Dim queries) {
  return met.level.size() >= 2 && met.level[met.level.size() - 2] == queries;
}

std::vector<Affine> planes_of(const Graph& graph, ValueId condition, bool holds) {
  // |x| < c is x < c and -x < c.
  const bool strict = defined_by(graph, condition, ops::less_op) != nullptr;
  if (strict || defined_by(graph, condition, ops::less_equal_op) != nullptr) {
    const ValueId size = operand_of(graph, condition, holds ? 0 : 1),
                  other = operand_of(graph, condition, holds ? 1 : 0);
    if (defined_by(graph, size, ops::abs_op) != nullptr) {
      const auto x = affine(graph, operand_of(graph, size, 0)), bound = affine(graph, other);
      if (!x || !bound || std::any_of(bound->factors.begin(), bound->factors.end(), [](int64_t f) { return f != 0; }))
        return {};
      const Dim most = bound->constant - static_cast<int64_t>(strict == holds);
      Affine below = *x, above = *x;
      for (int64_t& f : below.factors) f = -f;
      below.constant = most - x->constant;
      above.constant = most + x->constant;
      return {below, above};
    }
  }
  auto plane = half_plane(graph, condition);
  if (!plane) return {};
  if (!holds) {
    for (int64_t& f : plane->factors) f = -f;
    plane->constant = Dim(-1) - plane->constant;
  }
  return {*plane};
}

std::optional<Masks> place_masks(const Graph& graph, const Scores& scores, Dim queries) {
  std::vector<Mask> steps = scores.masks;
  Masks placed{-kInfinity, {}, {}, {}};
  if (scores.floor) {
    // Below the floor fills show no more: each is a sum that is held up.
    for (const Mask& step : steps)
      if (step.kind == Mask::Kind::hides && !is_added(step)) return std::nullopt;
    placed.before = std::move(steps);
    return placed;
  }
  hide_by_sums(graph, steps, queries);
  const auto fill = fill_of(steps);
  if (!fill) return std::nullopt;
  placed.fill = *fill;
  // From the outside in. What is added between two fills is added to one of them: it is the outer one that stays.
  bool inside = false, between = false;
  for (const Mask& step : steps) {
    const bool hides = step.kind == Mask::Kind::hides && step.number == *fill;
    if (hides && !between) {
      placed.hides.push_back(step);
      inside = true;
      continue;
    }
    if (step.kind == Mask::Kind::hides && !is_added(step)) return std::nullopt;
    between = between || (inside && *fill != -kInfinity);
    (inside || *fill == -kInfinity ? placed.before : placed.after).push_back(step);
  }
  return placed;
}

}  // namespace tessera::passes
