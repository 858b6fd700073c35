// A language model as its files hold it: what all formats of such models are read into.
#pragma once

#include <memory>
#include <string>

#include "import/transformer/build.h"

namespace tessera::transformer {

// What an encoder's token vectors become one of.
enum class Pooling : uint8_t { none, mean, cls, last };

struct Source {
  Config config;
  std::shared_ptr<const Weights> weights;
  Pooling pooling = Pooling::none;
  bool normalised = false;  // pooled vectors are scaled to length 1
  int64_t longest = 0;      // tokens that texts are cut to; 0: the model's files name no limit but the context
};

}  // namespace tessera::transformer
