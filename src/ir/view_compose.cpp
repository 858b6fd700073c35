// A view of a view, and reshapes, which are the splitting of a merged axis.
#include <algorithm>

#include "ir/view.h"
#include "ir/view_digits.h"
#include "tensor/reshape.h"

namespace tessera::ir {
namespace {

bool proves_le(Dim a, Dim b) {
  if (a == b) return true;
  if (a.is_const() && b.is_const()) return a.value() <= b.value();
  return (a.is_const() ? b : a).table()->proves_le(a, b);
}

// q with a == q * b.
std::optional<Dim> exact(Dim a, Dim b) {
  if (a == b) return Dim(1);
  if (b.is(1)) return a;
  if (a.is_const() && b.is_const()) {
    if (b.value() <= 0 || a.value() % b.value() != 0) return std::nullopt;
    return Dim(a.value() / b.value());
  }
  return (a.is_const() ? b : a).table()->exact_div(a, b);
}

// Whether a stride moves upward (or not at all), downward, or nobody knows.
enum class Way { up, down, unknown };
Way way(Dim stride) {
  if (proves_le(0, stride)) return Way::up;
  return proves_le(stride, 0) ? Way::down : Way::unknown;
}

// Part of a walk along an axis: `size` steps of `step` along the axis's digit `digit`.
struct Piece {
  size_t digit;
  Dim step;
  Dim size;
};

// The axis between the two views: the mixed-radix number whose digits the inner view gave it, and what the outer view's
// digits do to it.
class MiddleAxis {
 public:
  MiddleAxis(std::vector<Digit> digits, Dim offset) : digits_(std::move(digits)), start_(offset) {
    weights_.assign(digits_.size(), Dim(1));
    for (size_t i = digits_.size(); i-- > 1;) weights_[i - 1] = weights_[i] * digits_[i].size;
    walks_.resize(digits_.size());
    reversed_.assign(digits_.size(), Dim(0));
  }

  const std::vector<Digit>& digits() const { return digits_; }

  // The walk of `size` steps of `stride` as walks along single digits, outermost first; nullopt when a step carries
  // from digit to digit in a way that no digits of its own describe.
  std::optional<std::vector<Piece>> walk(Dim stride, Dim size) {
    if (digits_.empty()) return std::vector<Piece>();
    if (digits_.size() == 1) return std::vector<Piece>{{0, stride, size}};
    // A downward walk is the upward walk from its lowest point with every digit reversed.
    const Way direction = way(stride);
    if (direction == Way::unknown) return std::nullopt;
    const bool down = direction == Way::down;
    std::optional<std::vector<Piece>> pieces = climb(down ? -stride : stride, size);
    if (!pieces) return std::nullopt;
    if (down) start_ = start_ + stride * (size - 1);
    for (Piece& piece : *pieces) {
      walks_[piece.digit].push_back(piece);
      if (!down) continue;
      reversed_[piece.digit] = reversed_[piece.digit] + piece.step * (piece.size - 1);
      piece.step = -piece.step;
    }
    return pieces;
  }

  // Where each digit stands when all outer digits are 0; nullopt when digits that add up may carry.
  std::optional<std::vector<Dim>> origin() const {
    std::vector<Dim> values(digits_.size(), Dim(0));
    Dim rest = start_;
    for (size_t i = 0; i < digits_.size(); ++i) {
      if (i + 1 == digits_.size()) {
        values[i] = rest;
      } else if (!take(rest, weights_[i], values[i])) {
        return std::nullopt;
      }
      // The outermost digit cannot carry: all indices lie within the axis.
      if (i > 0 && !fits(walks_[i], values[i], digits_[i].size)) return std::nullopt;
      values[i] = values[i] + reversed_[i];
    }
    return values;
  }

 private:
  std::optional<std::vector<Piece>> climb(Dim stride, Dim size) const {
    std::vector<Piece> pieces;
    while (!size.is(1)) {
      // The outermost digit that the stride moves by whole steps: in any further one a walk of its length would carry.
      size_t i = 0;
      std::optional<Dim> step = exact(stride, weights_[0]);
      while (!step) step = exact(stride, weights_[++i]);
      if (i == 0 || fits({{i, *step, size}}, 0, digits_[i].size)) {
        pieces.push_back({i, *step, size});
        break;
      }
      // The walk runs over the digit's end: it must reach it exactly, and go on in the next digit from there.
      const std::optional<Dim> low = exact(digits_[i].size, *step);
      const std::optional<Dim> high = low ? exact(size, *low) : std::nullopt;
      if (!high) return std::nullopt;
      pieces.push_back({i, *step, *low});
      stride = weights_[i - 1];  // so the next turn takes a digit further out
      size = *high;
    }
    std::ranges::reverse(pieces);
    return pieces;
  }

  // Whether walks that go up together from `start` stay below `capacity`. Sizes and capacities may be taken to be at
  // least 1: else the view has no elements and all is well.
  static bool fits(std::vector<Piece> walks, Dim start, Dim capacity) {
    Dim last = start;
    for (const Piece& walk : walks) last = last + walk.step * (walk.size - 1);
    if (proves_le(last + 1, capacity)) return true;
    if (walks.empty()) return start.is(0);
    // Nested digits: the walk of the longest steps has room for itself, the others stay within one of its steps.
    const auto top = std::ranges::find_if(walks, [&](const Piece& walk) {
      return std::ranges::all_of(walks, [&](const Piece& other) { return exact(walk.step, other.step).has_value(); });
    });
    if (top == walks.end()) return false;
    const Piece longest = *top;
    const std::optional<Dim> room = exact(capacity, longest.step);
    Dim skipped;
    if (!room || !take(start, longest.step, skipped) || !proves_le(skipped + longest.size, *room)) return false;
    walks.erase(top);
    return fits(std::move(walks), start, longest.step);
  }

