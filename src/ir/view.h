// Views: the one normal form of every operator that only renames elements (transpose, reshape, slice, split, squeeze,
// expand, flip, sliding windows).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/dim.h"

namespace tessera::ir {

// One digit of an output axis: it runs over [0, size) and moves `stride` along base axis `axis` a step. A broadcast
// digit has stride 0 (and axis -1).
struct ViewAtom {
  int axis;
  Dim stride;
  Dim size;
  bool operator==(const ViewAtom&) const = default;
};

// Output axis j is the mixed-radix number with the digits axes[j] (outermost first; none: size 1). Element [i...] of
// the view is element [offsets[a] + sum of stride * digit over the atoms on axis a] of the base. Base axes that no atom
// names are indexed by their offset alone. All indices lie within the base.
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

// Merges adjacent digits that walk as one, drops digits of size 1 and sorts nothing: two views that address the same
// elements in the same order by mergeable digits become equal.
View normalised(View view);

// "[0:12, 1:64] <- base strides": one line for text forms, e.g. "(0*64+2)[2] ..."; parse_view reads it.
std::string to_string(const View& view);

}  // namespace tessera::ir
