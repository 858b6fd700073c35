// Views: folded into the operands that can take them, else copied.
#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "compile/routine_writer.h"

namespace tessera::compile {

using plan::kNone;
using plan::Layout;
using plan::Storage;
using plan::ValueId;

namespace {

// One stride an axis, or nullopt when an axis has several digits.
std::optional<std::vector<ir::LinearDigit>> single_strides(const ir::LinearView& view) {
  std::vector<ir::LinearDigit> digits;
  for (const std::vector<ir::LinearDigit>& axis : view.axes) {
    if (axis.size() > 1) return std::nullopt;
    digits.push_back(axis.empty() ? ir::LinearDigit{0, 1} : axis[0]);
  }
  return digits;
}

// Provably row-major without gaps. Axes with several digits may be: their digits are checked one by one.
bool is_dense(const ir::LinearView& view) {
  Dim expected = 1;
  for (size_t a = view.axes.size(); a-- > 0;)
    for (size_t d = view.axes[a].size(); d-- > 0;) {
      const ir::LinearDigit& digit = view.axes[a][d];
      if (digit.size.is(1)) continue;
      if (!(digit.stride == expected)) return false;
      expected = expected * digit.size;
    }
  return true;
}

// What the axes of a dense view walk as one.
ir::LinearView with_row_major_axes(const ir::LinearView& view) {
  ir::LinearView made = view;
  for (std::vector<ir::LinearDigit>& axis : made.axes) {
    Dim size = 1, stride = 0;
    for (const ir::LinearDigit& digit : axis) {
      if (digit.size.is(1)) continue;
      size = size * digit.size;
      stride = digit.stride;  // the innermost one's stays
    }
    axis = {{stride, size}};
  }
  return made;
}

bool allows(const ir::LinearView& view, Layout layout, DType dtype) {
  if (bits(dtype) < 8) return is_dense(view) && view.offset.is(0);
  if (layout == Layout::dense) return is_dense(view);
  const auto digits = single_strides(is_dense(view) ? with_row_major_axes(view) : view);
  if (!digits) return false;
  return layout == Layout::strided || layout == Layout::packed || digits->empty() || digits->back().size.is(1) ||
         digits->back().stride.is(1);
}

// Copies a strided walk to dense memory. The two innermost digits go in square tiles, so that a transpose reads and
// writes whole cache lines.
template <class T>
void gather(const T* from, T* to, std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  constexpr int64_t kTile = 64 / static_cast<int64_t>(sizeof(T));
  if (sizes.size() > 2) {
    int64_t block = 1;
    for (int64_t size : sizes.subspan(1)) block *= size;
    for (int64_t i = 0; i < sizes[0]; ++i)
      gather(from + i * strides[0], to + i * block, sizes.subspan(1), strides.subspan(1));
    return;
  }
  const size_t rank = sizes.size();
  const int64_t columns = rank > 0 ? sizes[rank - 1] : 1, column_stride = rank > 0 ? strides[rank - 1] : 1;
  const int64_t rows = rank > 1 ? sizes[0] : 1, row_stride = rank > 1 ? strides[0] : 0;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < columns; c0 += kTile)
      for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r)
        for (int64_t c = c0; c < std::min(columns, c0 + kTile); ++c)
          std::memcpy(to + r * columns + c, from + r * row_stride + c * column_stride, sizeof(T));  // may be unaligned
}

void gather_bytes(const void* from, void* to, int bytes, std::span<const int64_t> sizes,
                  std::span<const int64_t> strides) {
  switch (bytes) {
    case 1:
      return gather(static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to), sizes, strides);
    case 2:
      return gather(static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to), sizes, strides);
    case 4:
      return gather(static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to), sizes, strides);
    default:
      return gather(static_cast<const uint64_t*>(from), static_cast<uint64_t*>(to), sizes, strides);
  }
}

std::vector<ir::LinearDigit> all_digits(const ir::LinearView& view) {
  std::vector<ir::LinearDigit> digits;
  for (const std::vector<ir::LinearDigit>& axis : view.axes) digits.insert(digits.end(), axis.begin(), axis.end());
  return digits;
}

}  // namespace

Result<ValueId> RoutineWriter::view_value(ValueId base, DType dtype, std::span<const ir::LinearDigit> digits,
                                          Dim offset) {
  plan::Value v;
  v.storage = Storage::view;
  v.dtype = dtype;
  v.base = base;
  Shape sizes, strides;
  for (const ir::LinearDigit& digit : digits) {
    sizes.push_back(digit.size);
    strides.push_back(digit.stride);
  }
  TESSERA_ASSIGN(v.shape, exprs(sizes));
  TESSERA_ASSIGN(v.strides, exprs(strides));
  TESSERA_ASSIGN(v.offset, expr(offset));
  return out_.add_value(std::move(v));
}

