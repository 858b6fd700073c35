// Sorting and selection.
#include <algorithm>
#include <numeric>

#include "ops/ops.h"
#include "ops/reference.h"

namespace tessera::ops {
namespace {

using ir::Infer;
using ir::OpDef;

Status infer_top_k(Infer& infer) {
  TESSERA_ASSIGN(int axis, infer.axis(infer.attrs.integer("axis"), infer.rank(0)));
  Shape shape = infer.shape(0);
  const Shape* k = infer.contents(1);
  shape[static_cast<size_t>(axis)] = k ? (*k)[0] : infer.dims().fresh("k");
  infer.result(infer.dtype(0), shape);
  infer.result(DType::i64, std::move(shape));
  return {};
}

// Equal elements keep their order; NaN counts as the largest.
Status eval_top_k(Eval& e) {
  const Array& x = e.in(0);
  int64_t axis = e.attrs.integer("axis");
  size_t along = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
  int64_t n = x.shape[along], outer = 1, inner = 1;
  for (size_t i = 0; i < along; ++i) outer *= x.shape[i];
  for (size_t i = along + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  Int k = e.in(1).of<Int>()[0];
  if (k < 0 || k > n)
    return fail(Code::value_invalid, "top_k: k is {} but the axis has {}", static_cast<int64_t>(k), n);
  bool largest = e.attrs.flag("largest");
  Dims shape = x.shape;
  shape[along] = static_cast<int64_t>(k);
  TESSERA_ASSIGN(Array values, ir::make_array(x.dtype, shape));
  TESSERA_ASSIGN(Array indices, ir::make_array(DType::i64, shape));
  auto run = [&]<class S>(std::vector<S>& to) {
    const std::vector<S>& from = x.of<S>();
    std::vector<int64_t> order(static_cast<size_t>(n));
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        auto at = [&](int64_t j) { return from[static_cast<size_t>((o * n + j) * inner + i)]; };
        auto before = [&](int64_t a, int64_t b) {
          S va = at(a), vb = at(b);
          bool nan_a = va != va, nan_b = vb != vb;
          if (nan_a || nan_b) return nan_a != nan_b && nan_a == largest;
          return largest ? va > vb : va < vb;
        };
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), before);
        for (int64_t j = 0; j < k; ++j) {
          size_t out = static_cast<size_t>((o * static_cast<int64_t>(k) + j) * inner + i);
          to[out] = at(order[static_cast<size_t>(j)]);
          indices.of<Int>()[out] = order[static_cast<size_t>(j)];
        }
      }
  };
  if (x.is_real()) {
    run(values.of<double>());
  } else {
    run(values.of<Int>());
  }
  e.out(std::move(values));
  e.out(std::move(indices));
  return {};
}

Status infer_non_zero(Infer& infer) {
  infer.result(DType::i64, {infer.rank(0), infer.dims().fresh("nonzero")});
  return {};
}

Status eval_non_zero(Eval& e) {
  const Array& x = e.in(0);
  std::vector<int64_t> hits;
  visit_data(x, [&](const auto& data) {
    for (size_t i = 0; i < data.size(); ++i)
      if (!(data[i] == typename std::decay_t<decltype(data)>::value_type(0))) hits.push_back(static_cast<int64_t>(i));
  });
  std::vector<int64_t> strides = strides_of(x.shape);
  std::vector<Int> data;
  for (size_t axis = 0; axis < x.shape.size(); ++axis)
    for (int64_t hit : hits) data.push_back(hit / strides[axis] % x.shape[axis]);
  e.out(Array{DType::i64, {x.rank(), static_cast<int64_t>(hits.size())}, std::move(data)});
  return {};
}

