#include "tensor/reshape.h"

#include <algorithm>

namespace tessera {
namespace {

DimTable* table_of(Dim a, Dim b) { return a.is_const() ? b.table() : a.table(); }

bool equal(Dim a, Dim b) {
  if (a == b) return true;
  DimTable* table = table_of(a, b);
  return table && table->proves_eq(a, b);
}

bool is_one(Dim d) { return equal(d, 1); }

// a * b; nothing when both are constants whose product does not fit, since Dims wrap there.
std::optional<Dim> checked_multiply(Dim a, Dim b) {
  if (a.is_const() && b.is_const()) {
    int64_t out;
    if (__builtin_mul_overflow(a.value(), b.value(), &out)) return std::nullopt;
    return Dim(out);
  }
  return a * b;
}

// Constants first, so that their overflow is seen.
std::optional<Dim> checked_product(std::span<const Dim> dims) {
  Dim constant = 1, rest = 1;
  for (Dim d : dims) {
    if (!d.is_const()) {
      rest *= d;
    } else if (const auto next = checked_multiply(constant, d)) {
      constant = *next;
    } else {
      return std::nullopt;
    }
  }
  return constant * rest;
}

// The indices of the axes whose size is not known to be 1.
std::vector<int> proper_axes(std::span<const Dim> shape) {
  std::vector<int> axes;
  for (size_t i = 0; i < shape.size(); ++i)
    if (!is_one(shape[i])) axes.push_back(static_cast<int>(i));
  return axes;
}

// Products of 1, 2, ... of the axes from `first` on, as far as they can be formed.
std::vector<Dim> running_products(std::span<const Dim> shape, std::span<const int> axes) {
  std::vector<Dim> products;
  Dim all = 1;
  for (int axis : axes) {
    const auto next = checked_multiply(all, shape[static_cast<size_t>(axis)]);
    if (!next) break;
    products.push_back(all = *next);
  }
  return products;
}

}  // namespace

std::optional<std::vector<ReshapeGroup>> factor_reshape(std::span<const Dim> from, std::span<const Dim> to) {
  const int from_rank = static_cast<int>(from.size()), to_rank = static_cast<int>(to.size());
  if (from_rank == 0 && to_rank == 0) return std::vector<ReshapeGroup>{};
  const std::vector<int> from_axes = proper_axes(from), to_axes = proper_axes(to);
  const auto whole = [&] { return std::vector<ReshapeGroup>{{0, from_rank, 0, to_rank}}; };
  if (from_axes.empty() && to_axes.empty()) return whole();

  std::vector<ReshapeGroup> groups;
  size_t i = 0, j = 0;
  while (i < from_axes.size() && j < to_axes.size()) {
    const std::vector<Dim> left = running_products(from, std::span(from_axes).subspan(i));
    const std::vector<Dim> right = running_products(to, std::span(to_axes).subspan(j));
    // Equal products stay equal after dividing by a shorter pair of equal products, so the first match is never wrong.
    size_t n = 0, m = 0;
    for (size_t p = 0; p < left.size() && n == 0; ++p) {
      for (size_t q = 0; q < right.size() && n == 0; ++q)
        if (equal(left[p], right[q])) n = p + 1, m = q + 1;
    }
    if (n == 0) break;
    i += n;
    j += m;
    // A group ends where the next proper axis begins, so that it holds the ones between.
    groups.push_back({groups.empty() ? 0 : groups.back().from_end, i < from_axes.size() ? from_axes[i] : from_rank,
                      groups.empty() ? 0 : groups.back().to_end, j < to_axes.size() ? to_axes[j] : to_rank});
  }
  if (i == from_axes.size() && j == to_axes.size()) return groups;
  // Two shapes without elements hold the same ones, however their other axes differ.
  const auto empty = [](std::span<const Dim> shape) {
    return std::ranges::any_of(shape, [](Dim d) { return equal(d, 0); });
  };
  if (empty(from) && empty(to)) return whole();
  return std::nullopt;
}

Result<Shape> infer_minus_one(std::span<const Dim> from, std::span<const Dim> to, bool allow_zero) {
  Shape shape(to.begin(), to.end());
  std::optional<size_t> unknown;
  for (size_t i = 0; i < shape.size(); ++i) {
    Dim& d = shape[i];
    if (d.is(-1)) {
      if (unknown)
        return fail(Code::shape_invalid, "reshape to {} leaves axes {} and {} open", to_string(to), *unknown, i);
      unknown = i;
    } else if (d.is(0) && !allow_zero) {
      if (i >= from.size())
        return fail(Code::shape_invalid, "reshape to {} copies axis {} but the input {} has {} axes", to_string(to), i,
                    to_string(from), from.size());
      d = from[i];
    } else if (d.is_const() && d.value() < 0) {
      return fail(Code::shape_invalid, "reshape to {} has the negative size {} at axis {}", to_string(to), d.value(),
                  i);
    }
  }

  // Elements in and, without the open axis, out; what stands in both is left out of both.
  std::vector<Dim> in(from.begin(), from.end()), out;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i == unknown) continue;
    const auto same = std::ranges::find(in, shape[i]);
    if (same != in.end()) {
      in.erase(same);
    } else {
      out.push_back(shape[i]);
    }
  }
  const auto have = checked_product(in), want = checked_product(out);
  if (!have || !want)
    return fail(Code::shape_invalid, "reshape of {} to {}: the number of elements does not fit 64 bits",
                to_string(from), to_string(to));
  DimTable* table = table_of(*have, *want);
  if (!unknown) {
    if (table ? table->proves_ne(*have, *want) : *have != *want)
      return fail(Code::shape_invalid, "reshape of {} to {}: the numbers of elements differ", to_string(from),
                  to_string(shape));
    return shape;
  }
  const bool beside_zero = allow_zero && std::ranges::find(to, Dim(0)) != to.end();
  if (want->is(0) || beside_zero)
    return fail(Code::shape_invalid, "reshape of {} to {}: axis {} can have any size beside an axis of size 0",
                to_string(from), to_string(to), *unknown);
  Dim& open = shape[*unknown];
  if (!table) {
    if (have->value() % want->value() != 0)
      return fail(Code::shape_invalid, "reshape of {} to {}: {} does not divide {}", to_string(from), to_string(to),
                  want->value(), have->value());
    open = have->value() / want->value();
    return shape;
  }
  const auto quotient = table->exact_div(*have, *want);
  open = quotient ? *quotient : floordiv(*have, *want);
  return shape;
}

}  // namespace tessera