Result<ValueId> RoutineWriter::strided(PendingView& view, DType dtype) {
  if (view.strided == kNone) {
    const auto digits = single_strides(is_dense(view.linear) ? with_row_major_axes(view.linear) : view.linear);
    TESSERA_ASSIGN(view.strided, view_value(view.base, dtype, *digits, view.linear.offset));
  }
  return view.strided;
}

Result<ValueId> RoutineWriter::operand(ir::ValueId value, Layout layout) {
  if (planned_[value] != kNone) return planned_[value];
  PendingView& view = views_.at(value);
  const DType dtype = graph_.type(value)->dtype;
  if (allows(view.linear, layout, dtype)) return strided(view, dtype);
  return copied(value, view);
}

// The operand of a copy: its elements in order, under whatever axes.
Result<ValueId> RoutineWriter::elements(ir::ValueId value) {
  if (planned_[value] == kNone) {
    const PendingView& view = views_.at(value);
    const DType dtype = graph_.type(value)->dtype;
    const std::vector<ir::LinearDigit> digits = all_digits(view.linear);
    if (bits(dtype) >= 8 && digits.size() <= plan::kMaxKernelRank && !single_strides(view.linear))
      return view_value(view.base, dtype, digits, view.linear.offset);
  }
  return operand(value, Layout::strided);
}

// Constants are copied once, here.
Result<ValueId> RoutineWriter::fold(const PendingView& view, ir::TypeRef type) {
  const Tensor base = shared_.lowered.plan.constants[out_.values[view.base].index];
  Dims dims;
  for (Dim dim : type->shape) dims.push_back(dim.value());
  TESSERA_ASSIGN(Tensor folded, Tensor::make(type->dtype, std::move(dims)));
  const int bytes = bits(type->dtype) / 8;
  std::vector<int64_t> sizes, strides;
  for (const ir::LinearDigit& digit : all_digits(view.linear)) {
    sizes.push_back(digit.size.value());
    strides.push_back(digit.stride.value());
  }
  if (folded.count() > 0)
    gather_bytes(static_cast<const char*>(base.data()) + view.linear.offset.value() * bytes, folded.mutable_data(),
                 bytes, sizes, strides);
  plan::Value v;
  v.storage = Storage::constant;
  v.dtype = type->dtype;
  v.index = static_cast<uint32_t>(shared_.lowered.plan.constants.size());
  TESSERA_ASSIGN(v.shape, exprs(type->shape));
  shared_.lowered.plan.constants.push_back(std::move(folded));
  return out_.add_value(std::move(v));
}

Result<ValueId> RoutineWriter::copied(ir::ValueId value, PendingView& view) {
  if (view.copied != kNone) return view.copied;
  const ir::TypeRef type = graph_.type(value);
  const std::vector<ir::LinearDigit> digits = all_digits(view.linear);
  const bool whole_bytes = bits(type->dtype) % 8 == 0;
  // A broadcast constant stays small: it is spread out in each run.
  const bool constant = out_.values[view.base].storage == Storage::constant && view.linear.offset.is_const() &&
                        std::ranges::all_of(digits, [](const ir::LinearDigit& digit) {
                          return digit.size.is_const() && digit.stride.is_const() && !digit.stride.is(0);
                        });
  if (constant && whole_bytes) {
    TESSERA_ASSIGN(view.copied, fold(view, type));
    return view.copied;
  }
  const std::optional<DType> types[] = {type->dtype};
  const plan::KernelRule* rule = plan::select_kernel("copy", types, types);
  if (rule == nullptr || digits.size() > plan::kMaxKernelRank || type->rank() > plan::kMaxKernelRank) {
    TESSERA_TRY(write_host(view.node));
    view.copied = planned_[value];
    return view.copied;
  }
  TESSERA_ASSIGN(const ValueId from, view_value(view.base, type->dtype, digits, view.linear.offset));
  plan::Value v;
  v.storage = Storage::buffer;
  v.dtype = type->dtype;
  v.name = graph_.value_name(value);
  TESSERA_ASSIGN(v.shape, exprs(type->shape));
  view.copied = out_.add_value(std::move(v));
  const ValueId operands[] = {from}, results[] = {view.copied};
  plan::Attr shape;
  shape.list = out_.values[view.copied].shape;
  plan::Step& step = add_step(plan::StepKind::kernel, out_.add_list(operands), results, view.node);
  step.op = shared_.kernel(*rule);
  step.attrs = static_cast<uint32_t>(out_.attrs.size());
  step.n_attrs = 1;
  out_.attrs.push_back(shape);
  return view.copied;
}

}  // namespace tessera::compile
