// Reading, writing and choosing by index.
#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

std::string_view kReductions = "none|add|mul|min|max";

Result<int64_t> reduction(NodeImport& n) {
  std::string_view word = n.text("reduction", "none");
  int64_t index = ir::word_index(kReductions, word);
  if (index < 0) return n.fail(Code::attribute_invalid, "reduction is '{}' but must be one of {}", word, kReductions);
  return index;
}

}  // namespace

Status import_gather(NodeImport& n) {
  X x = n.need(0), index = n.need(1);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", 0, x.rank()));
  // One known index is a slice: it costs nothing and composes with other views.
  if (std::optional<std::vector<int64_t>> known = n.ints(1); known && known->size() == 1 && x.dim(axis).is_const()) {
    int64_t size = x.dim(axis).value(), i = (*known)[0];
    if (i < -size || i >= size) return n.fail(Code::index_out_of_range, "index {} is outside [-{}, {})", i, size, size);
    X row = slice(x, axis, i < 0 ? i + size : i, 1);
    Shape shape(x.shape().begin(), x.shape().begin() + axis);
    shape.insert(shape.end(), index.shape().begin(), index.shape().end());
    shape.insert(shape.end(), x.shape().begin() + axis + 1, x.shape().end());
    n.out(reshape(row, std::move(shape)));
    return {};
  }
  n.out(gather(x, index, axis));
  return {};
}

Status import_gather_elements(NodeImport& n) {
  X x = n.need(0), index = n.need(1);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", 0, x.rank()));
  n.out(n.b.add1(ops::gather_elements_op, {x, index}, {static_cast<int64_t>(axis)}));
  return {};
}

Status import_gather_nd(NodeImport& n) {
  n.out(n.b.add1(ops::gather_nd_op, {n.need(0), n.need(1)}, {n.integer("batch_dims", 0)}));
  return {};
}

Status import_scatter_elements(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", 0, x.rank()));
  TESSERA_ASSIGN(int64_t how, reduction(n));
  n.out(n.b.add1(ops::scatter_elements_op, {x, n.need(1), n.need(2)}, {static_cast<int64_t>(axis), how}));
  return {};
}

Status import_scatter_nd(NodeImport& n) {
  TESSERA_ASSIGN(int64_t how, reduction(n));
  n.out(n.b.add1(ops::scatter_nd_op, {n.need(0), n.need(1), n.need(2)}, {how}));
  return {};
}

// The cache with `update` written at each example's position; a circular one wraps.
Status import_tensor_scatter(NodeImport& n) {
  X past = n.need(0), update = n.need(1);
  TESSERA_TRY(n.b.status());
  std::string_view mode = n.text("mode", "linear");
  if (mode != "linear" && mode != "circular")
    return n.fail(Code::attribute_invalid, "mode is '{}' but must be linear or circular", mode);
  TESSERA_ASSIGN(int axis, n.axis("axis", -2, past.rank()));
  if (axis == 0) return n.fail(Code::attribute_invalid, "axis is 0, the batch axis");
  X position = iota(n.b, update.shape(), axis, DType::i64);
  if (n.has(2)) {
    Shape along(static_cast<size_t>(past.rank()), Dim(1));
    along[0] = past.dim(0);
    position = position + reshape(cast(n.need(2), DType::i64), along);
  }
  if (mode == "circular") position = mod(position, n.b.size(past.dim(axis)));
  n.out(n.b.add1(ops::scatter_elements_op, {past, position, update}, {static_cast<int64_t>(axis), int64_t{0}}));
  return {};
}

// values[1] where the index along `axis` is the wanted one, values[0] elsewhere.
Status import_one_hot(NodeImport& n) {
  X index = n.need(0), depth = n.need(1), values = n.need(2);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", -1, index.rank() + 1));
  depth = cast(scalar_of(depth), DType::i64);
  X classes;
  if (const Shape* known = n.b.contents(depth)) {
    classes = iota(n.b, {(*known)[0]}, 0, DType::i64);
  } else if (auto real = n.reals(1); real && real->size() == 1) {
    classes = iota(n.b, {static_cast<int64_t>((*real)[0])}, 0, DType::i64);
  } else {
    classes = n.b.add1(ops::range_op, {depth});
  }
  TESSERA_TRY(n.b.status());
  X wanted = cast(index, DType::i64);
  wanted = select(less(wanted, n.b.integer(0)), wanted + depth, wanted);
  std::vector<int> behind;
  for (int i = axis + 1; i < index.rank() + 1; ++i) behind.push_back(i - axis);
  X hit = equal(unsqueeze(wanted, {axis}), behind.empty() ? classes : unsqueeze(classes, behind));
  X off = squeeze(slice(values, 0, 0, 1), {0}), on = squeeze(slice(values, 0, 1, 1), {0});
  n.out(select(hit, on, off));
  return {};
}

Status import_compress(NodeImport& n) {
  X x = n.need(0), condition = n.need(1);
  TESSERA_TRY(n.b.status());
  X kept = squeeze(n.b.add1(ops::non_zero_op, {condition}), {0});
  int axis = 0;
  if (n.has_attribute("axis")) {
    TESSERA_ASSIGN(axis, n.axis("axis", 0, x.rank()));
  } else {
    x = reshape(x, {product(x.shape())});
  }
  n.out(gather(x, kept, axis));
  return {};
}

Status import_non_zero(NodeImport& n) {
  n.out(n.b.add1(ops::non_zero_op, {n.need(0)}));
  return {};
}

Status import_unique(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  bool flat = !n.has_attribute("axis");
  int axis = 0;
  if (!flat) {
    TESSERA_ASSIGN(axis, n.axis("axis", 0, x.rank()));
  }
  Xs results =
      n.b.add(ops::unique_op, std::vector<X>{x}, {static_cast<int64_t>(axis), int64_t{flat}, n.integer("sorted", 1)});
  for (int i = 0; i < 4; ++i) n.out(i, results[static_cast<size_t>(i)]);
  return {};
}

Status import_top_k(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", -1, x.rank()));
  X k = n.opset < 10 ? n.b.integer(n.integer("k", 1)) : scalar_of(n.need(1));
  Xs results = n.b.add(ops::top_k_op, std::vector<X>{x, k}, {static_cast<int64_t>(axis), n.integer("largest", 1)});
  n.out(0, results[0]);
  n.out(1, results[1]);
  return {};
}

}  // namespace tessera::onnx
