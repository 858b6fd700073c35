#include "ir/view.h"

#include <algorithm>

#include "ir/view_digits.h"

namespace tessera::ir {
namespace {

bool is_empty(const View& view) {
  for (const auto& axis : view.axes)
    for (const ViewAtom& atom : axis)
      if (atom.size.is(0)) return true;
  return false;
}

// Sums movements along one axis, drops those of stride 0, and sorts by axis.
void tidy(Digit& digit) {
  std::vector<Move>& moves = digit.moves;
  std::ranges::stable_sort(moves, {}, &Move::axis);
  size_t kept = 0;
  for (size_t i = 0; i < moves.size();) {
    Move sum = moves[i++];
    while (i < moves.size() && moves[i].axis == sum.axis) sum.stride = sum.stride + moves[i++].stride;
    if (!sum.stride.is(0)) moves[kept++] = sum;
  }
  moves.resize(kept, Move{0, 0});
}

// True when counting `low` up to its size moves as one step of `high` does.
bool walk_as_one(const Digit& high, const Digit& low) {
  return std::ranges::equal(high.moves, low.moves, [&](const Move& h, const Move& l) {
    return h.axis == l.axis && h.stride == l.stride * low.size;
  });
}

std::vector<ViewAtom> whole_axis(int axis, Dim size) {
  return size.is(1) ? std::vector<ViewAtom>() : std::vector<ViewAtom>{{axis, 1, size}};
}

// Integers whose constant arithmetic must not wrap.
std::optional<Dim> checked_add(Dim a, Dim b) {
  int64_t sum;
  if (a.is_const() && b.is_const() && __builtin_add_overflow(a.value(), b.value(), &sum)) return std::nullopt;
  return a + b;
}

std::optional<Dim> checked_multiply(Dim a, Dim b) {
  int64_t result;
  if (a.is_const() && b.is_const() && __builtin_mul_overflow(a.value(), b.value(), &result)) return std::nullopt;
  return a * b;
}

}  // namespace

std::vector<Digit> digits_of(std::span<const ViewAtom> atoms) {
  std::vector<Digit> digits;
  for (const ViewAtom& atom : atoms) {
    if (!atom.tied || digits.empty()) digits.push_back({{}, atom.size});
    if (atom.axis >= 0) digits.back().moves.push_back({atom.axis, atom.stride});
  }
  for (Digit& digit : digits) tidy(digit);
  return digits;
}

void append_atoms(const Digit& digit, std::vector<ViewAtom>& atoms) {
  if (digit.moves.empty()) atoms.push_back({-1, 0, digit.size});
  for (size_t i = 0; i < digit.moves.size(); ++i)
    atoms.push_back({digit.moves[i].axis, digit.moves[i].stride, digit.size, i > 0});
}

Shape View::shape() const {
  Shape shape;
  shape.reserve(axes.size());
  for (const auto& axis : axes) {
    Dim size = 1;
    for (const ViewAtom& atom : axis)
      if (!atom.tied) size = size * atom.size;
    shape.push_back(size);
  }
  return shape;
}

bool View::is_identity(std::span<const Dim> base) const {
  return axes.size() == base.size() && normalised(*this) == normalised(identity_view(base));
}

View normalised(View view) {
  const bool empty = is_empty(view);
  for (auto& axis : view.axes) {
    std::vector<Digit> merged;
    for (Digit& digit : digits_of(axis)) {
      if (empty) digit.moves.clear();
      if (digit.size.is(1)) continue;
      while (!merged.empty() && walk_as_one(merged.back(), digit)) {
        digit.size = merged.back().size * digit.size;
        merged.pop_back();
      }
      merged.push_back(std::move(digit));
    }
    axis.clear();
    for (const Digit& digit : merged) append_atoms(digit, axis);
  }
  if (empty) std::ranges::fill(view.offsets, Dim(0));
  return view;
}

std::optional<std::vector<Reach>> reach(const View& view) {
  std::vector<Reach> reaches;
  for (Dim offset : view.offsets) reaches.push_back({offset, offset});
  for (const auto& axis : view.axes) {
    for (const ViewAtom& atom : axis) {
      if (atom.axis < 0 || atom.stride.is(0)) continue;
      const std::optional<Dim> last = checked_add(atom.size, -1);
      const std::optional<Dim> far = last ? checked_multiply(atom.stride, *last) : std::nullopt;
      if (!far) return std::nullopt;
      const DimBounds sign = atom.stride.is_const() ? DimBounds{atom.stride.value(), atom.stride.value()}
                                                    : atom.stride.table()->bounds(atom.stride);
      if (sign.lo < 0 && sign.hi > 0) return std::nullopt;
      Dim& end =
          sign.lo >= 0 ? reaches[static_cast<size_t>(atom.axis)].high : reaches[static_cast<size_t>(atom.axis)].low;
      const std::optional<Dim> sum = checked_add(end, *far);
      if (!sum) return std::nullopt;
      end = *sum;
    }
  }
  return reaches;
}

LinearView linear(const View& view, std::span<const Dim> base) {
  std::vector<Dim> strides(base.size(), Dim(1));  // elements from one index of a base axis to the next
  for (size_t a = base.size(); a-- > 1;) strides[a - 1] = strides[a] * base[a];
  LinearView flat;
  for (size_t a = 0; a < base.size(); ++a) flat.offset = flat.offset + view.offsets[a] * strides[a];
  for (const auto& axis : view.axes) {
    std::vector<LinearDigit>& digits = flat.axes.emplace_back();
    for (const ViewAtom& atom : axis) {
      if (!atom.tied) digits.push_back({0, atom.size});
      if (atom.axis < 0) continue;
      Dim& stride = digits.back().stride;
      stride = stride + atom.stride * strides[static_cast<size_t>(atom.axis)];
    }
  }
  return flat;
}

View identity_view(std::span<const Dim> base) {
  View view;
  for (size_t a = 0; a < base.size(); ++a) view.axes.push_back(whole_axis(static_cast<int>(a), base[a]));
  view.offsets.assign(base.size(), Dim(0));
  return view;
}

View transpose_view(std::span<const Dim> base, std::span<const int> permutation) {
  View view;
  for (int a : permutation) view.axes.push_back(whole_axis(a, base[static_cast<size_t>(a)]));
  view.offsets.assign(base.size(), Dim(0));
  return view;
}

View slice_view(std::span<const Dim> base, int axis, Dim start, Dim step, Dim size) {
  View view = identity_view(base);
  view.axes[static_cast<size_t>(axis)] = {{axis, step, size}};
  view.offsets[static_cast<size_t>(axis)] = start;
  return normalised(std::move(view));
}

View unsqueeze_view(std::span<const Dim> base, std::span<const int> positions) {
  View view = identity_view(base);
  for (int position : positions) view.axes.insert(view.axes.begin() + position, std::vector<ViewAtom>());
  return view;
}

View squeeze_view(std::span<const Dim> base, std::span<const int> positions) {
  View view = identity_view(base);
  for (size_t i = positions.size(); i-- > 0;) view.axes.erase(view.axes.begin() + positions[i]);
  return view;
}

View broadcast_view(std::span<const Dim> base, std::span<const Dim> to) {
  View view;
  const size_t added = to.size() - base.size();
  for (size_t j = 0; j < to.size(); ++j) {
    if (j < added || base[j - added].is(1)) {
      view.axes.push_back({{-1, 0, to[j]}});
    } else {
      view.axes.push_back(whole_axis(static_cast<int>(j - added), base[j - added]));
    }
  }
  view.offsets.assign(base.size(), Dim(0));
  return normalised(std::move(view));
}

View window_view(std::span<const Dim> base, int axis, Dim count, Dim step, Dim length, Dim dilation) {
  View view = identity_view(base);
  view.axes[static_cast<size_t>(axis)] = {{axis, step, count}};
  view.axes.push_back({{axis, dilation, length}});
  return normalised(std::move(view));
}

View diagonal_view(std::span<const Dim> base, int a, int b) {
  View view = identity_view(base);
  view.axes[static_cast<size_t>(a)] = {{std::min(a, b), 1, base[static_cast<size_t>(a)]},
                                       {std::max(a, b), 1, base[static_cast<size_t>(a)], true}};
  view.axes.erase(view.axes.begin() + b);
  return normalised(std::move(view));
}

}  // namespace tessera::ir
