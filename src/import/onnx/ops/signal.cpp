// Fourier transforms, windows and the mel scale.
#include <cmath>
#include <numbers>

#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

X sin(X x) { return x.builder->add1(ops::sin_op, {x}); }
X cos(X x) { return x.builder->add1(ops::cos_op, {x}); }

// The size that an integer input of one element holds.
Result<Dim> size_in(NodeImport& n, int i) {
  const Shape* known = n.sizes(i);
  if (known == nullptr) return n.value_unknown(i);
  if (known->size() != 1) return n.fail(Code::shape_invalid, "input {} has {} elements, not one", i, known->size());
  Dim size = (*known)[0];
  if (size.is_const() && size.value() < 1) return n.fail(Code::shape_invalid, "input {} is {}", i, size.value());
  return size;
}

// A signal along the last axis: re, im [..., N]; im is absent where it is 0.
struct Complex {
  X re, im;
};

// x [..., 1 or 2] as a signal; `axis` of x becomes the last one.
Result<Complex> signal_of(NodeImport& n, X x, int axis) {
  Dim parts = x.dim(-1);
  if (!parts.is_const())
    return n.fail(Code::value_unknown,
                  "the size of the last axis, 1 for real and 2 for complex, is only known in the run");
  if (!parts.is(1) && !parts.is(2))
    return n.fail(Code::shape_invalid, "the last axis has the size {} but must be 1 or 2", to_string(parts));
  std::vector<int> permutation;
  for (int i = 0; i + 1 < x.rank(); ++i)
    if (i != axis) permutation.push_back(i);
  permutation.push_back(axis);
  auto part = [&](int i) { return transpose(squeeze(slice(x, -1, i, 1), {x.rank() - 1}), permutation); };
  return Complex{part(0), parts.is(2) ? part(1) : X{}};
}

// The last axis cut or filled with zeros to `size`.
X fit(X x, Dim size) {
  if (!x || x.dim(-1) == size) return x;
  Dim kept = min(x.dim(-1), size);
  X y = slice(x, -1, 0, kept);
  Shape low(static_cast<size_t>(x.rank()), Dim(0)), high = low;
  high.back() = size - kept;
  return pad(y, low, high);
}

// cos and sin of 2 pi k n / period, [K, N] each. The product is reduced to one turn first: it keeps its accuracy.
Complex turns(Builder& b, Dim k, Dim count, Dim period) {
  X step = mod(iota(b, {k, count}, 0, DType::i64) * iota(b, {k, count}, 1, DType::i64), b.size(period));
  X angle = cast(step, DType::f64) * (2 * std::numbers::pi) / as_f64(b, period);
  return {cos(angle), sin(angle)};
}

// y[..., k] = sum over n of x[..., n] m[k, n].
X transform(X x, X m) {
  if (!x) return x;
  return x.rank() == 1 ? squeeze(dot(unsqueeze(x, {0}), m), {0}) : dot(x, m);
}

// The Fourier transform of [..., N] in double precision: sum of x e^(-2 pi i k n / N) for k < bins.
Complex fourier(Builder& b, Complex x, Dim size, Dim bins, bool inverse) {
  Complex w = turns(b, bins, size, size);
  X re = cast(x.re, DType::f64), im = x.im ? cast(x.im, DType::f64) : X{};
  double sign = inverse ? -1 : 1;
  Complex y{transform(re, w.re), transform(re, w.im) * -sign};
  if (im) y = {y.re + transform(im, w.im) * sign, y.im + transform(im, w.re)};
  if (inverse) y = {y.re / as_f64(b, size), y.im / as_f64(b, size)};
  return y;
}

// The real signal of which x [..., size / 2 + 1] is the half spectrum. Every frequency but 0 and half the rate stands
// for its conjugate too.
X real_signal(Builder& b, Complex x, Dim size) {
  Dim bins = floordiv(size, 2) + 1;
  Complex w = turns(b, size, bins, size);
  X k = iota(b, {bins}, 0, DType::i64);
  X alone = logical_or(equal(k, b.integer(0)), equal(k + k, b.size(size)));
  X weight = select(alone, b.scalar(DType::f64, 1), b.scalar(DType::f64, 2)) / as_f64(b, size);
  X y = transform(cast(fit(x.re, bins), DType::f64) * weight, w.re);
  if (x.im) y = y - transform(cast(fit(x.im, bins), DType::f64) * weight, w.im);
  return y;
}

