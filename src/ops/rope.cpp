// rope: rotary position embedding.
#include "ops/math.h"

namespace tessera::ops {

using ir::A;
using ir::OpDef;
using ir::X;

constinit const OpDef rope_op = {
    .name = "rope",
    .doc =
        "Turns the first 2 R elements of each head, pair by pair, by the angle whose cosine and sine are given a "
        "token; "
        "the others stay. Pairs are (i, i + R), or neighbours (2i, 2i + 1) when `interleaved`. Su et al. 2021.",
    .signature = "x[N, H, D], cos[N, R], sin[N, R] -> y[N, H, D]",
    .types = "x, cos, sin, y: float",
    .attrs = {ir::bool_attr("interleaved", false)},
    .infer = [](ir::Infer& infer) -> Status {
      const Dim turned = infer.shape(1)[1], width = infer.shape(0)[2];
      if (!infer.dims().proves_le(turned * 2, width))
        return fail(Code::shape_mismatch, "rope: {} pairs do not fit heads of {}", to_string(turned), to_string(width));
      infer.results.push_back(infer.operands[0]);
      return {};
    },
    .meaning =
        [](X x, X cosine, X sine, A a) {
          Dim n = x.dim(0), heads = x.dim(1), pairs = cosine.dim(1), width = x.dim(2);
          X c = unsqueeze(cosine, {1}), s = unsqueeze(sine, {1});
          const Dim step = a.flag("interleaved") ? 2 : 1;
          X first = slice(x, 2, 0, pairs, step);
          X second = slice(x, 2, a.flag("interleaved") ? Dim(1) : pairs, pairs, step);
          X left = first * c - second * s, right = second * c + first * s;
          X turned = a.flag("interleaved") ? ir::reshape(ir::concat({unsqueeze(left, {3}), unsqueeze(right, {3})}, 3),
                                                         {n, heads, 2 * pairs})
                                           : ir::concat({left, right}, 2);
          return ir::concat({turned, slice(x, 2, 2 * pairs, width - 2 * pairs)}, 2);
        },
};

}  // namespace tessera::ops
