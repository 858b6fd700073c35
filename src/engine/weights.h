// Weights in other types than those that a model's files hold.
#pragma once

#include <memory>
#include <string_view>

#include "base/thread_pool.h"
#include "import/transformer/source.h"

namespace tessera::engine {

// The model with its matrices in the types of a recipe (find_recipe), rounded when they are asked for as `quantize`
// rounds them; for "" and "keep" the model itself. Memory of mapped files that was read for it is given back. E0801 for
// an unknown recipe.
Result<transformer::Source> with_weights(const transformer::Source& source, std::string_view recipe,
                                         std::shared_ptr<ThreadPool> pool);

}  // namespace tessera::engine
