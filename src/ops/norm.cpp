// layer_norm and rms_norm over the last `axes` axes, group_norm over groups of channels.
#include "ops/math.h"

namespace tessera::ops {
namespace {

ir::Axes last_axes(int64_t count) {
  ir::Axes axes;
  for (int64_t i = -count; i < 0; ++i) axes.push_back(i);
  return axes;
}

}  // namespace

using ir::A;
using ir::OpDef;
using ir::Opt;
using ir::X;
using ir::Xs;

constinit const OpDef layer_norm_op = {
    .name = "layer_norm",
    .doc =
        "(x - mean) / sqrt(variance + eps) g + b over the last `axes` axes; also the mean and the inverse deviation. "
        "Ba et al. 2016.",
    .signature = "x[*S], g?[*G|1], b?[*G|1] -> y[*S], mean[*M], inv[*M]",
    .types = "x, g, b, y, mean, inv: float",
    .attrs = {ir::int_attr("axes", 1), ir::real_attr("eps", 1e-5)},
    .infer = [](ir::Infer& infer) -> Status {
      int64_t axes = infer.attrs.integer("axes");
      if (axes < 0 || axes > infer.rank(0))
        return fail(Code::attribute_invalid, "layer_norm: {} axes of x {}", axes, to_string(*infer.operands[0]));
      Shape rows = infer.shape(0);
      for (size_t i = rows.size() - static_cast<size_t>(axes); i < rows.size(); ++i) rows[i] = 1;
      infer.result(infer.dtype(0), infer.shape(0));
      infer.result(infer.dtype(0), rows);
      infer.result(infer.dtype(0), std::move(rows));
      return {};
    },
    .meaning =
        [](X x, Opt g, Opt b, A a) {
          ir::Axes axes = last_axes(a["axes"]);
          X m = mean(x, axes);
          X d = x - m;
          X inv = rsqrt(mean(square(d), axes) + a.real("eps"));
          X y = d * inv;
          if (g) y = y * g;
          if (b) y = y + b;
          return Xs{y, m, inv};
        },
};

constinit const OpDef rms_norm_op = {
    .name = "rms_norm",
    .doc = "x / sqrt(mean(x^2) + eps) g over the last `axes` axes. Zhang and Sennrich 2019, eq. 4.",
    .signature = "x[*S], g?[*G|1] -> y[*S]",
    .types = "x, g, y: float",
    .attrs = {ir::int_attr("axes", 1), ir::real_attr("eps", 1e-6)},
    .meaning =
        [](X x, Opt g, A a) {
          X y = x * rsqrt(mean(square(x), last_axes(a["axes"])) + a.real("eps"));
          return g ? y * g : y;
        },
};

constinit const OpDef group_norm_op = {
    .name = "group_norm",
    .doc =
        "(x - mean) / sqrt(variance + eps) g + b over each of `groups` groups of channels and all positions. Wu and He "
        "2018; with a group a channel, instance normalization.",
    .signature = "x[N, C, *D], g?[C], b?[C] -> y[N, C, *D]",
    .types = "x, g, b, y: float",
    .attrs = {ir::int_attr("groups"), ir::real_attr("eps", 1e-5)},
    .infer = [](ir::Infer& infer) -> Status {
      const int64_t groups = infer.attrs.integer("groups");
      if (groups < 1) return fail(Code::attribute_invalid, "group_norm: {} groups", groups);
      if (infer.operands[0]->ranked)
        TESSERA_TRY(infer.require_equal(mod(infer.shape(0)[1], groups), 0, "the channels of x over the groups and 0"));
      infer.results.push_back(infer.operands[0]);
      return {};
    },
    .meaning =
        [](X x, Opt g, Opt b, A a) {
          const Shape& s = x.shape();
          Dim channels = s[1], positions = product(std::span<const Dim>(s).subspan(2));
          const int64_t groups = a["groups"];
          X rows = reshape(x, {s[0], groups, floordiv(channels, groups) * positions});
          X d = rows - mean(rows, {-1});
          X y = reshape(d * rsqrt(mean(square(d), {-1}) + a.real("eps")), s);
          Shape each(s.size() - 1, 1);
          each[0] = channels;
          if (g) y = y * reshape(g, each);
          if (b) y = y + reshape(b, each);
          return y;
        },
};

}  // namespace tessera::ops
