// softmax and log_softmax over one axis.
#include "ops/math.h"

namespace tessera::ops {

using ir::A;
using ir::OpDef;
using ir::X;

constinit const OpDef softmax_op = {
    .name = "softmax",
    .doc = "e^x over its sum along the axis, shifted by the largest so that nothing overflows.",
    .signature = "x[*S] -> y[*S]",
    .types = "x, y: float",
    .attrs = {ir::int_attr("axis", -1)},
    .meaning =
        [](X x, A a) {
          X e = exp(x - reduce_max(x, {a["axis"]}));
          return e / sum(e, {a["axis"]});
        },
};

constinit const OpDef log_softmax_op = {
    .name = "log_softmax",
    .doc = "log(softmax(x)), without the loss of taking the logarithm of a small number.",
    .signature = "x[*S] -> y[*S]",
    .types = "x, y: float",
    .attrs = {ir::int_attr("axis", -1)},
    .meaning =
        [](X x, A a) {
          X shifted = x - reduce_max(x, {a["axis"]});
          return shifted - log(sum(exp(shifted), {a["axis"]}));
        },
};

}  // namespace tessera::ops
