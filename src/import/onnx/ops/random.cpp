// Random numbers, and dropout.
#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

// Models without a seed get a fixed one: runs repeat.
// Dropout's seed is an integer, the others' a float.
int64_t seed_of(NodeImport& n) {
  const AttributeProto* seed = n.attribute("seed");
  if (seed != nullptr && seed->i() != nullptr) return *seed->i();
  return static_cast<int64_t>(n.real("seed", 0) * 65536);
}

X draw(NodeImport& n, Shape shape, DType dtype, std::string_view kind, double low, double high) {
  return n.b.add1(
      ops::random_op, {},
      {std::move(shape), static_cast<int64_t>(dtype), ir::word_index("uniform|normal", kind), low, high, seed_of(n)});
}

Status random_of(NodeImport& n, std::string_view kind, bool like_input) {
  bool normal = kind == "normal";
  double low = n.real(normal ? "mean" : "low", 0), high = n.real(normal ? "scale" : "high", 1);
  DType dtype = DType::f32;
  Shape shape;
  if (like_input) {
    X x = n.need(0);
    TESSERA_TRY(n.b.status());
    shape = x.shape();
    dtype = n.dtype("dtype", x.dtype());
  } else {
    for (int64_t size : n.integers("shape")) shape.push_back(size);
    dtype = n.dtype("dtype", DType::f32);
  }
  TESSERA_TRY(n.b.status());
  if (!is_float(dtype)) return n.fail(Code::dtype_mismatch, "random numbers are floats, not {}", name(dtype));
  for (Dim d : shape)
    if (d.is_const() && d.value() < 0) return n.fail(Code::shape_invalid, "a size is {}", d.value());
  n.out(draw(n, std::move(shape), dtype, kind, low, high));
  return {};
}

}  // namespace

Status import_random_normal(NodeImport& n) { return random_of(n, "normal", false); }
Status import_random_normal_like(NodeImport& n) { return random_of(n, "normal", true); }
Status import_random_uniform(NodeImport& n) { return random_of(n, "uniform", false); }
Status import_random_uniform_like(NodeImport& n) { return random_of(n, "uniform", true); }

Status import_bernoulli(NodeImport& n) {
  X p = n.need(0);
  TESSERA_TRY(n.b.status());
  DType to = n.dtype("dtype", p.dtype());
  n.out(cast(less(draw(n, p.shape(), p.dtype(), "uniform", 0, 1), p), to));
  return {};
}

// Draws classes by their unnormalised log-probabilities x[B, C]: the first class whose running probability passes the
// draw.
Status import_multinomial(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  if (x.rank() != 2) return n.fail(Code::rank_mismatch, "input 0 has {} axes but must have 2", x.rank());
  int64_t samples = n.integer("sample_size", 1);
  if (samples < 1) return n.fail(Code::attribute_invalid, "sample_size is {}", samples);
  DType to = n.dtype("dtype", DType::i32);
  X p = n.b.add1(ops::softmax_op, {x}, {int64_t{-1}});
  X running = n.b.add1(ops::cumsum_op, {p}, {int64_t{1}, int64_t{0}, int64_t{0}});  // [B, C]
  X u = draw(n, {x.dim(0), samples, 1}, x.dtype(), "uniform", 0, 1);                // [B, samples, 1]
  X passed = cast(less_equal(unsqueeze(running, {1}), u), DType::i64);              // [B, samples, C]
  X index = squeeze(sum(passed, {-1}), {-1});
  n.out(cast(min(index, n.b.size(x.dim(1) - 1)), to));
  return {};
}

Status import_dropout(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  // Only versions from 12 on can train here; the older ones' training has no defined draws and inference is the
  // identity.
  bool training = false;
  X ratio = n.b.scalar(x.dtype(), 0.5);
  if (n.opset >= 12) {
    if (n.has(2)) {
      std::optional<std::vector<int64_t>> mode = n.ints(2);
      if (!mode || mode->size() != 1) return n.value_unknown(2);
      training = (*mode)[0] != 0;
    }
    if (n.has(1)) ratio = cast(n.in(1), x.dtype());
  }
  // Before version 10 the mask has x's type.
  DType mask_type = n.opset < 10 ? x.dtype() : DType::boolean;
  if (!training) {
    n.out(0, x);
    if (n.wants(1)) n.out(1, broadcast(cast(n.b.integer(1, DType::boolean), mask_type), x.shape()));
    return {};
  }
  X keep = less_equal(ratio, draw(n, x.shape(), x.dtype(), "uniform", 0, 1));
  n.out(0, select(keep, x / (1.0 - ratio), like(x, 0)));
  n.out(1, cast(keep, mask_type));
  return {};
}

}  // namespace tessera::onnx
