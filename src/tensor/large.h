// Tensors in large pages of the machine, for what is read whole again and again: weights, caches.
#pragma once

#include "tessera/tensor.h"

namespace tessera {

// As Tensor::make, with the same errors. Not for strings.
Result<Tensor> make_in_large_pages(DType dtype, Dims shape);

}  // namespace tessera
