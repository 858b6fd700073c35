// pointwise, fused_linear and fused_conv: an anchor and what follows it, done on each block while it lies in cache.
#include "ops/tile.h"
#include "ops/window.h"

namespace tessera::ops {

using ir::A;
using ir::OpDef;
using ir::Opt;
using ir::X;
using ir::Xs;

constinit const OpDef pointwise_op = {
    .name = "pointwise",
    .doc =
        "A program of pointwise operators over operands that broadcast to one shape, and a norm of its rows if one is "
        "named; `keep` is one more value of the program as a second result.",
    .signature = "xs...[*S] -> y[*R], kept?[*R]",
    .types = "xs, y, kept: float",
    .attrs = {kProgramAttr, kKeepAttr, kNormAttr, kGainAttr, kShiftAttr, kEpsAttr},
    .infer = [](ir::Infer& infer) -> Status {
      TESSERA_TRY(check_tile(infer, static_cast<int>(infer.operands.size())));
      Shape shape;
      for (ir::TypeRef type : infer.operands) {
        if (!type->ranked) {
          infer.results.assign(infer.attrs.integer("keep") >= 0 ? 2 : 1, infer.context.unranked(infer.dtype(0)));
          return {};
        }
        TESSERA_ASSIGN(shape, ir::broadcast_shapes(infer, shape, type->shape));
      }
      if (infer.attrs.integer("norm") != 0 && shape.empty())
        return fail(Code::attribute_invalid, "pointwise: a scalar has no row to normalise");
      infer.result(infer.dtype(0), shape);
      if (infer.attrs.integer("keep") >= 0) infer.result(infer.dtype(0), shape);
      return {};
    },
    .meaning =
        [](Xs xs, A a) {
          Shape shape;
          for (X x : xs)
            if (Result<Shape> both = x.builder->broadcast(shape, x.shape())) shape = std::move(*both);
          return run_tile(a, std::move(xs), shape);
        },
};

constinit const OpDef fused_linear_op = {
    .name = "fused_linear",
    .doc =
        "A linear layer, and a program over its result and further operands on each block of rows: activation, "
        "residual, gate, norm. The weight's outputs are `parts` groups of equal size, each a value that the program "
        "starts from: a gate and what it gates.",
    .signature = "x[*B, K], w[N, K], b?[N], more?...[*M] -> y[*B, F], kept?[*B, F]",
    .types = "x, w, b, more, y, kept: float",
    .attrs = {ir::int_attr("parts", 1), kProgramAttr, kKeepAttr, kNormAttr, kGainAttr, kShiftAttr, kEpsAttr},
    .infer = [](ir::Infer& infer) -> Status {
      const int64_t parts = infer.attrs.integer("parts");
      if (parts < 1 || parts > 4) return fail(Code::attribute_invalid, "fused_linear: {} parts", parts);
      const int more = std::max(0, static_cast<int>(infer.operands.size()) - 3);
      TESSERA_TRY(check_tile(infer, static_cast<int>(parts) + more));
      if (!infer.operands[0]->ranked || !infer.operands[1]->ranked)
        return fail(Code::rank_mismatch, "fused_linear: the ranks of x and w must be known");
      TESSERA_TRY(infer.require_equal(mod(infer.shape(1)[0], parts), 0, "the outputs of w over the parts and 0"));
      Shape shape = infer.shape(0);
      shape.back() = floordiv(infer.shape(1)[0], parts);
      for (size_t i = 3; i < infer.operands.size(); ++i) {
        if (!infer.has(static_cast<int>(i)) || !infer.operands[i]->ranked ||
            infer.operands[i]->shape.size() > shape.size())
          return fail(Code::rank_mismatch, "fused_linear: operand {} is absent or has more axes than the result", i);
        TESSERA_ASSIGN(const Shape both, ir::broadcast_shapes(infer, shape, infer.operands[i]->shape));
        for (size_t a = 0; a < shape.size(); ++a)
          TESSERA_TRY(infer.require_equal(both[a], shape[a], "the result and what its operands broadcast to"));
      }
      infer.result(infer.dtype(0), shape);
      if (infer.attrs.integer("keep") >= 0) infer.result(infer.dtype(0), shape);
      return {};
    },
    .meaning =
        [](X x, X w, Opt b, Xs more, A a) {
          const int64_t parts = a["parts"];
          const X product = x.builder->add(linear_op, Xs{x, w, b})[0];
          const Dim size = floordiv(w.dim(0), parts);
          Xs values;
          for (int64_t i = 0; i < parts; ++i)
            values.push_back(parts == 1 ? product : slice(product, -1, size * i, size));
          values.insert(values.end(), more.begin(), more.end());
          const Shape shape = values[0].shape();
          return run_tile(a, std::move(values), shape);
        },
};

constinit const OpDef fused_conv_op = {
    .name = "fused_conv",
    .doc = "A convolution, and a program over its result and further operands: activation, residual.",
    .signature = "x[N, C, *D], w[M, J, *K], b?[M], more?...[*R] -> y[N, M, *O]",
    .types = "x, w, b, more, y: float",
    .attrs = {ir::ints_attr("strides"), ir::ints_attr("dilations"), ir::ints_attr("low"), ir::ints_attr("high"),
              ir::int_attr("groups", 1), kProgramAttr, kKeepAttr, kNormAttr},
    .infer = [](ir::Infer& infer) -> Status {
      const int more = std::max(0, static_cast<int>(infer.operands.size()) - 3);
      TESSERA_TRY(check_tile(infer, 1 + more));
      if (infer.attrs.integer("keep") >= 0 || infer.attrs.integer("norm") != 0)
        return fail(Code::attribute_invalid, "fused_conv: it keeps nothing and has no norm");
      ir::Infer conv{
          conv_op, infer.attrs, infer.context, infer.operands.first(std::min<size_t>(infer.operands.size(), 3)), {}};
      TESSERA_TRY(conv_op.infer(conv));
      infer.guards.insert(infer.guards.end(), conv.guards.begin(), conv.guards.end());
      infer.results.push_back(conv.results[0]);
      const ir::TypeRef y = conv.results[0];
      if (!y->ranked) return {};
      for (size_t i = 3; i < infer.operands.size(); ++i) {
        if (!infer.has(static_cast<int>(i)) || !infer.operands[i]->ranked ||
            infer.operands[i]->shape.size() > y->shape.size())
          return fail(Code::rank_mismatch, "fused_conv: operand {} is absent or has more axes than the result", i);
        TESSERA_ASSIGN(const Shape both, ir::broadcast_shapes(infer, y->shape, infer.operands[i]->shape));
        for (size_t a = 0; a < y->shape.size(); ++a)
          TESSERA_TRY(infer.require_equal(both[a], y->shape[a], "the result and what its operands broadcast to"));
      }
      return {};
    },
    .meaning =
        [](X x, X w, Opt b, Xs more, A a) {
          X y = x.builder->add(conv_op, Xs{x, w, b},
                               {a.integers("strides"), a.integers("dilations"), a.integers("low"), a.integers("high"),
                                a.integer("groups")})[0];
          Xs values = {y};
          values.insert(values.end(), more.begin(), more.end());
          const Shape shape = y.shape();
          return run_tile(a, std::move(values), shape);
        },
};

}  // namespace tessera::ops
