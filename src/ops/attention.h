// The steps of attention, for its meaning and for those who need what lies between them.
#pragma once

#include <limits>
#include <optional>

#include "ops/math.h"

namespace tessera::ir {

// softcap tanh(scale q k^T / softcap) [B, H, T, S] of q [B, H, T, D] and k [B, G, S, D]; no cap when softcap is 0.
// E0312 when H is no multiple of G.
X attention_scores(X q, X k, double scale, double softcap);
// Where a boolean mask does not hold, scores become `fill`; any other mask is added; an absent one changes nothing.
X attention_mask(X scores, X mask, double fill = -std::numeric_limits<double>::infinity());
// Which keys a query sees by where it stands: query i sees the keys i + low ... i + high. With lengths [B] only the
// first lengths[b] are there, and i counts from lengths[b] - T.
struct Band {
  std::optional<Dim> high = {}, low = {};
  X lengths = {};
  double fill = -std::numeric_limits<double>::infinity();
};
// Scores outside of the band become its fill.
X attention_band(X scores, const Band& band);
// softmax over the last axis; rows where everything is hidden become 0. sinks [H]: scores of a key more.
X attention_weights(X scores, X sinks = {});
// weights [B, H, T, S] times v [B, G, S, E].
X attention_output(X weights, X v);

}  // namespace tessera::ir
