// The steps of attention, for its meaning and for those who need what lies between them.
#pragma once

#include "ops/math.h"

namespace tessera::ir {

// softcap tanh(scale q k^T / softcap) [B, H, T, S] of q [B, H, T, D] and k [B, G, S, D]; no cap when softcap is 0.
// E0312 when H is no multiple of G.
X attention_scores(X q, X k, double scale, double softcap);
// Hides where a boolean mask does not hold, adds any other; an absent mask changes nothing.
X attention_mask(X scores, X mask);
// Hides key j from query i where j > i + offset.
X attention_causal(X scores, Dim offset);
// softmax over the last axis; rows where everything is hidden become 0.
X attention_weights(X scores);
// weights [B, H, T, S] times v [B, G, S, E].
X attention_output(X weights, X v);

}  // namespace tessera::ir
