// Conv, ConvTranspose, the quantized convolutions, and Col2Im.
#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/quant.h"
#include "import/onnx/ops/spatial.h"

namespace tessera::onnx {
namespace {

Shape tail(X w) { return Shape(w.shape().begin() + 2, w.shape().end()); }

}  // namespace

Result<X> convolved(NodeImport& n, X x, X w, Opt bias) {
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 1));
  if (w.rank() != x.rank())
    return n.fail(Code::rank_mismatch, "the weights are {} but the input is {}", to_string(*w.type()),
                  to_string(*x.type()));
  if (n.has_attribute("kernel_shape")) {
    TESSERA_ASSIGN(Shape kernel, read_kernel(n, x));
    for (size_t i = 0; i < kernel.size(); ++i)
      if (n.b.dims().proves_ne(kernel[i], w.shape()[i + 2]))
        return n.fail(Code::shape_mismatch, "'kernel_shape' is {} but the weights are {}",
                      to_string(std::span<const Dim>(kernel)), to_string(*w.type()));
  }
  TESSERA_ASSIGN(Spatial s, read_spatial(n, x, tail(w)));
  Padded padded = with_pads(x, s.low, s.high);
  return n.b.add1(ops::conv_op, {padded.x, w, bias ? bias : X{&n.b, ir::kNoValue}},
                  {s.strides, s.dilations, padded.low, padded.high, n.integer("group", 1)});
}

namespace {

// One value an output channel: [M] as [M, 1, ...] before the axes of w, or [M, 1...] after the batch of y.
X by_channel(X s, int axes) {
  if (!s || s.rank() == 0) return s;
  std::vector<int> positions;
  for (int i = 1; i < axes; ++i) positions.push_back(i);
  return unsqueeze(s, std::move(positions));
}

// (x - x0) convolved with (w - w0), exact in i32. Without groups, the windows of x become rows of a product of bytes.
Result<X> integer_convolved(NodeImport& n, X x, Opt x0, X w, Opt w0) {
  x0 = one_number(x0);
  w0 = one_number(w0);
  TESSERA_TRY(n.b.status());
  auto byte = [](X v) { return v.dtype() == DType::u8 || v.dtype() == DType::i8; };
  const bool simple = byte(x) && byte(w) && n.integer("group", 1) == 1 && (!x0 || x0.rank() == 0) &&
                      (!w0 || w0.rank() <= 1) && x.rank() > 2 && w.rank() == x.rank();
  if (!simple) return convolved(n, centred(x, x0), centred(w, by_channel(w0, w.rank())), {});
  TESSERA_TRY(n.b.status());
  const Shape kernel = tail(w);
  TESSERA_ASSIGN(Spatial s, read_spatial(n, x, kernel));
  Shape low(2, 0), high(2, 0);
  low.insert(low.end(), s.low.begin(), s.low.end());
  high.insert(high.end(), s.high.begin(), s.high.end());
  n.b.require_equal(x.dim(1), w.dim(1));
  X padded = pad(x, low, high, x0 ? x0 : like(x, 0));  // what stands for 0
  TESSERA_TRY(n.b.status());
  const std::vector<int64_t> none(kernel.size(), 0);
  const ops::Windows windows{kernel, s.strides, s.dilations, none, none};
  const Shape out = windows.counts(padded.shape());
  for (const Dim& count : out)
    if (n.b.dims().proves_lt(count, 1))
      return n.fail(Code::shape_invalid, "a kernel of {} does not fit {}", to_string(std::span<const Dim>(kernel)),
                    to_string(*padded.type()));
  // [N, C, *O, *K] -> rows [N, O, C K]
  const int spatial = static_cast<int>(kernel.size());
  std::vector<int> order = {0};
  for (int i = 0; i < spatial; ++i) order.push_back(2 + i);
  order.push_back(1);
  for (int i = 0; i < spatial; ++i) order.push_back(2 + spatial + i);
  const Dim taps = w.dim(1) * product(kernel);
  X rows = reshape(transpose(ops::windows_of(padded, windows), std::move(order)), {x.dim(0), product(out), taps});
  X y = n.b.add1(ops::linear_integer_op, {rows, reshape(w, {w.dim(0), taps}), x0, w0});
  Shape shape = {x.dim(0), w.dim(0)};
  shape.insert(shape.end(), out.begin(), out.end());
  return reshape(swap_axes(y, 1, 2), std::move(shape));
}

}  // namespace

