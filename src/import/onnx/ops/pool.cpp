// Pools over windows and over the whole image, and MaxUnpool.
#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/spatial.h"

namespace tessera::onnx {
namespace {

std::vector<int64_t> constants(const Shape& sizes) {
  std::vector<int64_t> values;
  for (const Dim& d : sizes) values.push_back(d.value());
  return values;
}

Shape plus(const Shape& a, const Shape& b) {
  Shape sum;
  for (size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i]);
  return sum;
}

bool all_const(const Shape& sizes) {
  for (const Dim& d : sizes)
    if (!d.is_const()) return false;
  return true;
}

// The input of a pool and its windows.
struct Pool {
  X x;
  Spatial s;
};
Result<Pool> read_pool(NodeImport& n, X x) {
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 1));
  TESSERA_ASSIGN(Shape kernel, read_kernel(n, x));
  TESSERA_ASSIGN(Spatial s, read_spatial(n, x, std::move(kernel)));
  return Pool{x, std::move(s)};
}

X average_pool(X x, const Spatial& s, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
               const std::vector<int64_t>& extra, bool include_pad) {
  return x.builder->add1(ops::average_pool_op, {x},
                         {constants(s.kernel), s.strides, s.dilations, low, high, extra, int64_t{include_pad}});
}

// p of the p-norm: a float in version 1, an integer since.
double norm_order(NodeImport& n) {
  const AttributeProto* a = n.attribute("p");
  if (a != nullptr && a->i() != nullptr) return static_cast<double>(*a->i());
  return n.real("p", 2);
}

// The p-norm of what `add` adds up, computed in f32 at least.
template <class F>
X p_norm(X x, double p, F add) {
  if (!x) return x;
  const DType type = x.dtype();
  x = cast(x, compute_type(type));
  X y = p == 1 ? add(abs(x)) : p == 2 ? sqrt(add(square(x))) : X{};
  if (!y) y = pow(add(pow(abs(x), like(x, p))), like(x, 1 / p));
  return cast(y, type);
}

Axes spatial_axes_of(X x) {
  Axes axes;
  for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

// The image positions of x [N, C, *D] as numbers [*D], first axis slowest, or fastest for column_major.
X positions(X x, bool column_major) {
  Builder& b = *x.builder;
  const Shape& shape = x.shape();
  const size_t count = shape.size() - 2;
  if (!column_major) {
    const Shape image(shape.begin() + 2, shape.end());
    return reshape(iota(b, {product(image)}, 0, DType::i64), image);
  }
  X sum = b.integer(0);
  Dim step = 1;
  for (size_t i = 0; i < count; ++i) {
    Shape along(count, 1);
    along[i] = shape[i + 2];
    sum = sum + reshape(iota(b, {shape[i + 2]}, 0, DType::i64), along) * b.size(step);
    step = step * shape[i + 2];
  }
  return sum;
}

// Where in x each maximum y [N, C, *O] lies: the first element of its window that equals it, padding apart.
X max_positions(X x, X y, const Spatial& s, bool column_major) {
  Builder& b = *x.builder;
  const size_t count = s.kernel.size();
  const Shape high = plus(s.high, s.extra);
  const ops::Windows windows{s.kernel, s.strides, s.dilations, std::vector<int64_t>(count, 0),
                             std::vector<int64_t>(count, 0)};
  Shape before(2, 0), after(2, 0);
  before.insert(before.end(), s.low.begin(), s.low.end());
  after.insert(after.end(), high.begin(), high.end());

  const Dim taps = product(s.kernel);
  auto flat = [&](X padded, Dim batch, Dim channels) {  // [N, C, *O, K]
    X w = ops::windows_of(padded, windows);
    Shape shape = {batch, channels};
    shape.insert(shape.end(), y.shape().begin() + 2, y.shape().end());
    shape.push_back(taps);
    return reshape(w, shape);
  };
  X where = unsqueeze(positions(x, column_major), {0, 1});
  where = flat(pad(where, before, after, b.integer(-1)), 1, 1);
  X values = flat(pad(x, before, after), x.dim(0), x.dim(1));
  if (!b.ok()) return y;
  X hit = logical_and(equal(values, unsqueeze(y, {-1})), less_equal(b.integer(0), where));
  X first = b.add1(ops::argmax_op, {cast(hit, DType::i32)}, {int64_t{-1}, int64_t{0}});
  X in_image = b.add1(ops::gather_elements_op, {broadcast(where, values.shape()), first}, {int64_t{-1}});
  if (!b.ok()) return y;
  in_image = squeeze(in_image, {-1});

  const Dim image = product(std::span<const Dim>(x.shape()).subspan(2));
  X plane = reshape(iota(b, {x.dim(0) * x.dim(1)}, 0, DType::i64), {x.dim(0), x.dim(1)}) * b.size(image);
  std::vector<int> behind;
  for (size_t i = 0; i < count; ++i) behind.push_back(static_cast<int>(2 + i));
  return in_image + unsqueeze(plane, std::move(behind));
}

}  // namespace

