// Graphs of transformer models.
#pragma once

#include <memory>
#include <string>

#include "import/transformer/config.h"
#include "ir/graph.h"
#include "tessera/tensor.h"

namespace tessera::transformer {

// One weight, by what it is for.
struct Key {
  Part part;
  int layer = 0;
  int expert = 0;
  bool bias = false;
};

// The weights of a model's files.
class Weights {
 public:
  virtual ~Weights() = default;
  // The name that the file's format gives it: for messages, where it is missing too.
  virtual std::string name(const Key& key) const = 0;
  // E0202 when there is none.
  virtual Result<Tensor> get(const Key& key) const = 0;
};

// Rows of a page of the cache. As many keys as the attention kernel takes at once.
constexpr int64_t kPageRows = 64;

struct BuildOptions {
  bool logits = true;        // of decoders; else the last hidden state
  DType cache = DType::f32;  // of keys and values; in i8 each head of a token has a scale
  bool exact = false;        // activations stay f32 for weights of any type
};

// A decoder takes a step of several sequences at once, whose tokens lie one after another:
//   ids i64[tokens], positions i64[tokens], starts i64[sequences + 1], lengths i64[sequences]: tokens with those
//   before, table i64[sequences, pages]: the pages of each sequence, slots i64[tokens]: which row a token takes, page
//   times kPageRows and its row in the page, picked i64[rows]: tokens whose results are asked for, and for each layer
//   the states keys.N, values.N [cache, groups, kPageRows, head]
// (in i8 also keys.N.scale, values.N.scale f32[cache, groups, kPageRows, 1]), and gives logits f32[rows, vocabulary] or
// hidden f32[rows, width].
//
// An encoder takes ids i64[tokens], positions i64[tokens], starts i64[bounds] and, where the model has them,
// types i64[tokens]; it gives hidden f32[tokens, width] and, where the model has one, pooled f32[bounds - 1, width].
//
// E0202 and E0312 name a weight that is missing or of another shape, with what was expected.
Result<ir::Graph> build(const Config& config, const Weights& weights, const BuildOptions& options);

}  // namespace tessera::transformer