Status import_conv(NodeImport& n) {
  X x = n.need(0), w = n.need(1), bias = n.in(2);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(X y, convolved(n, x, w, bias));
  n.out(y);
  return {};
}

Status import_conv_integer(NodeImport& n) {
  X x = n.need(0), w = n.need(1), x0 = n.in(2), w0 = n.in(3);
  TESSERA_ASSIGN(X y, integer_convolved(n, x, x0, w, w0));
  n.out(y);
  return {};
}

Status import_qlinear_conv(NodeImport& n) {
  X x = n.need(0), x_scale = n.need(1), x0 = n.need(2), w = n.need(3), w_scale = n.need(4), w0 = n.need(5);
  X y_scale = n.need(6), y0 = n.need(7), bias = n.in(8);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(X sum, integer_convolved(n, x, x0, w, w0));
  if (bias) sum = sum + by_channel(bias, w.rank() - 1);
  TESSERA_TRY(n.b.status());
  X scale = one_number(x_scale) * by_channel(one_number(w_scale), w.rank() - 1) / one_number(y_scale);
  n.out(requantized(sum, scale, one_number(y0)));
  return {};
}

// The transpose of a convolution is a convolution of x, zeros between its elements, with the mirrored weights.
Status import_conv_transpose(NodeImport& n) {
  X x = n.need(0), w = n.need(1), bias = n.in(2);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 1));
  const size_t count = spatial_axes(x);
  if (w.rank() != x.rank())
    return n.fail(Code::rank_mismatch, "the weights are {} but the input is {}", to_string(*w.type()),
                  to_string(*x.type()));
  const int64_t groups = n.integer("group", 1);
  if (groups < 1 || groups > (1 << 30)) return n.fail(Code::attribute_invalid, "attribute 'group' is {}", groups);

  // Pads are the convolution's that this one transposes; SAME makes y stride times as large as x.
  const std::string_view automatic = n.text("auto_pad", "NOTSET");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  if (!same && automatic != "NOTSET" && automatic != "VALID" && !automatic.empty())
    return n.fail(Code::attribute_invalid,
                  "attribute 'auto_pad' is '{}' but must be NOTSET, SAME_UPPER, SAME_LOWER or VALID", automatic);
  TESSERA_ASSIGN(std::vector<int64_t> strides, read_sizes(n, "strides", count, 1, 1));
  TESSERA_ASSIGN(std::vector<int64_t> dilations, read_sizes(n, "dilations", count, 1, 1));
  TESSERA_ASSIGN(std::vector<int64_t> added, read_sizes(n, "output_padding", count, 0, 0));
  TESSERA_ASSIGN(std::vector<int64_t> pads, read_sizes(n, "pads", 2 * count, 0, 0));
  std::vector<int64_t> wanted = n.integers("output_shape");
  if (wanted.size() == count + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);  // some exporters give N and C
  if (!wanted.empty() && wanted.size() != count)
    return n.fail(Code::attribute_invalid, "attribute 'output_shape' has {} sizes for {} spatial axes", wanted.size(),
                  count);
  for (int64_t size : wanted)
    if (size < 0 || size > (1 << 30)) return n.fail(Code::attribute_invalid, "attribute 'output_shape' holds {}", size);
  Shape low, high;
  for (size_t i = 0; i < count; ++i) {
    const Dim reach = (w.shape()[i + 2] - 1) * dilations[i] + 1, size = x.shape()[i + 2];
    Dim before = automatic == "VALID" ? 0 : pads[i], after = automatic == "VALID" ? 0 : pads[count + i];
    if (!wanted.empty() || same) {
      const Dim target = wanted.empty() ? size * strides[i] : Dim(wanted[i]);
      const Dim total = (size - 1) * strides[i] + added[i] + reach - target;
      const Dim some = max(total, 0), half = floordiv(some, 2);
      before = automatic == "SAME_UPPER" ? half : some - half;
      after = total - before;
    }
    low.push_back(reach - 1 - before);
    // The last element is followed by stride - 1 zeros too many.
    high.push_back(reach - 1 - after + added[i] - (strides[i] - 1));
  }

  Shape spaced = x.shape();
  for (size_t i = 0; i < count; ++i) {
    if (strides[i] == 1) continue;
    const int axis = static_cast<int>(i + 2);
    x = unsqueeze(x, {axis + 1});
    TESSERA_TRY(n.b.status());
    Shape none(x.shape().size(), 0), gaps = none;
    gaps[static_cast<size_t>(axis) + 1] = strides[i] - 1;
    spaced[i + 2] = spaced[i + 2] * strides[i];
    x = reshape(pad(x, none, gaps), spaced);
  }
  TESSERA_TRY(n.b.status());
  x = pad_or_crop(x, low, high);

  // [C, M/G, *K] -> [M, C/G, *K], mirrored.
  const Dim in_group = floordiv(w.dim(0), groups), out_group = w.dim(1);
  const Shape kernel = tail(w);
  Shape split = {groups, in_group, out_group}, joined = {out_group * groups, in_group};
  split.insert(split.end(), kernel.begin(), kernel.end());
  joined.insert(joined.end(), kernel.begin(), kernel.end());
  w = reshape(swap_axes(reshape(w, split), 1, 2), joined);
  for (size_t i = 0; i < count; ++i) w = slice(w, static_cast<int>(i + 2), kernel[i] - 1, kernel[i], -1);
  const std::vector<int64_t> ones(count, 1), zeros(count, 0);
  n.out(n.b.add1(ops::conv_op, {x, w, bias}, {ones, dilations, zeros, zeros, groups}));
  return {};
}