// [..., N] parts as [..., N, parts] with the last but one axis moved to `axis`.
X packed(std::vector<X> parts, int axis, DType type) {
  for (X& part : parts) {
    if (!part) return part;
    part = unsqueeze(cast(part, type), {part.rank()});
  }
  X y = concat(parts, parts[0].rank() - 1);
  if (!y) return y;
  std::vector<int> permutation;
  for (int i = 0; i < y.rank(); ++i)
    if (i != y.rank() - 2) permutation.push_back(i);
  permutation.insert(permutation.begin() + axis, y.rank() - 2);
  return transpose(y, permutation);
}

// 0, 1, ..., size - 1 of the window and the length of its period, in double precision.
struct WindowIndex {
  X i, period;
};
Result<WindowIndex> window_index(NodeImport& n) {
  X size = scalar_of(n.need(0));
  TESSERA_TRY(n.b.status());
  X count = cast(size, DType::i64);
  X i = n.sizes(0) != nullptr && n.sizes(0)->size() == 1 ? iota(n.b, {(*n.sizes(0))[0]}, 0, DType::i64)
                                                         : n.b.add1(ops::range_op, {count});
  X period = n.integer("periodic", 1) != 0 ? count : count - n.b.integer(1);
  // A window of one element has no period.
  return WindowIndex{cast(i, DType::f64), cast(max(period, n.b.integer(1)), DType::f64)};
}

// a0 - a1 cos(2 pi i / N) + a2 cos(4 pi i / N).
Status cosine_window(NodeImport& n, double a0, double a1, double a2) {
  TESSERA_ASSIGN(WindowIndex w, window_index(n));
  X angle = w.i * (2 * std::numbers::pi) / w.period;
  X y = a0 - cos(angle) * a1;
  if (a2 != 0) y = y + cos(angle * 2.0) * a2;
  n.out(cast(y, n.dtype("output_datatype", DType::f32)));
  return {};
}

}  // namespace

Status import_dft(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  if (x.rank() < 2) return n.fail(Code::rank_mismatch, "the input has {} axes but must have at least 2", x.rank());
  int64_t along = n.opset >= 20 ? -2 : n.integer("axis", 1);
  if (n.opset >= 20 && n.has(2)) {
    std::optional<std::vector<int64_t>> known = n.ints(2);
    if (!known || known->size() != 1) return n.value_unknown(2);
    along = (*known)[0];
  }
  TESSERA_ASSIGN(int axis, n.normal_axis(along, x.rank()));
  if (axis == x.rank() - 1) return n.fail(Code::axis_out_of_range, "axis {} holds the real and imaginary parts", along);
  bool inverse = n.integer("inverse", 0) != 0, onesided = n.integer("onesided", 0) != 0;
  // Before version 20 the half of an inverse transform is just its first half.
  bool to_real = inverse && onesided && n.opset >= 20;
  Dim size = x.dim(axis);
  if (to_real) size = 2 * (size - 1);
  if (n.has(1)) {
    TESSERA_ASSIGN(size, size_in(n, 1));
  }
  TESSERA_ASSIGN(Complex signal, signal_of(n, x, axis));
  if (to_real) {
    n.out(packed({real_signal(n.b, signal, size)}, axis, x.dtype()));
    return {};
  }
  if (onesided && !inverse && signal.im)
    return n.fail(Code::shape_invalid, "a one-sided transform needs a real signal");
  Complex y = fourier(n.b, {fit(signal.re, size), fit(signal.im, size)}, size, onesided ? floordiv(size, 2) + 1 : size,
                      inverse);
  n.out(packed({y.re, y.im}, axis, x.dtype()));
  return {};
}

