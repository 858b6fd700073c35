// max_pool and average_pool: windows over the spatial axes, reduced.
#include "ops/window.h"

namespace tessera::ops {
namespace {

using ir::A;
using ir::Infer;
using ir::OpDef;
using ir::X;

Shape kernel_of(const A& attrs) {
  const std::vector<int64_t>& kernel = attrs.integers("kernel");
  return Shape(kernel.begin(), kernel.end());
}

Status infer_pool(Infer& infer, const Windows& windows) {
  if (!infer.operands[0]->ranked) {
    infer.results.push_back(infer.operands[0]);
    return {};
  }
  TESSERA_TRY(check_windows(infer, windows));
  Shape y = windows.counts(infer.shape(0));
  y.insert(y.begin(), {infer.shape(0)[0], infer.shape(0)[1]});
  infer.result(infer.dtype(0), std::move(y));
  return {};
}

// With the elements past the upper pads that a rounded-up number of windows reaches.
Windows average_windows(const A& attrs) {
  Windows windows = Windows::of(attrs, kernel_of(attrs));
  const std::vector<int64_t>& extra = attrs.integers("extra");
  for (size_t i = 0; i < extra.size() && i < windows.high.size(); ++i) windows.high[i] += extra[i];
  return windows;
}

Status check_extra(const Infer& infer) {
  const size_t extra = infer.attrs.integers("extra").size(), high = infer.attrs.integers("high").size();
  if (extra == high) return {};
  return fail(Code::attribute_invalid, "{}: extra has {} values but high has {}", infer.op.name, extra, high);
}

// Reduces the window axes of [N, C, *O, *K] away.
template <class F>
X over_windows(X windows, int spatial, F reduce) {
  if (!windows) return windows;
  X y = reduce(windows, axes_from(2 + spatial, spatial));
  std::vector<int> axes;
  for (int i = 0; i < spatial; ++i) axes.push_back(2 + spatial + i);
  return squeeze(y, std::move(axes));
}

}  // namespace

constinit const OpDef max_pool_op = {
    .name = "max_pool",
    .doc = "The largest element of each window; NaN wins, padding never does.",
    .signature = "x[N, C, *D] -> y[N, C, *O]",
    .types = "x, y: number",
    .attrs = {ir::ints_attr("kernel"), ir::ints_attr("strides"), ir::ints_attr("dilations"), ir::ints_attr("low"),
              ir::ints_attr("high")},
    .infer = [](Infer& infer) { return infer_pool(infer, Windows::of(infer.attrs, kernel_of(infer.attrs))); },
    .meaning =
        [](X x, A a) {
          return over_windows(windows_of(x, Windows::of(a, kernel_of(a)), lowest(x)), x.rank() - 2, ir::reduce_max);
        },
};

constinit const OpDef average_pool_op = {
    .name = "average_pool",
    .doc =
        "The mean of each window's elements, padding among them if `include_pad`; never the `extra` elements past the "
        "upper pads.",
    .signature = "x[N, C, *D] -> y[N, C, *O]",
    .types = "x, y: float",
    .attrs = {ir::ints_attr("kernel"), ir::ints_attr("strides"), ir::ints_attr("dilations"), ir::ints_attr("low"),
              ir::ints_attr("high"), ir::ints_attr("extra"), ir::bool_attr("include_pad", false)},
    .infer = [](Infer& infer) -> Status {
      TESSERA_TRY(check_extra(infer));
      return infer_pool(infer, average_windows(infer.attrs));
    },
    .meaning =
        [](X x, A a) {
          const int spatial = x.rank() - 2;
          Windows windows = average_windows(a);
          X total = over_windows(windows_of(x, windows), spatial, ir::sum);

          // How many counted elements each window holds: the sum of ones where x (and its padding) is.
          Shape counted = x.shape();
          counted[0] = counted[1] = 1;
          if (a.flag("include_pad")) {
            for (size_t i = 0; i < windows.kernel.size(); ++i) {
              counted[i + 2] += a.integers("low")[i] + a.integers("high")[i];
              windows.low[i] = 0;
              windows.high[i] = a.integers("extra")[i];
            }
          }
          X ones = windows_of(broadcast(like(x, 1), std::move(counted)), windows);
          return total / over_windows(ones, spatial, ir::sum);
        },
};

}  // namespace tessera::ops