// The columns of sliding windows x [N, C * K, L], added up where the windows overlap: [N, C, *image].
Status import_col2im(NodeImport& n) {
  X x = n.need(0);
  const Shape *image = n.sizes(1), *block = n.sizes(2);
  TESSERA_TRY(n.b.status());
  if (image == nullptr) return n.value_unknown(1);
  if (block == nullptr) return n.value_unknown(2);
  const size_t count = image->size();
  if (x.rank() != 3 || block->size() != count)
    return n.fail(Code::rank_mismatch, "input 0 is {}, the image has {} axes and a block {}", to_string(*x.type()),
                  count, block->size());
  for (const Dim& size : *block)
    if (size.is_const() && size.value() < 1)
      return n.fail(Code::shape_invalid, "a block has {} elements along an axis", size.value());
  for (const Dim& size : *image)
    if (size.is_const() && size.value() < 0) return n.fail(Code::shape_invalid, "the image has size {}", size.value());
  ops::Windows windows{*block, {}, {}, std::vector<int64_t>(count, 0), std::vector<int64_t>(count, 0)};
  TESSERA_ASSIGN(windows.strides, read_sizes(n, "strides", count, 1, 1));
  TESSERA_ASSIGN(windows.dilations, read_sizes(n, "dilations", count, 1, 1));
  TESSERA_ASSIGN(std::vector<int64_t> pads, read_sizes(n, "pads", 2 * count, 0, 0));

  const Dim batch = x.dim(0), channels = floordiv(x.dim(1), product(*block));
  Shape padded = {1, 1};
  for (size_t i = 0; i < count; ++i) padded.push_back((*image)[i] + pads[i] + pads[count + i]);
  const Dim positions = product(padded);
  const Shape counts = windows.counts(padded);
  for (size_t i = 0; i < count; ++i)
    if (n.b.dims().proves_lt(counts[i], 0))
      return n.fail(Code::shape_invalid, "a block of {} does not fit image axis {} of {}", to_string((*block)[i]), i,
                    to_string((*image)[i]));
  // Where in the padded image each element of each window lies: [1, 1, *L, *K] -> [K L].
  X where = ops::windows_of(reshape(iota(n.b, {positions}, 0, DType::i64), padded), windows);
  std::vector<int> order = {0, 1};
  for (size_t i = 0; i < count; ++i) order.push_back(static_cast<int>(2 + count + i));
  for (size_t i = 0; i < count; ++i) order.push_back(static_cast<int>(2 + i));
  const Dim elements = product(*block) * product(counts);
  where = broadcast(reshape(transpose(where, std::move(order)), {1, elements}), {batch * channels, elements});
  X zeros = broadcast(like(x, 0), {batch * channels, positions});
  constexpr int64_t kAdd = 1;  // of scatter_elements' reductions
  X y =
      n.b.add1(ops::scatter_elements_op, {zeros, where, reshape(x, {batch * channels, elements})}, {int64_t{1}, kAdd});
  padded[0] = batch, padded[1] = channels;
  y = reshape(y, padded);
  for (size_t i = 0; i < count; ++i) y = slice(y, static_cast<int>(i + 2), pads[i], (*image)[i]);
  n.out(y);
  return {};
}

}  // namespace tessera::onnx