// axis == rank means: over the flattened tensor.
Status infer_unique(Infer& infer) {
  Dim n = infer.dims().fresh("unique");
  bool flat = infer.attrs.flag("flat");
  Dim size = product(infer.shape(0));
  Shape shape = {n};
  if (!flat) {
    TESSERA_ASSIGN(int axis, infer.axis(infer.attrs.integer("axis"), infer.rank(0)));
    size = infer.shape(0)[static_cast<size_t>(axis)];
    shape = infer.shape(0);
    shape[static_cast<size_t>(axis)] = n;
  }
  infer.result(infer.dtype(0), std::move(shape));
  infer.result(DType::i64, {n});
  infer.result(DType::i64, {size});
  infer.result(DType::i64, {n});
  return {};
}

Status eval_unique(Eval& e) {
  const Array& x = e.in(0);
  bool flat = e.attrs.flag("flat"), sorted = e.attrs.flag("sorted");
  int64_t axis = e.attrs.integer("axis");
  size_t along = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
  int64_t n = flat ? x.count() : x.shape[along], outer = 1, inner = 1;
  if (!flat) {
    for (size_t i = 0; i < along; ++i) outer *= x.shape[i];
    for (size_t i = along + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  }
  std::vector<Int> first, inverse(static_cast<size_t>(n)), counts;
  Array y{x.dtype, flat ? Dims{0} : x.shape, {}};
  visit_data(x, [&](const auto& from) {
    using Data = std::decay_t<decltype(from)>;
    // Slices as keys, compared element by element.
    std::vector<Data> keys(static_cast<size_t>(n));
    for (int64_t j = 0; j < n; ++j)
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i)
          keys[static_cast<size_t>(j)].push_back(from[static_cast<size_t>((o * n + j) * inner + i)]);
    std::vector<int64_t> order(static_cast<size_t>(n)), groups;
    std::iota(order.begin(), order.end(), 0);
    auto less = [&](int64_t a, int64_t b) {
      if constexpr (std::is_same_v<typename Data::value_type, Dim>)
        return false;
      else
        return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
    };
    std::stable_sort(order.begin(), order.end(), less);
    std::vector<int64_t> group_of(static_cast<size_t>(n));
    for (size_t j = 0; j < order.size(); ++j) {
      if (j == 0 || less(order[j - 1], order[j])) groups.push_back(order[j]);
      group_of[static_cast<size_t>(order[j])] = static_cast<int64_t>(groups.size()) - 1;
    }
    std::vector<int64_t> rank(groups.size());
    std::iota(rank.begin(), rank.end(), 0);
    if (!sorted)
      std::sort(rank.begin(), rank.end(),
                [&](int64_t a, int64_t b) { return groups[static_cast<size_t>(a)] < groups[static_cast<size_t>(b)]; });
    std::vector<int64_t> place(groups.size());
    for (size_t r = 0; r < rank.size(); ++r) place[static_cast<size_t>(rank[r])] = static_cast<int64_t>(r);
    counts.assign(groups.size(), 0);
    for (size_t j = 0; j < group_of.size(); ++j) {
      int64_t p = place[static_cast<size_t>(group_of[j])];
      inverse[j] = p;
      counts[static_cast<size_t>(p)] += 1;
    }
    Data to;
    int64_t m = static_cast<int64_t>(groups.size());
    for (int64_t r : rank) first.push_back(groups[static_cast<size_t>(r)]);
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t r = 0; r < m; ++r)
        for (int64_t i = 0; i < inner; ++i)
          to.push_back(
              from[static_cast<size_t>((o * n + static_cast<int64_t>(first[static_cast<size_t>(r)])) * inner + i)]);
    y.shape[flat ? 0 : along] = m;
    y.data = std::move(to);
  });
  int64_t m = static_cast<int64_t>(first.size());
  e.out(std::move(y));
  e.out(Array{DType::i64, {m}, std::move(first)});
  e.out(Array{DType::i64, {n}, std::move(inverse)});
  e.out(Array{DType::i64, {m}, std::move(counts)});
  return {};
}

Status infer_non_max_suppression(Infer& infer) {
  infer.result(DType::i64, {infer.dims().fresh("selected"), 3});
  return {};
}

