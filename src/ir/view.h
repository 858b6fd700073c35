// Views: the one normal form of every operator that only renames elements (transpose, reshape, slice, split, squeeze,
// expand, flip, sliding windows).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dim.h"

namespace tessera::ir {

// One digit of an output axis: it runs over [0, size) and moves `stride` along base axis `axis` a step. A broadcast
// digit has stride 0 (and axis -1). A tied atom is no digit of its own but one more movement of the digit before it,
// whose size it repeats: a diagonal moves along two base axes at once.
struct ViewAtom {
  int axis;
  Dim stride;
  Dim size;
  bool tied = false;
  bool operator==(const ViewAtom&) const = default;
};

// Output axis j is the mixed-radix number with the digits axes[j] (outermost first; none: size 1). Element [i...] of
// the view is element [offsets[a] + sum of stride * digit over the atoms on axis a] of the base. Base axes that no atom
// names are indexed by their offset alone. All indices lie within the base, or the view has no elements.
struct View {
  std::vector<std::vector<ViewAtom>> axes;  // one entry an output axis
  Shape offsets;                            // one entry a base axis
  bool operator==(const View&) const = default;

  Shape shape() const;  // sizes of the output axes
  int base_rank() const { return static_cast<int>(offsets.size()); }
  // True when the view is the whole base unchanged.
  bool is_identity(std::span<const Dim> base) const;
};

// Constructors. Shapes are the base's. Preconditions (ranks, permutations, bounds) are the caller's to have checked.
View identity_view(std::span<const Dim> base);
View transpose_view(std::span<const Dim> base, std::span<const int> permutation);
// Axis `axis` restricted to start, start + step, ...: `size` elements; step may be negative, not 0.
View slice_view(std::span<const Dim> base, int axis, Dim start, Dim step, Dim size);
// Inserts size-1 axes so that they stand at `positions` (ascending) of the result.
View unsqueeze_view(std::span<const Dim> base, std::span<const int> positions);
// Drops the size-1 axes `positions` (ascending).
View squeeze_view(std::span<const Dim> base, std::span<const int> positions);
// Numpy broadcasting of base to `to` (right-aligned; base axes of size 1 expand).
View broadcast_view(std::span<const Dim> base, std::span<const Dim> to);
// Row-major reshape; nullopt when the element order cannot be written as a view of the base.
std::optional<View> reshape_view(std::span<const Dim> base, std::span<const Dim> to);
// Sliding windows along `axis`: it becomes two axes, [count] (moving by `step`) where it stood and [length] (moving by
// `dilation`) at the end of the shape.
View window_view(std::span<const Dim> base, int axis, Dim count, Dim step, Dim length, Dim dilation);
// The diagonal of two axes of equal size: `b` disappears, `a` moves along both.
View diagonal_view(std::span<const Dim> base, int a, int b);

// outer applied to the result of inner, as one view of inner's base; nullopt when an outer digit does not align with
// the digits of the axis that it walks (then the inner result must be copied first).
std::optional<View> compose(const View& inner, const View& outer);

// The form in which views that walk the same digits are equal: adjacent digits that walk as one are merged, digits of
// size 1 and movements of stride 0 dropped, and a view known to have no elements is all broadcast digits and offsets 0.
View normalised(View view);

// The lowest and highest index that a view with elements reads along each base axis; nullopt where the sign of a stride
// is not known or the arithmetic overflows.
struct Reach {
  Dim low, high;
};
std::optional<std::vector<Reach>> reach(const View& view);

// The view of a base that lies row-major in memory, in elements: one stride a digit, 0 for a broadcast one.
struct LinearDigit {
  Dim stride;
  Dim size;
};
struct LinearView {
  std::vector<std::vector<LinearDigit>> axes;  // one entry an output axis, outermost digit first
  Dim offset;
};
LinearView linear(const View& view, std::span<const Dim> base);

// One line for text forms: the axes as their digits, "size:axis*stride", then the offsets. The heads of a fused QKV
// projection x[b, s, 2304], taken out and transposed, are "[b:0, 12:2*64, s:1, 64:2] from [0, 0, 768]". "1" is an axis
// without digits, "4" a broadcast digit, "b:0 s:1" a merged axis, "n:0+1" a diagonal; sums and products of symbols
// stand in parentheses: "(2*s):1".
std::string to_string(const View& view);
// Reads what to_string writes, into the normal form; makes symbols by name. E0205, or E0206 when an axis is not one of
// the base's.
Result<View> parse_view(DimTable& dims, std::string_view text);

}  // namespace tessera::ir
