// Operators that read an image at computed places: DeformConv, RoiAlign, MaxRoiPool.
#include <limits>

#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/spatial.h"

namespace tessera::onnx {
namespace {

// 0, 1, ..., size - 1 along axis `at` of `rank`.
X steps(Builder& b, Dim size, DType type, int at, int rank) {
  Shape shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(at)] = size;
  return reshape(iota(b, {size}, 0, type), std::move(shape));
}

// [R] as [R, 1, ...] of this rank.
X leading(X x, int rank) {
  std::vector<int> behind;
  for (int i = 1; i < rank; ++i) behind.push_back(i);
  return unsqueeze(x, std::move(behind));
}

// x [A, B, S] at index [A or 1, B or 1, T]: [A, B, T].
X gather_last(X x, X index) {
  if (!x || !index) return x;
  return x.builder->add1(ops::gather_elements_op, {x, broadcast(index, {x.dim(0), x.dim(1), index.dim(2)})},
                         {int64_t{2}});
}

// Column c of regions [R, n].
X column(X rois, int c) { return squeeze(slice(rois, 1, c, 1), {1}); }

// The sampling points of regions along one image axis, [R, P, G]: G points in each of P bins.
struct Samples {
  X low, high;  // neighbours, i64
  X fraction;   // of the way from low to high
  X inside;     // whether the point lies in the image
  X live;       // [R, 1, G]: the region's bins have this point
  X grid;       // [R]: points a bin, as a real number
  Dim bins, points;
};

Samples sample(X start, X end, Dim size, int64_t bins, int64_t ratio, bool half_pixel) {
  Builder& b = *start.builder;
  const DType type = start.dtype();
  X extent = half_pixel ? end - start : max(end - start, like(start, 1));
  X bin = extent / static_cast<double>(bins);
  Samples s;
  s.bins = bins;
  X point;  // [G]
  if (ratio > 0) {
    s.points = ratio;
    s.grid = broadcast(like(start, static_cast<double>(ratio)), start.shape());
    point = iota(b, {ratio}, 0, type);
  } else {
    // As many as the bin has elements, which differs between regions: the largest number, less being live.
    s.grid = max(ceil(bin), like(bin, 0));
    X most = squeeze(reduce_max(s.grid, {0}), {0});
    point = cast(b.add1(ops::range_op, {cast(max(most, like(most, 0)), DType::i64)}), type);
    if (!b.ok()) return s;
    s.points = point.dim(0);
  }
  point = unsqueeze(point, {0, 1});
  X at = leading(start, 3) + steps(b, bins, type, 1, 3) * leading(bin, 3) +
         (point + 0.5) * leading(bin, 3) / leading(s.grid, 3);
  X last = number(b, size - 1, type), zero = like(at, 0);
  s.live = less(point, leading(s.grid, 3));
  s.inside = logical_and(less_equal(like(at, -1), at), less_equal(at, number(b, size, type)));
  at = select(s.inside, max(at, zero), zero);
  X low = min(floor(at), last);
  s.fraction = select(less_equal(last, low), zero, at - low);
  s.low = cast(low, DType::i64);
  s.high = cast(min(low + 1, last), DType::i64);
  return s;
}

}  // namespace

