// The pieces that layers are made of: weights, norms, projections, feed-forward networks.
#pragma once

#include "import/transformer/build.h"
#include "ops/math.h"

namespace tessera::transformer {

using ir::X;

struct Heads {
  X q, k, v;  // [N, H, D], [N, G, D], [N, G, D]
};

class Parts {
 public:
  Parts(ir::Builder& builder, const Config& config, const Weights& weights) : b_(builder), c_(config), w_(weights) {}

  // Rows of a table, in f32.
  X rows(const Key& key, Shape shape, X index);
  X norm(X x, Part part, int layer);
  // x [*B, K] times the weight [outputs, K].
  X linear(X x, const Key& key, int64_t outputs, bool bias);
  // Queries, keys and values of x [N, C], normed where the model does that.
  Heads heads(X x, int layer);
  X feed_forward(X x, int layer);
  // bias [H, R] by distance, of the table [buckets, H].
  X distance_bias();

 private:
  X weight(const Key& key, const Shape& shape);
  X activate(X x);
  X gated(X x, const Key& gate, const Key& up, const Key& down, int64_t width);
  X mixture(X x, int layer);
  X expert(X x, X chosen, X values, int layer, int number, X sum);
  void locate(const Key& key, std::string_view op);

  ir::Builder& b_;
  const Config& c_;
  const Weights& w_;
};

}  // namespace tessera::transformer
