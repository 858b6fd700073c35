// com.microsoft: activations, norms, products with something fused into them, and small helpers.
#include "import/onnx/ops/microsoft.h"

#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/matmul.h"
#include "import/onnx/ops/spatial.h"

namespace tessera::onnx {
namespace {

X plus(X x, Opt bias) { return bias ? x + bias : x; }
X channels_first(X x) {
  std::vector<int> order = {0, x ? x.rank() - 1 : 0};
  for (int i = 1; x && i < x.rank() - 1; ++i) order.push_back(i);
  return transpose(x, std::move(order));
}
X channels_last(X x) {
  std::vector<int> order = {0};
  for (int i = 2; x && i < x.rank(); ++i) order.push_back(i);
  order.push_back(1);
  return transpose(x, std::move(order));
}

// The activation that a fused operator ends in. Parameters that are not given take the activation's own defaults.
Result<X> activated(NodeImport& n, X x, std::string_view name, const std::vector<double>& given) {
  auto parameter = [&](size_t i, double otherwise) { return i < given.size() ? given[i] : otherwise; };
  if (name.empty()) return x;
  if (name == "Relu") return apply(ops::relu_op, x);
  if (name == "Tanh") return tanh(x);
  if (name == "Sigmoid") return apply(ops::sigmoid_op, x);
  if (name == "Gelu") return apply(ops::gelu_op, x);
  if (name == "HardSwish") return apply(ops::hard_swish_op, x);
  if (name == "Softplus") return apply(ops::softplus_op, x);
  if (name == "Softsign") return x / (1.0 + abs(x));
  if (name == "HardSigmoid") return apply(ops::hard_sigmoid_op, x, {parameter(0, 0.2), parameter(1, 0.5)});
  if (name == "LeakyRelu") return select(less(x, like(x, 0)), parameter(0, 0.01) * x, x);
  if (name == "ThresholdedRelu") return select(less(like(x, parameter(0, 1.0)), x), x, like(x, 0));
  if (name == "Elu") return select(less(x, like(x, 0)), parameter(0, 1.0) * (exp(x) - 1.0), x);
  if (name == "Clip") {
    if (given.size() < 2) return n.fail(Code::attribute_invalid, "activation Clip has {} of 2 bounds", given.size());
    return min(max(x, like(x, given[0])), like(x, given[1]));
  }
  return n.fail(Code::unsupported_feature, "activation '{}' is not supported", name);
}

std::vector<double> activation_parameters(NodeImport& n) {
  std::vector<double> values;
  for (std::string_view name : {"activation_alpha", "activation_beta", "activation_gamma"})
    if (n.has_attribute(name)) values.push_back(n.real(name, 0));
  return values;
}

// alpha a' b', where a' may have its first axis moved behind the batch axes and its matrices transposed.
X fused_product(NodeImport& n) {
  X a = n.need(0), b = n.need(1);
  if (!n.b.ok()) return a;
  auto turned = [&](X x, std::string_view batch, std::string_view matrix) {
    if (x.rank() > 2 && n.integer(batch, 0) != 0) {
      std::vector<int> order;
      for (int i = 1; i < x.rank() - 1; ++i) order.push_back(i);
      order.push_back(0);
      order.push_back(x.rank() - 1);
      x = transpose(x, std::move(order));
    }
    return x.rank() > 1 && n.integer(matrix, 0) != 0 ? swap_axes(x, -1, -2) : x;
  };
  X y = any_matmul(n, turned(a, "transBatchA", "transA"), turned(b, "transBatchB", "transB"));
  const double alpha = n.real("alpha", 1);
  return alpha == 1 ? y : y * alpha;
}

// What a norm is taken of, and its scale and shift.
struct Skipped {
  X sum, scale, bias;
};
Status put_norm(NodeImport& n, const ir::OpDef& op, const Skipped& s, double eps) {
  const std::vector<AttrValue> attrs = {int64_t{1}, eps};
  const bool rms = &op == &ops::rms_norm_op;
  std::vector<X> operands = {s.sum, s.scale};
  if (!rms) operands.push_back(s.bias);
  const Xs results = n.b.add(op, operands, attrs);
  TESSERA_TRY(n.b.status());
  n.out(0, results[0]);
  n.out(3, s.sum);
  if (!n.wants(1) && !n.wants(2)) return {};
  // Statistics are in f32 whatever the input is.
  X wide = cast(s.sum, DType::f32);
  if (!rms) {
    const Xs statistics = n.b.add(op, std::vector<X>{wide}, attrs);
    TESSERA_TRY(n.b.status());
    n.out(1, statistics[1]);
    n.out(2, statistics[2]);
    return {};
  }
  TESSERA_TRY(no_output(n, 1, "the mean, which this norm does not take,"));
  n.out(2, rsqrt(mean(square(wide), {-1}) + eps));
  return {};
}

constexpr double kSkipEpsilon = 1e-12;  // what these norms add when the node does not say

// (x + skip + bias) to both kinds of group norm; the sum too.
Status put_group_norm(NodeImport& n, X x) {
  X scale = n.need(1), bias = n.need(2);
  const int64_t groups = n.integer("groups", 0), activation = n.integer("activation", 0);
  const bool last = n.integer("channels_last", 1) != 0;
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 1));
  if (groups < 1) return n.fail(Code::attribute_invalid, "attribute 'groups' is {} but must be positive", groups);
  if (activation != 0 && activation != 1)
    return n.fail(Code::attribute_invalid, "attribute 'activation' is {} but must be 0 or 1", activation);
  X y = last ? channels_first(x) : x;
  y = n.b.add1(ops::group_norm_op, {y, cast(scale, x.dtype()), cast(bias, x.dtype())},
               {groups, n.real("epsilon", 1e-5)});
  if (activation == 1) y = apply(ops::silu_op, y);
  n.out(0, last ? channels_last(y) : y);
  return {};
}

}  // namespace