Status import_deform_conv(NodeImport& n) {
  X x = n.need(0), w = n.need(1), offset = n.need(2), bias = n.in(3), mask = n.in(4);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 1));
  if (w.rank() != x.rank() || offset.rank() != x.rank())
    return n.fail(Code::rank_mismatch, "the input is {}, the weights {} and the offsets {}", to_string(*x.type()),
                  to_string(*w.type()), to_string(*offset.type()));
  const int count = x.rank() - 2;
  if (count > 3) return n.fail(Code::unsupported_feature, "{} spatial axes are more than the supported 3", count);
  TESSERA_ASSIGN(Spatial s, read_spatial(n, x, Shape(w.shape().begin() + 2, w.shape().end())));
  const int64_t groups = n.integer("group", 1), fields = n.integer("offset_group", 1);
  if (groups < 1 || fields < 1)
    return n.fail(Code::attribute_invalid, "'group' is {} and 'offset_group' {}", groups, fields);

  const DType type = compute_type(x.dtype());
  const Shape out(offset.shape().begin() + 2, offset.shape().end());
  const Dim batch = x.dim(0), taps = product(s.kernel), places = product(out);
  Shape split = {batch, fields};
  split.insert(split.end(), s.kernel.begin(), s.kernel.end());
  split.push_back(count);
  split.insert(split.end(), out.begin(), out.end());
  offset = cast(reshape(offset, split), type);
  TESSERA_TRY(n.b.status());

  // Along each axis, the element below each sampled place and how far it is past it: [N, F, K O].
  Xs below, past;
  Xs sizes;
  for (int a = 0; a < count; ++a) {
    const size_t i = static_cast<size_t>(a);
    const int rank = 2 + 2 * count;
    X at = squeeze(slice(offset, 2 + count, a, 1), {2 + count}) +
           steps(n.b, s.kernel[i], type, 2 + a, rank) * static_cast<double>(s.dilations[i]) +
           steps(n.b, out[i], type, 2 + count + a, rank) * static_cast<double>(s.strides[i]) -
           number(n.b, s.low[i], type);
    at = reshape(at, {batch, fields, taps * places});
    below.push_back(floor(at));
    past.push_back(at - below.back());
    sizes.push_back(number(n.b, x.shape()[i + 2], type));
  }

  const Dim members = floordiv(x.dim(1), fields), image = product(std::span<const Dim>(x.shape()).subspan(2));
  X planes = reshape(cast(x, type), {batch * fields, members, image});
  X columns;
  for (int corner = 0; corner < 1 << count; ++corner) {
    X weight = n.b.scalar(type, 1), index = n.b.integer(0);
    for (int a = 0; a < count; ++a) {
      const size_t i = static_cast<size_t>(a);
      const bool upper = (corner >> a & 1) != 0;
      X at = upper ? below[i] + 1.0 : below[i], zero = like(at, 0);
      X inside = logical_and(less_equal(zero, at), less(at, sizes[i]));
      weight = weight * select(inside, upper ? past[i] : 1.0 - past[i], zero);
      index = index * n.b.size(x.shape()[i + 2]) + cast(select(inside, at, zero), DType::i64);
    }
    TESSERA_TRY(n.b.status());
    const Shape row = {batch * fields, 1, taps * places};
    X term = gather_last(planes, reshape(index, row)) * reshape(weight, row);
    columns = columns ? columns + term : term;
  }
  if (mask) columns = columns * reshape(cast(mask, type), {batch * fields, 1, taps * places});

  // [N, G, C/G K, O] with w [G, M/G, C/G K].
  const Dim outputs = w.dim(0), inner = w.dim(1) * taps;
  columns = swap_axes(reshape(columns, {batch, groups, inner, places}), 2, 3);
  X y = dot(reshape(cast(w, type), {groups, floordiv(outputs, groups), inner}), columns);
  Shape shape = {batch, outputs};
  shape.insert(shape.end(), out.begin(), out.end());
  y = reshape(y, std::move(shape));
  if (bias) {
    Shape channels(static_cast<size_t>(count) + 1, 1);
    channels[0] = outputs;
    y = y + reshape(cast(bias, type), std::move(channels));
  }
  n.out(cast(y, x.dtype()));
  return {};
}

