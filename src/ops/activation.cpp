// Activations.
#include "ops/math.h"

namespace tessera::ops {
namespace {

using ir::A;
using ir::OpDef;
using ir::X;

constexpr OpDef activation(std::string_view name, std::string_view doc, ir::Meaning meaning,
                           std::string_view types = "x, y: float") {
  OpDef op{};
  op.name = name;
  op.doc = doc;
  op.signature = "x[*S] -> y[*S]";
  op.types = types;
  op.meaning = meaning;
  return op;
}
constexpr OpDef with_attrs(OpDef op, ir::AttrSpecs attrs) {
  op.attrs = attrs;
  return op;
}

}  // namespace

// clang-format off
constinit const OpDef relu_op = activation("relu", "max(x, 0).", [](X x) { return max(x, like(x, 0)); }, "x, y: number");
constinit const OpDef sigmoid_op = activation("sigmoid", "1 / (1 + e^-x).", [](X x) { return 1.0 / (1.0 + exp(-x)); });
constinit const OpDef silu_op = activation("silu", "x sigmoid(x). Elfwing et al. 2017.", [](X x) { return x * (1.0 / (1.0 + exp(-x))); });
constinit const OpDef gelu_op = activation("gelu", "x times the normal distribution function. Hendrycks and Gimpel 2016.",
    [](X x) { return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440)); });
constinit const OpDef gelu_tanh_op = activation("gelu_tanh", "GELU's tanh approximation. Hendrycks and Gimpel 2016.",
    [](X x) { return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); });
constinit const OpDef softplus_op = activation("softplus", "log(1 + e^x), without overflow.",
    [](X x) { return max(x, like(x, 0)) + log(1.0 + exp(-abs(x))); });
constinit const OpDef hard_sigmoid_op = with_attrs(activation("hard_sigmoid", "alpha x + beta, clipped to [0, 1].",
    [](X x, A a) { return min(max(x * a.real("alpha") + a.real("beta"), like(x, 0)), like(x, 1)); }),
    {ir::real_attr("alpha", 0.2), ir::real_attr("beta", 0.5)});
constinit const OpDef hard_swish_op = activation("hard_swish", "x clip(x + 3, 0, 6) / 6. Howard et al. 2019.",
    [](X x) { return x * (min(max(x + 3.0, like(x, 0)), like(x, 6)) / 6.0); });
// clang-format on

}  // namespace tessera::ops
