// conv: convolution over any number of spatial axes.
#include "ops/window.h"

namespace tessera::ops {

using ir::A;
using ir::OpDef;
using ir::Opt;
using ir::X;

constinit const OpDef conv_op = {
    .name = "conv",
    .doc =
        "Correlation of x, padded with zeros, with w over the spatial axes; channels in `groups` that see only their "
        "own. J = C / groups.",
    .signature = "x[N, C, *D], w[M, J, *K], b?[M] -> y[N, M, *O]",
    .types = "x, w, b, y: number",
    .attrs = {ir::ints_attr("strides"), ir::ints_attr("dilations"), ir::ints_attr("low"), ir::ints_attr("high"),
              ir::int_attr("groups", 1)},
    .infer = [](ir::Infer& infer) -> Status {
      if (!infer.operands[0]->ranked || !infer.operands[1]->ranked) {
        infer.results.push_back(infer.context.unranked(infer.dtype(0)));
        return {};
      }
      const Shape &x = infer.shape(0), &w = infer.shape(1);
      const int64_t groups = infer.attrs.integer("groups");
      if (groups < 1 || infer.dims().proves_lt(w[0], groups))
        return fail(Code::attribute_invalid, "conv: {} groups for w {}", groups, to_string(*infer.operands[1]));
      TESSERA_TRY(infer.require_equal(x[1], w[1] * groups, "the channels of x and those that w's groups take"));
      TESSERA_TRY(infer.require_equal(mod(w[0], groups), 0, "the outputs of w over the groups and 0"));
      Windows windows = Windows::of(infer.attrs, std::span<const Dim>(w).subspan(2));
      TESSERA_TRY(check_windows(infer, windows));
      Shape y = windows.counts(x);
      y.insert(y.begin(), {x[0], w[0]});
      infer.result(infer.dtype(0), std::move(y));
      return {};
    },
    .meaning =
        [](X x, X w, Opt b, A a) {
          const Shape& ws = w.shape();
          const int64_t g = a["groups"];
          Dim n = x.dim(0), m = w.dim(0), j = w.dim(1);
          Windows windows = Windows::of(a, std::span<const Dim>(ws).subspan(2));
          Shape out = windows.counts(x.shape());
          const Dim positions = product(out), taps = j * product(windows.kernel);

          // [N, C, *O, *K] -> columns [N, G, O, J K]
          Shape split = {n, g, j};
          split.insert(split.end(), out.begin(), out.end());
          split.insert(split.end(), windows.kernel.begin(), windows.kernel.end());
          const int spatial = static_cast<int>(out.size());
          std::vector<int> order = {0, 1};
          for (int i = 0; i < spatial; ++i) order.push_back(3 + i);
          order.push_back(2);
          for (int i = 0; i < spatial; ++i) order.push_back(3 + spatial + i);
          X columns = transpose(reshape(windows_of(x, windows), std::move(split)), std::move(order));
          columns = reshape(columns, {n, g, positions, taps});

          X y = dot(reshape(w, {g, floordiv(m, g), taps}), columns);  // [N, G, M/G, O]
          out.insert(out.begin(), {n, m});
          y = reshape(y, std::move(out));
          if (!b) return y;
          Shape channels(static_cast<size_t>(spatial) + 1, 1);
          channels[0] = m;
          return y + reshape(b, std::move(channels));
        },
};

}  // namespace tessera::ops
