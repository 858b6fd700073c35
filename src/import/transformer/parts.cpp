#include "import/transformer/parts.h"

#include <algorithm>
#include <cmath>

namespace tessera::transformer {
namespace {

Dims numbers(const Shape& shape) {
  Dims dims;
  for (Dim d : shape) dims.push_back(d.value());
  return dims;
}

// T5's buckets for the distance of a key from a query, both directions, as MPNet uses them: half of the buckets a
// direction, half of these exact, the others logarithmic up to 128.
int64_t bucket_of(int64_t distance) {
  constexpr int64_t kBuckets = 16, kExact = 8;
  const int64_t n = std::abs(distance), side = distance > 0 ? kBuckets : 0;
  if (n < kExact) return side + n;
  const double rest = std::log(static_cast<double>(n) / kExact) / std::log(128.0 / kExact) * (kBuckets - kExact);
  return side + std::min(kExact + static_cast<int64_t>(rest), kBuckets - 1);
}

}  // namespace

void Parts::locate(const Key& key, std::string_view op) {
  ir::Context& context = b_.context();
  b_.set_location(context.location({context.name(w_.name(key)), context.name(op), static_cast<uint32_t>(key.layer)}));
}

X Parts::weight(const Key& key, const Shape& shape) {
  if (!b_.ok()) return {&b_, ir::kNoValue};
  Result<Tensor> tensor = w_.get(key);
  if (!tensor) {
    Error error = std::move(tensor.error());
    if (error.code == Code::unknown_name)
      error.message = fmt::format("the model has no tensor '{}', which must be {}", w_.name(key),
                                  to_string(std::span<const Dim>(shape)));
    b_.fail_with(std::move(error));
    return {&b_, ir::kNoValue};
  }
  if (tensor->shape() != numbers(shape)) {
    const Shape found(tensor->shape().begin(), tensor->shape().end());
    b_.fail_with(fail(Code::shape_mismatch, "tensor '{}' is {} but must be {}", w_.name(key),
                      to_string(std::span<const Dim>(found)), to_string(std::span<const Dim>(shape)))
                     .value());
    return {&b_, ir::kNoValue};
  }
  if (!is_float(tensor->dtype()) && !is_block(tensor->dtype())) {
    b_.fail_with(fail(Code::dtype_mismatch, "tensor '{}' is of type {} but must hold real numbers", w_.name(key),
                      tessera::name(tensor->dtype()))
                     .value());
    return {&b_, ir::kNoValue};
  }
  X x = b_.constant(std::move(*tensor));
  b_.graph().set_name(x.id, w_.name(key));
  return x;
}

X Parts::rows(const Key& key, Shape shape, X index) {
  locate(key, "embedding");
  X table = weight(key, shape);
  if (table && is_block(table.dtype())) return gather(decoded(table), index, 0);
  return cast(gather(table, index, 0), DType::f32);
}

X Parts::norm(X x, Part part, int layer) {
  const Key key{part, layer};
  locate(key, c_.layer_norm ? "layer_norm" : "rms_norm");
  const bool head = part == Part::q_norm || part == Part::k_norm;
  const Shape shape = {head ? c_.head_width : c_.width};
  X w = decoded(weight(key, shape));
  if (c_.norm_offset != 0) w = w + c_.norm_offset;
  if (!c_.layer_norm) return b_.add1(ops::rms_norm_op, {x, w}, {int64_t{1}, c_.eps});
  X bias{&b_, ir::kNoValue};
  if (c_.norm_bias) bias = decoded(weight({part, layer, 0, true}, shape));
  const X operands[] = {x, w, bias};
  const ir::Xs results = b_.add(ops::layer_norm_op, operands, {int64_t{1}, c_.eps});
  return results.empty() ? X{&b_, ir::kNoValue} : results[0];
}

X Parts::linear(X x, const Key& key, int64_t outputs, bool bias) {
  locate(key, "linear");
  if (!b_.ok()) return {&b_, ir::kNoValue};
  const Dim inputs = x.dim(-1);
  const bool turned = c_.input_major && is_projection(key.part);
  X w = turned ? swap_axes(weight(key, {inputs, outputs}), 0, 1) : weight(key, {outputs, inputs});
  X added{&b_, ir::kNoValue};
  if (bias) added = decoded(weight({key.part, key.layer, key.expert, true}, {outputs}));
  return b_.add1(ops::linear_op, {x, decoded(w), added});
}

Heads Parts::heads(X x, int layer) {
  const int64_t h = c_.heads, g = c_.groups, d = c_.head_width;
  Heads out{{&b_, ir::kNoValue}, {&b_, ir::kNoValue}, {&b_, ir::kNoValue}};
  if (!b_.ok()) return out;
  const Dim n = x.dim(0);
  if (c_.fused_by_head) {
    X all = reshape(linear(x, {Part::qkv, layer}, 3 * h * d, c_.qkv_bias), {n, h, 3, d});
    const auto part = [&](int i) { return squeeze(slice(all, 2, i, 1), {2}); };
    out = {part(0), part(1), part(2)};
  } else if (c_.fused_qkv) {
    X all = reshape(linear(x, {Part::qkv, layer}, (h + 2 * g) * d, c_.qkv_bias), {n, h + 2 * g, d});
    out = {slice(all, 1, 0, h), slice(all, 1, h, g), slice(all, 1, h + g, g)};
  } else {
    out = {reshape(linear(x, {Part::q, layer}, h * d, c_.qkv_bias), {n, h, d}),
           reshape(linear(x, {Part::k, layer}, g * d, c_.qkv_bias), {n, g, d}),
           reshape(linear(x, {Part::v, layer}, g * d, c_.qkv_bias), {n, g, d})};
  }
  if (c_.head_norms) {
    out.q = norm(out.q, Part::q_norm, layer);
    out.k = norm(out.k, Part::k_norm, layer);
  }
  return out;
}

X Parts::activate(X x) {
  switch (c_.activation) {
    case Activation::silu:
      return b_.add1(ops::silu_op, {x});
    case Activation::gelu:
      return b_.add1(ops::gelu_op, {x});
    case Activation::gelu_tanh:
      return b_.add1(ops::gelu_tanh_op, {x});
    case Activation::relu:
      return b_.add1(ops::relu_op, {x});
  }
  return x;
}

X Parts::gated(X x, const Key& gate, const Key& up, const Key& down, int64_t width) {
  X y = activate(linear(x, gate, width, c_.feed_bias)) * linear(x, up, width, c_.feed_bias);
  return linear(y, down, c_.width, c_.feed_bias);
}

X Parts::feed_forward(X x, int layer) {
  if (c_.layers[static_cast<size_t>(layer)].experts) return mixture(x, layer);
  const int64_t f = c_.feed_width;
  const Key down{Part::down, layer};
  if (!c_.gated) return linear(activate(linear(x, {Part::up, layer}, f, c_.feed_bias)), down, c_.width, c_.feed_bias);
  if (!c_.fused_gate) return gated(x, {Part::gate, layer}, {Part::up, layer}, down, f);
  X both = linear(x, {Part::gate_up, layer}, 2 * f, c_.feed_bias);
  return linear(activate(slice(both, -1, 0, f)) * slice(both, -1, f, f), down, c_.width, c_.feed_bias);
}

// Experts take only the tokens that chose them. Shazeer et al. 2017.
X Parts::mixture(X x, int layer) {
  const Experts& e = c_.experts;
  X scores = b_.add1(ops::softmax_op, {linear(x, {Part::router, layer}, e.count, false)}, {int64_t{-1}});
  if (!b_.ok()) return {&b_, ir::kNoValue};
  const X operands[] = {scores, b_.integer(e.used)};
  const ir::Xs top = b_.add(ops::top_k_op, operands, {int64_t{-1}});
  if (!b_.ok()) return {&b_, ir::kNoValue};
  X values = top[0], chosen = top[1];  // [N, used]
  if (e.normalised) values = values / sum(values, {1});
  X y = broadcast(b_.scalar(DType::f32, 0), x.shape());
  for (int i = 0; i < static_cast<int>(e.count) && b_.ok(); ++i) y = expert(x, chosen, values, layer, i, y);
  if (e.shared_width == 0 || !b_.ok()) return y;
  X shared = gated(x, {Part::shared_gate, layer}, {Part::shared_up, layer}, {Part::shared_down, layer}, e.shared_width);
  if (e.shared_switch) shared = shared * b_.add1(ops::sigmoid_op, {linear(x, {Part::shared_switch, layer}, 1, false)});
  return y + shared;
}

X Parts::expert(X x, X chosen, X values, int layer, int number, X total) {
  X here = cast(equal(chosen, b_.integer(number)), DType::f32);  // [N, used]
  X share = sum(values * here, {1});                             // [N, 1]
  X found = b_.add1(ops::non_zero_op, {squeeze(sum(here, {1}), {1})});
  if (!b_.ok()) return total;
  X at = reshape(found, {found.dim(1)});
  X y = gated(gather(x, at, 0), {Part::expert_gate, layer, number}, {Part::expert_up, layer, number},
              {Part::expert_down, layer, number}, c_.experts.width);
  const int64_t add = 1;  // of none|add|mul|min|max
  return b_.add1(ops::scatter_nd_op, {total, unsqueeze(at, {1}), y * gather(share, at, 0)}, {add});
}

X Parts::distance_bias() {
  constexpr int64_t kFarthest = 128;  // from here on all distances share a bucket
  X table = decoded(weight({Part::bias_table}, {c_.bias_buckets, c_.heads}));
  std::vector<int64_t> buckets;
  for (int64_t d = -kFarthest; d <= kFarthest; ++d) buckets.push_back(bucket_of(d));
  return swap_axes(gather(table, b_.integers(buckets), 0), 0, 1);
}

}  // namespace tessera::transformer