  // Splits `rest` into value * weight + rest with 0 <= rest < weight.
  static bool take(Dim& rest, Dim weight, Dim& value) {
    if (std::optional<Dim> quotient = exact(rest, weight)) {
      value = *quotient;
      rest = 0;
    } else if (weight.is_const() && !weight.is(0)) {
      value = floordiv(rest, weight);
      rest = mod(rest, weight);
    } else {
      // Dividing by a size that may be 0 would fail at run time although nothing is read then.
      if (!proves_le(0, rest) || !proves_le(rest + 1, weight)) return false;
      value = 0;
    }
    return true;
  }

  std::vector<Digit> digits_;
  std::vector<Dim> weights_;               // what one step of each digit adds to the number
  std::vector<std::vector<Piece>> walks_;  // upward, along each digit
  std::vector<Dim> reversed_;              // of these, how far the downward ones
  Dim start_;                              // the lowest index read
};

// One outer digit over the base; false when the movements of a tied digit split differently.
bool expand(const Digit& digit, std::vector<MiddleAxis>& middle, std::vector<Digit>& out) {
  std::vector<Digit> expanded = {{{}, digit.size}};
  bool moving = false;
  for (const Move& move : digit.moves) {
    MiddleAxis& axis = middle[static_cast<size_t>(move.axis)];
    const std::optional<std::vector<Piece>> pieces = axis.walk(move.stride, digit.size);
    if (!pieces) return false;
    if (pieces->empty()) continue;
    if (!moving) expanded.assign(pieces->size(), {});
    if (expanded.size() != pieces->size()) return false;
    for (size_t p = 0; p < expanded.size(); ++p) {
      const Piece& piece = (*pieces)[p];
      if (moving && expanded[p].size != piece.size) return false;
      expanded[p].size = piece.size;
      for (const Move& inner : axis.digits()[piece.digit].moves)
        expanded[p].moves.push_back({inner.axis, inner.stride * piece.step});
    }
    moving = true;
  }
  out.insert(out.end(), expanded.begin(), expanded.end());
  return true;
}

View empty_view(const Shape& shape, size_t base_rank) {
  View view;
  for (Dim size : shape) view.axes.push_back({{-1, 0, size}});
  view.offsets.assign(base_rank, Dim(0));
  return normalised(std::move(view));
}

bool has_zero(const Shape& shape) {
  return std::ranges::any_of(shape, [](Dim size) { return size.is(0); });
}

}  // namespace

std::optional<View> compose(const View& inner, const View& outer) {
  if (const Shape shape = outer.shape(); has_zero(shape) || has_zero(inner.shape()))
    return empty_view(shape, inner.offsets.size());
  std::vector<MiddleAxis> middle;
  const View tidy = normalised(inner);
  for (size_t m = 0; m < tidy.axes.size(); ++m) middle.emplace_back(digits_of(tidy.axes[m]), outer.offsets[m]);

  View result;
  for (const auto& axis : normalised(outer).axes) {
    std::vector<Digit> digits;
    for (const Digit& digit : digits_of(axis))
      if (!expand(digit, middle, digits)) return std::nullopt;
    std::vector<ViewAtom>& atoms = result.axes.emplace_back();
    for (const Digit& digit : digits) append_atoms(digit, atoms);
  }
  result.offsets = inner.offsets;
  for (const MiddleAxis& axis : middle) {
    const std::optional<std::vector<Dim>> origin = axis.origin();
    if (!origin) return std::nullopt;
    for (size_t i = 0; i < origin->size(); ++i)
      for (const Move& move : axis.digits()[i].moves) {
        Dim& offset = result.offsets[static_cast<size_t>(move.axis)];
        offset = offset + move.stride * (*origin)[i];
      }
  }
  return normalised(std::move(result));
}

std::optional<View> reshape_view(std::span<const Dim> base, std::span<const Dim> to) {
  // Where no groups are proved, the caller's word holds that all of one shape is all of the other.
  const std::vector<ReshapeGroup> groups = factor_reshape(base, to).value_or(
      std::vector<ReshapeGroup>{{0, static_cast<int>(base.size()), 0, static_cast<int>(to.size())}});
  const View whole = identity_view(base);
  View merged, split;  // one axis a group between the two
  merged.offsets = whole.offsets;
  split.offsets.assign(groups.size(), Dim(0));
  split.axes.resize(to.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<ViewAtom>& digits = merged.axes.emplace_back();
    for (int a = groups[g].from_begin; a < groups[g].from_end; ++a) {
      const auto& axis = whole.axes[static_cast<size_t>(a)];
      digits.insert(digits.end(), axis.begin(), axis.end());
    }
    Dim stride = 1;
    for (int j = groups[g].to_end; j-- > groups[g].to_begin;) {
      split.axes[static_cast<size_t>(j)] = {{static_cast<int>(g), stride, to[static_cast<size_t>(j)]}};
      stride = stride * to[static_cast<size_t>(j)];
    }
  }
  return compose(merged, split);
}

}  // namespace tessera::ir