// Bilinear samples of x [N, C, H, W] inside regions, averaged (or the largest weighted neighbour) a bin.
Status import_roi_align(NodeImport& n) {
  X x = n.need(0), rois = n.need(1), batch = n.need(2);
  TESSERA_TRY(n.b.status());
  if (x.rank() != 4 || rois.rank() != 2 || batch.rank() != 1 || n.b.dims().proves_ne(rois.dim(1), 4))
    return n.fail(Code::shape_mismatch, "the inputs are {}, {} and {}", to_string(*x.type()), to_string(*rois.type()),
                  to_string(*batch.type()));
  TESSERA_ASSIGN(std::vector<int64_t> rows, read_sizes(n, "output_height", 1, 1, 1));
  TESSERA_ASSIGN(std::vector<int64_t> columns, read_sizes(n, "output_width", 1, 1, 1));
  TESSERA_ASSIGN(std::vector<int64_t> ratio, read_sizes(n, "sampling_ratio", 1, 0, 0));
  const std::string_view mode = n.text("mode", "avg");
  if (mode != "avg" && mode != "max")
    return n.fail(Code::attribute_invalid, "attribute 'mode' is '{}' but must be avg or max", mode);
  const bool half_pixel =
      n.opset >= 16 && n.text("coordinate_transformation_mode", "half_pixel") != "output_half_pixel";

  const DType type = compute_type(x.dtype());
  const Dim regions = rois.dim(0), channels = x.dim(1);
  rois = cast(rois, type) * n.real("spatial_scale", 1) - (half_pixel ? 0.5 : 0.0);
  TESSERA_TRY(n.b.status());
  X left = column(rois, 0), top = column(rois, 1), right = column(rois, 2), bottom = column(rois, 3);
  TESSERA_TRY(n.b.status());
  Samples v = sample(top, bottom, x.dim(2), rows[0], ratio[0], half_pixel);
  Samples h = sample(left, right, x.dim(3), columns[0], ratio[0], half_pixel);
  TESSERA_TRY(n.b.status());

  // Everything below is [R, 1 or C, PH, GH, PW, GW].
  auto vertical = [](X s) { return unsqueeze(s, {1, 4, 5}); };
  auto horizontal = [](X s) { return unsqueeze(s, {1, 2, 3}); };
  const Shape points = {regions, 1, v.bins, v.points, h.bins, h.points};
  Shape each = points;
  each[1] = channels;
  const Dim total = v.bins * v.points * h.bins * h.points;
  X planes = reshape(gather(cast(x, type), cast(batch, DType::i64), 0), {regions, channels, x.dim(2) * x.dim(3)});
  X inside = logical_and(vertical(v.inside), horizontal(h.inside));
  X live = logical_and(vertical(v.live), horizontal(h.live));
  X zero = n.b.scalar(type, 0), values;
  for (int corner = 0; corner < 4; ++corner) {
    const bool lower = (corner & 2) != 0, further = (corner & 1) != 0;
    X index = vertical(lower ? v.high : v.low) * n.b.size(x.dim(3)) + horizontal(further ? h.high : h.low);
    X weight = vertical(lower ? v.fraction : 1.0 - v.fraction) * horizontal(further ? h.fraction : 1.0 - h.fraction);
    TESSERA_TRY(n.b.status());
    index = reshape(broadcast(index, points), {regions, 1, total});
    X term = reshape(gather_last(planes, index), each) * select(inside, weight, zero);
    values = !values ? term : mode == "avg" ? values + term : max(values, term);
  }
  X area = max(leading(v.grid, 4) * leading(h.grid, 4), n.b.scalar(type, 1));
  X none = less(leading(v.grid, 4) * leading(h.grid, 4), n.b.scalar(type, 1));
  auto folded = [](X y) { return squeeze(y, {3, 5}); };
  X y = mode == "avg"
            ? folded(sum(select(live, values, zero), {3, 5})) / area
            : select(none, zero,
                     folded(reduce_max(select(live, values, like(values, -std::numeric_limits<double>::infinity())),
                                       {3, 5})));
  n.out(cast(y, x.dtype()));
  return {};
}

// The largest element in each of P x Q bins of regions [R, 5]: image, left, top, right, bottom, both ends included.
Status import_max_roi_pool(NodeImport& n) {
  X x = n.need(0), rois = n.need(1);
  TESSERA_TRY(n.b.status());
  if (x.rank() != 4 || rois.rank() != 2 || n.b.dims().proves_ne(rois.dim(1), 5))
    return n.fail(Code::shape_mismatch, "the inputs are {} and {}", to_string(*x.type()), to_string(*rois.type()));
  if (!n.has_attribute("pooled_shape")) return n.fail(Code::attribute_invalid, "attribute 'pooled_shape' is missing");
  TESSERA_ASSIGN(std::vector<int64_t> pooled, read_sizes(n, "pooled_shape", 2, 1, 1));
  const double scale = n.real("spatial_scale", 1);
  const DType type = compute_type(x.dtype());
  rois = cast(rois, type);
  TESSERA_TRY(n.b.status());

  // Whether each element of an image axis lies in each bin: [R, P, D].
  auto bins = [&](int from, int to, int64_t count, Dim size) {
    X start = floor(column(rois, from) * scale + 0.5), end = floor(column(rois, to) * scale + 0.5);
    X bin = max(end - start + 1, like(start, 1)) / static_cast<double>(count);
    X index = steps(n.b, count, type, 1, 3), place = steps(n.b, size, type, 2, 3);
    X first = floor(index * leading(bin, 3)) + leading(start, 3);
    X past = ceil((index + 1.0) * leading(bin, 3)) + leading(start, 3);
    return logical_and(less_equal(first, place), less(place, past));
  };
  X rows = bins(2, 4, pooled[0], x.dim(2)), columns = bins(1, 3, pooled[1], x.dim(3));
  X images = gather(cast(x, type), cast(column(rois, 0), DType::i64), 0);  // [R, C, H, W]
  X least = like(images, -std::numeric_limits<double>::infinity());
  TESSERA_TRY(n.b.status());
  X y = reduce_max(select(unsqueeze(columns, {1, 2}), unsqueeze(images, {3}), least), {4});  // [R, C, H, Q, 1]
  y = swap_axes(squeeze(y, {4}), 2, 3);                                                      // [R, C, Q, H]
  y = reduce_max(select(unsqueeze(rows, {1, 3}), unsqueeze(y, {2}), least), {4});            // [R, C, P, Q, 1]
  y = squeeze(y, {4});
  n.out(cast(select(equal(y, least), like(y, 0), y), x.dtype()));
  return {};
}

}  // namespace tessera::onnx
