// Scores of attention as a formula of q k^T, taken apart from the outside in: fills, sums, factors, caps.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "passes/band.h"

namespace tessera::passes {

// An added number of this size leaves nothing of a score: it hides as -inf does.
constexpr double kHides = -1e30;
constexpr double kHidesHalf = -65000;  // in f16, whose least number is -65504

// A value that meets the scores where they have the shape `level`: products flatten batch and heads, masks know them.
struct Met {
  ir::ValueId value = ir::kNoValue;
  Shape level;
};

// One of the masks that scores pass on their way to the softmax.
struct Mask {
  enum class Kind : uint8_t {
    added,  // number times the value
    hides,  // number in place of the scores where the condition does not hold
  };
  Kind kind;
  Met met;            // the value, or the condition
  double number;      // factor, or fill
  bool holds = true;  // whether what is seen is where the condition holds, or where it does not
};

struct Scores {
  ir::ValueId q = ir::kNoValue, k = ir::kNoValue;
  Shape level;                   // of the product, its rows apart where a view takes them apart
  std::optional<ir::View> rows;  // that view, where it also puts them in another order
  std::vector<Shape> levels;     // all that there are, from the softmax to the product
  double scale = 1, softcap = 0;
  std::vector<Mask> masks;                  // from the softmax to the product
  std::vector<std::pair<Met, bool>> times;  // what multiplies the product, or divides it; one row or one column
  std::optional<double> floor;              // below which no sum of scores and masks goes
};

// The scores that `v` is; nothing when it is no such formula.
std::optional<Scores> read_scores(const ir::Graph& graph, ir::ValueId v);

// The value without the largest of each of its rows, which a softmax does not see.
ir::ValueId unshifted(const ir::Graph& graph, ir::ValueId v);

// Whether the view is a row-major reshape that leaves the last axis alone.
bool keeps_last_axis(const ir::View& view, const Shape& base);

}  // namespace tessera::passes