Status only_attribute(NodeImport& n, std::string_view name, int64_t only) {
  const int64_t value = n.integer(name, only);
  if (value == only) return {};
  return n.fail(Code::unsupported_feature, "attribute '{}' is {}, but only {} is supported", name, value, only);
}

Status no_input(NodeImport& n, int i, std::string_view what) {
  if (!n.has(i)) return {};
  return n.fail(Code::unsupported_feature, "input {} ({}) is not supported", i, what);
}

Status no_output(NodeImport& n, int i, std::string_view what) {
  if (!n.wants(i)) return {};
  return n.fail(Code::unsupported_feature, "output {} ({}) is not supported", i, what);
}

Status import_ms_gelu(NodeImport& n) {
  n.out(apply(ops::gelu_op, n.need(0)));
  return {};
}
Status import_ms_bias_gelu(NodeImport& n) {
  n.out(apply(ops::gelu_op, n.need(0) + n.need(1)));
  return {};
}
Status import_ms_fast_gelu(NodeImport& n) {
  n.out(apply(ops::gelu_tanh_op, plus(n.need(0), n.in(1))));
  return {};
}
Status import_ms_quick_gelu(NodeImport& n) {
  X x = n.need(0);
  n.out(x * apply(ops::sigmoid_op, n.real("alpha", 1.702) * x));
  return {};
}
Status import_ms_bias_add(NodeImport& n) {
  n.out(n.need(0) + n.need(1) + n.need(2));
  return {};
}

// The left half of x + bias times the gelu of the right half.
Status import_ms_bias_split_gelu(NodeImport& n) {
  X x = n.need(0) + n.need(1);
  TESSERA_TRY(n.b.status());
  if (x.rank() == 0) return n.fail(Code::rank_mismatch, "the input has no axis to split");
  const Dim half = floordiv(x.dim(-1), 2);
  n.b.require_equal(x.dim(-1), 2 * half);
  n.out(slice(x, -1, 0, half) * apply(ops::gelu_op, slice(x, -1, half, half)));
  return {};
}

Status import_ms_group_norm(NodeImport& n) { return put_group_norm(n, n.need(0)); }

Status import_ms_skip_group_norm(NodeImport& n) {
  X x = n.need(0), skip = n.need(3), bias = n.in(4);
  TESSERA_TRY(n.b.status());
  const bool last = n.integer("channels_last", 1) != 0;
  // Values of channels, so that they broadcast over the image.
  auto placed = [&](X s) {
    if (!s || s.rank() == x.rank()) return s;
    const int lead = s.rank() == 2 ? 1 : 0;
    std::vector<int> positions;
    for (int i = 0; i < x.rank() - 2; ++i) positions.push_back(last ? lead + i : lead + 1 + i);
    return unsqueeze(s, std::move(positions));
  };
  X sum = plus(x + placed(skip), placed(bias));
  TESSERA_TRY(put_group_norm(n, sum));
  n.out(1, sum);
  return {};
}

Status import_ms_skip_layer_norm(NodeImport& n) {
  X sum = plus(n.need(0) + n.need(1), n.in(4));
  return put_norm(n, ops::layer_norm_op, {sum, n.need(2), n.in(3)}, n.real("epsilon", kSkipEpsilon));
}
Status import_ms_skip_rms_norm(NodeImport& n) {
  X sum = plus(n.need(0) + n.need(1), n.in(3));
  return put_norm(n, ops::rms_norm_op, {sum, n.need(2), {}}, n.real("epsilon", kSkipEpsilon));
}

// onnxruntime keeps it in ONNX's own domain. As RMSNormalization, and the inverse deviation when asked for.
Status import_simplified_layer_norm(NodeImport& n) {
  TESSERA_TRY(import_rms_normalization(n));
  if (!n.wants(1)) return {};
  X x = n.need(0);
  TESSERA_ASSIGN(int axis, n.axis("axis", -1, x.rank()));
  Axes axes;
  for (int i = axis; i < x.rank(); ++i) axes.push_back(i);
  n.out(1, rsqrt(mean(square(cast(x, n.dtype("stash_type", DType::f32))), axes) + n.real("epsilon", 1e-5)));
  return {};
}

