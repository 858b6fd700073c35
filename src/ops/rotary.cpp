// rotary: rotary position embedding of rows, as exported models spell it.
#include "ops/math.h"

namespace tessera::ops {

using ir::A;
using ir::OpDef;
using ir::X;
using ir::Xs;

constinit const OpDef rotary_op = {
    .name = "rotary",
    .doc =
        "x cos + rotated(x) sin over the first R of D elements of each row; the rest stays. Rotated rows are the "
        "negated second half before the first, or, interleaved, each pair (a, b) as (-b, a). Su et al. 2021, eq. 34.",
    .signature = "x[*S, D], cos[*C, R], sin[*C, R] -> y[*S, D]",
    .types = "x, cos, sin, y: float",
    .attrs = {ir::word_attr("style", "half|interleaved")},
    .infer = [](ir::Infer& infer) -> Status {
      infer.results.push_back(infer.operands[0]);
      if (!infer.operands[0]->ranked || !infer.operands[1]->ranked) return {};
      const Dim whole = infer.shape(0).back(), rotated = infer.shape(1).back();
      if (!whole.is_const() || !rotated.is_const() || rotated.value() % 2 != 0 || rotated.value() > whole.value() ||
          rotated.value() == 0)
        return fail(Code::shape_mismatch, "rotary: {} of {} elements of a row are to be rotated in pairs",
                    to_string(rotated), to_string(whole));
      Shape table = infer.shape(1), rows = infer.shape(0);
      table.back() = rows.back() = 1;
      TESSERA_ASSIGN(const Shape both, ir::broadcast_shapes(infer, rows, table));
      if (both.size() != rows.size())
        return fail(Code::rank_mismatch, "rotary: cos {} has more axes than x {}", to_string(*infer.operands[1]),
                    to_string(*infer.operands[0]));
      for (size_t i = 0; i < rows.size(); ++i)
        TESSERA_TRY(infer.require_equal(both[i], rows[i], "the rows of x and what cos broadcasts to"));
      return {};
    },
    .meaning =
        [](X x, X cos, X sin, A a) {
          const Dim whole = x.dim(-1), size = cos.dim(-1), half = floordiv(size, 2);
          const X part = whole == size ? x : slice(x, -1, 0, size);
          X rotated;
          if (a.word("style") == "half") {
            rotated = ir::concat({-slice(part, -1, half, half), slice(part, -1, 0, half)}, -1);
          } else {
            const int end = part.rank();
            const X even = unsqueeze(slice(part, -1, 0, half, 2), {end}),
                    odd = unsqueeze(slice(part, -1, 1, half, 2), {end});
            rotated = reshape(ir::concat({-odd, even}, -1), part.shape());
          }
          const X y = part * cos + rotated * sin;
          return whole == size ? y : ir::concat({y, slice(x, -1, size, whole - size)}, -1);
        },
};

}  // namespace tessera::ops