// signal [B, L, 1 or 2] -> [B, frames, bins, 2].
Status import_stft(NodeImport& n) {
  X x = n.need(0), window = n.in(2);
  TESSERA_TRY(n.b.status());
  if (x.rank() == 2) x = unsqueeze(x, {2});
  if (x.rank() != 3) return n.fail(Code::rank_mismatch, "the signal has {} axes but must have 3", x.rank());
  TESSERA_ASSIGN(Dim step, size_in(n, 1));
  Dim length = window && window.rank() == 1 ? window.dim(0) : x.dim(1);
  if (n.has(3)) {
    TESSERA_ASSIGN(length, size_in(n, 3));
  }
  bool onesided = n.integer("onesided", 1) != 0;
  TESSERA_ASSIGN(Complex signal, signal_of(n, x, 1));
  if (length.is_const() && x.dim(1).is_const() && length.value() > x.dim(1).value())
    return n.fail(Code::shape_invalid, "frames of {} in a signal of {}", length.value(), x.dim(1).value());
  Dim frames = floordiv(x.dim(1) - length, step) + 1;
  auto framed = [&](X part) {  // [B, L] -> [B, frames, length]
    if (!part) return part;
    part = n.b.view(part, ir::window_view(part.shape(), 1, frames, step, length, 1));
    return window ? cast(part, DType::f64) * cast(window, DType::f64) : part;
  };
  Complex y =
      fourier(n.b, {framed(signal.re), framed(signal.im)}, length, onesided ? floordiv(length, 2) + 1 : length, false);
  n.out(packed({y.re, y.im}, 2, x.dtype()));
  return {};
}

Status import_hann_window(NodeImport& n) { return cosine_window(n, 0.5, 0.5, 0); }
Status import_hamming_window(NodeImport& n) { return cosine_window(n, 25.0 / 46, 21.0 / 46, 0); }
Status import_blackman_window(NodeImport& n) { return cosine_window(n, 0.42, 0.5, 0.08); }

// Triangles over the bins of a spectrum, [dft_length / 2 + 1, bins]: edges lie evenly on the mel scale and are rounded
// down to bins.
Status import_mel_weight_matrix(NodeImport& n) {
  TESSERA_ASSIGN(Dim bins, size_in(n, 0));
  TESSERA_ASSIGN(Dim length, size_in(n, 1));
  X rate = scalar_of(n.need(2)), low = scalar_of(n.need(3)), high = scalar_of(n.need(4));
  TESSERA_TRY(n.b.status());
  constexpr double kMelPerLog = 2595, kHertz = 700, kLn10 = std::numbers::ln10;  // mel = 2595 log10(1 + f / 700)
  auto mel = [&](X hertz) { return log(cast(hertz, DType::f64) / kHertz + 1.0) * (kMelPerLog / kLn10); };
  X first = mel(low), step = (mel(high) - first) / as_f64(n.b, bins + 2);
  X edge = iota(n.b, {bins + 2}, 0, DType::f64) * step + first;
  edge = (exp(edge * (kLn10 / kMelPerLog)) - 1.0) * kHertz;
  edge = floor(edge * as_f64(n.b, length + 1) / cast(rate, DType::f64));
  X lower = slice(edge, 0, 0, bins), centre = slice(edge, 0, 1, bins), upper = slice(edge, 0, 2, bins);
  X bin = iota(n.b, {floordiv(length, 2) + 1, 1}, 0, DType::f64);
  X one = n.b.scalar(DType::f64, 1), zero = n.b.scalar(DType::f64, 0);
  X rising = select(equal(lower, centre), one, (bin - lower) / max(centre - lower, one));
  X falling = (upper - bin) / max(upper - centre, one);
  X up = logical_and(less_equal(lower, bin), less_equal(bin, centre));
  X down = logical_and(less_equal(centre, bin), less(bin, upper));
  n.out(cast(select(down, falling, select(up, rising, zero)), n.dtype("output_datatype", DType::f32)));
  return {};
}

}  // namespace tessera::onnx