// Words, positions and segments looked up, added up and normalized; also how many words each row of the mask keeps.
Status import_ms_embed_layer_norm(NodeImport& n) {
  X ids = n.need(0), segments = n.in(1), words = n.need(2), positions = n.need(3), kinds = n.in(4);
  X scale = n.need(5), bias = n.need(6), mask = n.in(7), position_ids = n.in(8);
  TESSERA_TRY(n.b.status());
  if (ids.rank() != 2) return n.fail(Code::rank_mismatch, "input 0 is {} but must have 2 axes", to_string(*ids.type()));
  if (static_cast<bool>(segments) != static_cast<bool>(kinds))
    return n.fail(Code::arity, "segment ids and segment embedding must both be given or both be absent");
  X sum = gather(words, ids, 0);
  sum = sum + (position_ids ? gather(positions, position_ids, 0) : slice(positions, 0, 0, ids.dim(1)));
  if (segments) sum = sum + gather(kinds, segments, 0);
  const Xs results =
      n.b.add(ops::layer_norm_op, std::vector<X>{sum, scale, bias}, {int64_t{1}, n.real("epsilon", kSkipEpsilon)});
  TESSERA_TRY(n.b.status());
  n.out(0, results[0]);
  n.out(2, sum);
  if (!n.wants(1)) return {};
  X kept = mask ? squeeze(ir::sum(cast(equal(mask, n.b.integer(1, mask.dtype())), DType::i32), {1}), {1})
                : broadcast(n.b.integer(0, DType::i32), {ids.dim(0)});
  n.out(1, kept);
  return {};
}

Status import_ms_fused_matmul(NodeImport& n) {
  n.out(fused_product(n));
  return {};
}

Status import_ms_fused_matmul_activation(NodeImport& n) {
  TESSERA_ASSIGN(X y, activated(n, fused_product(n), n.text("activation", ""), activation_parameters(n)));
  n.out(y);
  return {};
}

Status import_ms_gemm_fast_gelu(NodeImport& n) {
  n.out(apply(ops::gelu_tanh_op, plus(any_matmul(n, n.need(0), n.need(1)), n.in(2))));
  return {};
}

Status import_ms_fused_gemm(NodeImport& n) {
  TESSERA_ASSIGN(X y, gemm(n));
  TESSERA_ASSIGN(y, activated(n, y, n.text("activation", ""), activation_parameters(n)));
  n.out(y);
  return {};
}

Status import_ms_fused_conv(NodeImport& n) {
  X x = n.need(0), w = n.need(1), bias = n.in(2), residual = n.in(3);
  TESSERA_TRY(n.b.status());
  const bool last = n.node.op_type.starts_with("Nhwc");
  TESSERA_ASSIGN(X y, convolved(n, last ? channels_first(x) : x, w, bias));
  y = plus(last ? channels_last(y) : y, residual);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(y, activated(n, y, n.text("activation", ""), n.reals("activation_params")));
  n.out(y);
  return {};
}

Status import_ms_expand_dims(NodeImport& n) {
  X x = n.need(0);
  const std::optional<std::vector<int64_t>> axis = n.ints(1);
  TESSERA_TRY(n.b.status());
  if (!axis || axis->size() != 1) return n.value_unknown(1);
  TESSERA_ASSIGN(int at, n.normal_axis((*axis)[0], x.rank() + 1));
  n.out(unsqueeze(x, {at}));
  return {};
}

// The version of ONNX's operator of the same name whose rules these follow.
Status import_ms_pad(NodeImport& n) {
  n.opset = 11;
  return import_pad(n);
}
Status import_ms_gather_nd(NodeImport& n) {
  n.opset = 12;
  return import_gather_nd(n);
}

Status import_ms_torch_embedding(NodeImport& n) {
  n.out(gather(n.need(0), n.need(1), 0));
  return {};
}

// data + bias (+ residual): nothing is dropped outside training.
Status import_ms_bias_dropout(NodeImport& n) {
  X data = n.need(0), bias = n.need(1), residual = n.in(2);
  const std::optional<std::vector<double>> training = n.reals(4);
  TESSERA_TRY(n.b.status());
  if (n.has(4) && (!training || (training->size() == 1 && (*training)[0] != 0)))
    return n.fail(Code::unsupported_feature, "input 4 (training_mode) must be the constant false");
  X y = plus(data + bias, residual);
  TESSERA_TRY(n.b.status());
  n.out(0, y);
  if (n.wants(1)) n.out(1, broadcast(n.b.integer(1, DType::boolean), y.shape()));
  return {};
}

}  // namespace tessera::onnx