// Greedy by score within each batch and class. Boxes are two opposite corners, or centre and size.
Status eval_non_max_suppression(Eval& e) {
  const Array &boxes = e.in(0), &scores = e.in(1);
  int64_t batches = boxes.shape[0], n = boxes.shape[1], classes = scores.shape[1];
  int64_t most = static_cast<int64_t>(e.in(2).of<Int>()[0]);
  double iou_limit = e.in(3).of<double>()[0];
  double score_limit = e.has(4) ? e.in(4).of<double>()[0] : -INFINITY;
  bool center = e.attrs.flag("center");
  struct Box {
    double y0, x0, y1, x1;
  };
  auto box = [&](int64_t b, int64_t i) {
    const double* p = boxes.of<double>().data() + (b * n + i) * 4;
    if (center) return Box{p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2, p[0] + p[2] / 2};
    return Box{std::min(p[0], p[2]), std::min(p[1], p[3]), std::max(p[0], p[2]), std::max(p[1], p[3])};
  };
  auto iou = [](const Box& a, const Box& b) {
    double h = std::min(a.y1, b.y1) - std::max(a.y0, b.y0), w = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
    if (h <= 0 || w <= 0) return 0.0;
    double both = h * w, areas = (a.y1 - a.y0) * (a.x1 - a.x0) + (b.y1 - b.y0) * (b.x1 - b.x0);
    return both / (areas - both);
  };
  std::vector<Int> selected;
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t c = 0; c < classes; ++c) {
      const double* s = scores.of<double>().data() + (b * classes + c) * n;
      std::vector<int64_t> order, kept;
      for (int64_t i = 0; i < n; ++i)
        if (s[i] > score_limit) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return s[i] > s[j]; });
      for (int64_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= most) break;
        bool clear =
            std::none_of(kept.begin(), kept.end(), [&](int64_t k) { return iou(box(b, i), box(b, k)) > iou_limit; });
        if (!clear) continue;
        kept.push_back(i);
        for (int64_t v : {b, c, i}) selected.push_back(v);
      }
    }
  int64_t count = static_cast<int64_t>(selected.size()) / 3;
  e.out(Array{DType::i64, {count, 3}, std::move(selected)});
  return {};
}

}  // namespace

constinit const OpDef top_k_op = {
    .name = "top_k",
    .doc = "The k largest (or smallest) along the axis, in order, and their indices; equal elements by index.",
    .signature = "x[*S], k[] -> values[*R], indices[*R]",
    .types = "x, values: any; k, indices: i64",
    .attrs = {ir::int_attr("axis"), ir::bool_attr("largest", true)},
    .infer = infer_top_k,
    .reference = eval_top_k,
};
constinit const OpDef non_zero_op = {
    .name = "non_zero",
    .doc = "Coordinates of the elements that are not 0, in row-major order: y[axis, n].",
    .signature = "x[*S] -> y[R, N]",
    .types = "x: any; y: i64",
    .infer = infer_non_zero,
    .reference = eval_non_zero,
};
constinit const OpDef unique_op = {
    .name = "unique",
    .doc =
        "Distinct elements (`flat`) or slices along `axis`, ascending or in order of appearance; where each first "
        "stands, which "
        "one each input is, and how often each stands (ONNX Unique).",
    .signature = "x[*S] -> y[*R], first[N], inverse[M], counts[N]",
    .types = "x, y: any; first, inverse, counts: i64",
    .attrs = {ir::int_attr("axis", 0), ir::bool_attr("flat", true), ir::bool_attr("sorted", true)},
    .infer = infer_unique,
    .reference = eval_unique,
};
constinit const OpDef non_max_suppression_op = {
    .name = "non_max_suppression",
    .doc =
        "Boxes kept in order of score, dropping those whose overlap with a kept one passes the limit (ONNX "
        "NonMaxSuppression).",
    .signature = "boxes[B, N, 4], scores[B, C, N], most[], iou_limit[], score_limit?[] -> y[R, 3]",
    .types = "boxes, scores, iou_limit, score_limit: f32; most, y: i64",
    .attrs = {ir::bool_attr("center", false)},
    .infer = infer_non_max_suppression,
    .reference = eval_non_max_suppression,
};

}  // namespace tessera::ops