Status import_max_pool(NodeImport& n) {
  TESSERA_ASSIGN(Pool pool, read_pool(n, n.need(0)));
  Padded padded = with_pads(pool.x, pool.s.low, plus(pool.s.high, pool.s.extra), ops::lowest(pool.x));
  X y = n.b.add1(ops::max_pool_op, {padded.x},
                 {constants(pool.s.kernel), pool.s.strides, pool.s.dilations, padded.low, padded.high});
  TESSERA_TRY(n.b.status());
  n.out(0, y);
  if (n.wants(1)) n.out(1, max_positions(pool.x, y, pool.s, n.integer("storage_order", 0) != 0));
  return {};
}

Status import_average_pool(NodeImport& n) {
  TESSERA_ASSIGN(X y, average_pooled(n, n.need(0)));
  n.out(y);
  return {};
}

Result<X> average_pooled(NodeImport& n, X input) {
  TESSERA_ASSIGN(Pool pool, read_pool(n, input));
  const Spatial& s = pool.s;
  const bool include_pad = n.integer("count_include_pad", 0) != 0;
  if (all_const(s.low) && all_const(s.high) && all_const(s.extra))
    return average_pool(pool.x, s, constants(s.low), constants(s.high), constants(s.extra), include_pad);
  // Pads that only the run tells: the mean over all, divided by the share of what counts.
  const std::vector<int64_t> none(s.kernel.size(), 0);
  X x = pad_or_crop(pool.x, s.low, plus(s.high, s.extra));
  Shape counted = pool.x.shape();
  counted[0] = counted[1] = 1;
  const Shape nothing(none.size(), 0);
  for (size_t i = 0; include_pad && i < none.size(); ++i) counted[i + 2] = counted[i + 2] + s.low[i] + s.high[i];
  X share = pad_or_crop(broadcast(like(pool.x, 1), counted), include_pad ? nothing : s.low,
                        include_pad ? s.extra : plus(s.high, s.extra));
  TESSERA_TRY(n.b.status());
  return average_pool(x, s, none, none, none, true) / average_pool(share, s, none, none, none, true);
}

Status import_lp_pool(NodeImport& n) {
  TESSERA_ASSIGN(Pool pool, read_pool(n, n.need(0)));
  const Spatial& s = pool.s;
  const double p = norm_order(n);
  const int spatial = static_cast<int>(s.kernel.size());
  const std::vector<int64_t> none(s.kernel.size(), 0);
  const ops::Windows windows{s.kernel, s.strides, s.dilations, none, none};
  X padded = pad_or_crop(pool.x, s.low, plus(s.high, s.extra));
  TESSERA_TRY(n.b.status());
  for (const Dim& count : windows.counts(padded.shape()))
    if (n.b.dims().proves_lt(count, 0))
      return n.fail(Code::shape_invalid, "a kernel of {} does not fit {}", to_string(std::span<const Dim>(s.kernel)),
                    to_string(*padded.type()));
  n.out(p_norm(padded, p, [&](X x) {
    X y = sum(ops::windows_of(x, windows), ops::axes_from(2 + spatial, spatial));
    std::vector<int> last;
    for (int i = 0; i < spatial; ++i) last.push_back(2 + spatial + i);
    return squeeze(y, std::move(last));
  }));
  return {};
}

Status import_global_average_pool(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 0));
  n.out(mean(x, spatial_axes_of(x)));
  return {};
}

Status import_global_max_pool(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 0));
  n.out(reduce_max(x, spatial_axes_of(x)));
  return {};
}

Status import_global_lp_pool(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 0));
  n.out(p_norm(x, norm_order(n), [](X powers) { return sum(powers, spatial_axes_of(powers)); }));
  return {};
}

// x written where the indices of a MaxPool say, zeros elsewhere.
Status import_max_unpool(NodeImport& n) {
  X x = n.need(0), indices = n.need(1);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 1));
  TESSERA_ASSIGN(Shape kernel, read_kernel(n, x));
  TESSERA_ASSIGN(Spatial s, read_spatial(n, x, std::move(kernel)));
  Shape whole = {x.dim(0), x.dim(1)};
  for (size_t i = 0; i < s.kernel.size(); ++i)
    whole.push_back((x.shape()[i + 2] - 1) * s.strides[i] - s.low[i] - s.high[i] + s.kernel[i]);
  for (const Dim& d : whole)
    if (d.is_const() && d.value() < 0)
      return n.fail(Code::shape_invalid, "the result of {} would be {}", to_string(*x.type()),
                    to_string(std::span<const Dim>(whole)));
  const Dim count = product(x.shape());
  X zeros = broadcast(like(x, 0), {product(whole)});
  X y = n.b.add1(ops::scatter_elements_op, {zeros, reshape(indices, {count}), reshape(x, {count})}, {int64_t{0}});
  y = reshape(y, whole);
  if (n.has(2)) {
    const Shape* wanted = n.sizes(2);
    TESSERA_TRY(n.b.status());
    if (wanted == nullptr) return n.value_unknown(2);
    if (wanted->size() != whole.size())
      return n.fail(Code::shape_mismatch, "'output_shape' has {} sizes but the input has {} axes", wanted->size(),
                    whole.size());
    Shape more;
    for (size_t i = 2; i < whole.size(); ++i) more.push_back((*wanted)[i] - whole[i]);
    y = pad_or_crop(y, Shape(more.size(), 0), more);
  }
  n.out(y);
  return {};
}

}  // namespace tessera::onnx
