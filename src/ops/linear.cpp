// linear: every layer's matrix product.
#include "ops/math.h"

namespace tessera::ops {

using ir::OpDef;
using ir::Opt;
using ir::X;

constinit const OpDef linear_op = {
    .name = "linear",
    .doc =
        "x w^T + b, with the weight as [outputs, inputs]. Weights of 16 bits under a wider x are widened; bf16 ones "
        "round x to bf16 before.",
    .signature = "x[*B, K], w[N, K], b?[N] -> y[*B, N]",
    .types = "x, b, y: float; w: float",
    .meaning =
        [](X x, X w, Opt b) {
          if (w.dtype() != x.dtype()) {
            if (w.dtype() == DType::bf16) x = cast(cast(x, DType::bf16), x.dtype());
            w = cast(w, x.dtype());
          }
          // All leading axes are rows of one product.
          Shape rows(x.shape().begin(), x.shape().end() - 1);
          Dim n = w.dim(0), k = w.dim(1);
          X y = dot(reshape(x, {product(rows), k}), w);
          rows.push_back(n);
          y = reshape(y, rows);
          return b ? y + b : y;
        },
};

}  // namespace tessera::ops
