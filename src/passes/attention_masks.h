// Which of a score's masks an attention call can hold as they are: fills that hide, and sums before and after them.
#pragma once

#include <limits>

#include "passes/attention_scores.h"

namespace tessera::passes {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// softmax(where(hides, fill, product + before) + after): the steps that remain, each in one of the three places.
struct Masks {
  double fill;               // of what is hidden
  std::vector<Mask> hides;   // all of them with this fill
  std::vector<Mask> before;  // added to what is not hidden
  std::vector<Mask> after;   // added to what is hidden too; none where the fill is -inf, below which nothing shows
};

// The places of the masks, and nothing when no call computes the same: in rows that see no key, fills show. `queries`
// is how many rows the scores have.
std::optional<Masks> place_masks(const ir::Graph& graph, const Scores& scores, Dim queries);

// Whether it meets the scores where an axis is that of queries.
bool has_rows(const Met& met, Dim queries);

// The half planes in all of which a condition holds, or does not; none when it is something else.
std::vector<Affine> planes_of(const ir::Graph& graph, ir::ValueId condition, bool holds);

}  // namespace tessera::passes
