#include "passes/rules.h"

#include <cmath>
#include <limits>

#include "ir/core_ops.h"
#include "ops/math.h"
#include "passes/constants.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

using ir::A;
using ir::Opt;
using ir::X;

constexpr double kAny = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kLast = -1;

// The meaning of an activation.
Rule activation(const ir::OpDef& op, std::vector<ir::AttrValue> attrs = {}) {
  return {op.name, &op, op.meaning, {{true, {3, 5, 17}}}, std::move(attrs), 1, op.doc};
}

// x [..., D] with tables as wide, for a result of the same shape.
std::vector<Shape> rope_shapes(const Shape& y) {
  if (y.size() < 2 || !y.back().is_const() || y.back().value() < 2 || y.back().value() % 2 != 0) return {};
  return {y, y, y};
}
// x [..., D] with tables of half the width.
std::vector<Shape> half_table_shapes(const Shape& y) {
  std::vector<Shape> shapes = rope_shapes(y);
  for (size_t i = 1; i < shapes.size(); ++i) shapes[i].back() = y.back().value() / 2;
  return shapes;
}
// x [..., 2 D] for pairs [..., D, 2].
std::vector<Shape> pair_shapes(const Shape& y) {
  if (y.size() < 3 || !y.back().is(2) || !y[y.size() - 2].is_const()) return {};
  Shape x(y.begin(), y.end() - 1);
  Shape table = x;
  x.back() = x.back().value() * 2;
  return {x, table, table};
}
// Some of a row is rotated, half of it at first: other parts are other rules.
template <int Numerator, int Denominator>
std::vector<Shape> partial_shapes(const Shape& y) {
  if (y.size() < 2 || !y.back().is_const() || y.back().value() * Numerator % (2 * Denominator) != 0) return {};
  Shape table = y;
  table.back() = y.back().value() * Numerator / Denominator;
  if (table.back().is(0)) return {};
  return {y, table, table};
}

// The same with tables of half the width.
template <int Numerator, int Denominator>
std::vector<Shape> partial_half_shapes(const Shape& y) {
  std::vector<Shape> shapes = partial_shapes<Numerator, Denominator>(y);
  for (size_t i = 1; i < shapes.size(); ++i) shapes[i].back() = shapes[i].back().value() / 2;
  return shapes;
}

X halves(X x, int64_t i) { return slice(x, -1, floordiv(x.dim(-1), 2) * i, floordiv(x.dim(-1), 2)); }
X every_other(X x, int64_t i) { return slice(x, -1, i, floordiv(x.dim(-1), 2), 2); }
X twice(X table) { return ir::concat({table, table}, -1); }
X each_twice(X table) {
  Shape pairs = table.shape();
  pairs.push_back(2);
  Shape flat = table.shape();
  flat.back() = flat.back() * 2;
  return reshape(broadcast(unsqueeze(table, {table.rank()}), pairs), flat);
}
X pairs_of(X a, X b) { return ir::concat({unsqueeze(a, {a.rank()}), unsqueeze(b, {b.rank()})}, -1); }

constexpr int64_t kHalf = 0, kInterleaved = 1;

void add_rope_rules(std::vector<Rule>& all) {
  const RuleOperand any{true, {}};
  const auto add = [&](std::string_view name, ir::Meaning left, ir::Meaning right, int64_t style,
                       std::vector<Shape> (*shapes)(const Shape&), const ir::OpDef& root, int tier = 1) {
    all.push_back(
        {name, &ops::rotary_op, left, {any, any, any}, {style}, tier, "Su et al. 2021", right, shapes, &root});
  };
  for (int64_t style : {kHalf, kInterleaved})
    for (const ir::OpDef* root : {&ops::add_op, &ops::sub_op})
      add("rope", ops::rotary_op.meaning, {}, style, rope_shapes, *root);
  for (const ir::OpDef* root : {&ops::add_op, &ops::sub_op})
    add(
        "rope_of_turned_pairs",
        [](X x, X c, X s) { return x * c + reshape(pairs_of(-every_other(x, 1), every_other(x, 0)), x.shape()) * s; },
        {}, kInterleaved, rope_shapes, *root);
  add(
      "rope_of_halves",
      [](X x, X c, X s) {
        const X a = halves(x, 0), b = halves(x, 1);
        return ir::concat({a * c - b * s, b * c + a * s}, -1);
      },
      [](X x, X c, X s, A a) {
        return x.builder->add1(ops::rotary_op, {x, twice(c), twice(s)}, {a.integer("style")});
      },
      kHalf, half_table_shapes, ops::concat_op);
  add(
      "rope_of_pairs",
      [](X x, X c, X s) {
        const X a = every_other(x, 0), b = every_other(x, 1);
        return pairs_of(a * c - b * s, b * c + a * s);
      },
      [](X x, X c, X s, A a) {
        const X y = x.builder->add1(ops::rotary_op, {x, each_twice(c), each_twice(s)}, {a.integer("style")});
        Shape pairs = y.shape();
        pairs.back() = floordiv(pairs.back(), 2);
        pairs.push_back(2);
        return reshape(y, pairs);
      },
      kInterleaved, pair_shapes, ops::concat_op);
  const ir::Meaning partial = [](X x, X c, X s, A a) {
    const Dim whole = x.dim(-1), size = c.dim(-1);
    const X y = x.builder->add1(ops::rotary_op, {slice(x, -1, 0, size), c, s}, {a.integer("style")});
    return ir::concat({y, slice(x, -1, size, whole - size)}, -1);
  };
  for (int64_t style : {kHalf, kInterleaved}) {
    add("partial_rope", partial, {}, style, partial_shapes<1, 2>, ops::concat_op, 2);
    add("partial_rope", partial, {}, style, partial_shapes<1, 4>, ops::concat_op, 2);
    add("partial_rope", partial, {}, style, partial_shapes<2, 5>, ops::concat_op, 2);
    add("partial_rope", partial, {}, style, partial_shapes<3, 4>, ops::concat_op, 2);
  }
  const ir::Meaning partial_halves = [](X x, X c, X s) {
    const Dim half = c.dim(-1), whole = x.dim(-1);
    const X a = slice(x, -1, 0, half), b = slice(x, -1, half, half);
    return ir::concat({a * c - b * s, b * c + a * s, slice(x, -1, half * 2, whole - half * 2)}, -1);
  };
  const ir::Meaning whole_tables = [](X x, X c, X s, A a) {
    return x.builder->add1(ops::rotary_op, {x, twice(c), twice(s)}, {a.integer("style")});
  };
  for (auto* shapes :
       {partial_half_shapes<1, 2>, partial_half_shapes<1, 4>, partial_half_shapes<2, 5>, partial_half_shapes<3, 4>})
    add("partial_rope_of_halves", partial_halves, whole_tables, kHalf, shapes, ops::concat_op);
}

// The logarithm of a sum of exponentials, shifted by nothing, by the largest, or by the largest that is finite.
enum class Shift { none, largest, finite };
template <Shift kShift>
X log_of_sum(X x, int64_t axis) {
  if (kShift == Shift::none) return log(sum(exp(x), {axis}));
  X top = reduce_max(x, {axis});
  if (kShift == Shift::finite)
    top = select(x.builder->add1(ops::is_inf_op, {top}, {int64_t{1}, int64_t{1}}), like(top, 0), top);
  return log(sum(exp(x - top), {axis})) + top;
}
template <Shift kShift>
Rule log_softmax_of_sum(int64_t axis) {
  return {"log_softmax_of_sum",
          &ops::log_softmax_op,
          [](X x, A a) { return x - log_of_sum<kShift>(x, a.integer("axis")); },
          {{true, {3, 5, 17}}},
          {axis},
          1,
          ops::log_softmax_op.doc};
}

// Norms of channels that do not come last, [B, C, H, W]: rows of the transpose.
void add_channel_norms(std::vector<Rule>& all) {
  const RuleOperand x{true, {2, 17, 5, 7}},
      channels{true, {17, 1, 1}, is_channels_of_image, "it is no number a channel"}, none{false, {}};
  for (const RuleOperand& b : {channels, none})
    for (const RuleOperand& g : {channels, none})
      all.push_back(
          {"layer_norm_of_channels",
           &ops::layer_norm_op,
           [](X x, Opt g, Opt b, A a) {
             X d = x - mean(x, {-3});
             X y = d * rsqrt(mean(square(d), {-3}) + a.real("eps"));
             if (g) y = y * g;
             return b ? y + b : y;
           },
           {x, g, b},
           {int64_t{1}, kAny},
           1,
           "Liu et al. 2022",
           [](X x, Opt g, Opt b, A a) {
             const Shape row = {x.dim(1)};
             const ir::Xs operands = {transpose(x, {0, 2, 3, 1}), g ? reshape(g, row) : g, b ? reshape(b, row) : b};
             const ir::Xs y = x.builder->add(ops::layer_norm_op, operands, {a.integer("axes"), a.real("eps")});
             return transpose(y[0], {0, 3, 1, 2});
           }});
}

std::vector<Rule> make_rules() {
  std::vector<Rule> all;
  const RuleOperand rows{true, {3, 5, 17}}, row{true, {17}, is_row, "it is no row: a residual or a gate, not a scale"},
      none{false, {}};
  all.push_back(activation(ops::relu_op));
  all.push_back(activation(ops::sigmoid_op));
  all.push_back(activation(ops::softplus_op));
  all.push_back(activation(ops::gelu_op));
  all.push_back(activation(ops::gelu_tanh_op));
  all.push_back(activation(ops::silu_op));
  all.push_back(activation(ops::hard_sigmoid_op, {kAny, kAny}));
  all.push_back(activation(ops::hard_swish_op));
  all.push_back({"hard_swish_of_hard_sigmoid",
                 &ops::hard_swish_op,
                 [](X x) {
                   return x * x.builder->add1(ops::hard_sigmoid_op, {x}, {1.0 / 6, 0.5});
                 },
                 {rows},
                 {},
                 2,
                 "Howard et al. 2019"});
  all.push_back({"hard_sigmoid_of_product",
                 &ops::hard_sigmoid_op,
                 [](X x, A a) { return min(max((x + a.real("beta")) * a.real("alpha"), like(x, 0)), like(x, 1)); },
                 {rows},
                 {kAny, kAny},
                 1,
                 "Howard et al. 2019",
                 [](X x, A a) {
                   const double scale = a["alpha"];
                   return x.builder->add1(ops::hard_sigmoid_op, {x}, {scale, scale * a.real("beta")});
                 }});
  all.push_back({"sigmoid_of_tanh",
                 &ops::sigmoid_op,
                 [](X x) { return 0.5 * (1.0 + tanh(0.5 * x)); },
                 {rows},
                 {},
                 1,
                 "1 / (1 + e^-x) = (1 + tanh(x / 2)) / 2"});
  all.push_back({"relu_of_select",
                 &ops::relu_op,
                 [](X x) { return select(less(like(x, 0), x), x, like(x, 0)); },
                 {rows},
                 {},
                 1,
                 ops::relu_op.doc});
  all.push_back({"relu_of_select",
                 &ops::relu_op,
                 [](X x) { return select(less(x, like(x, 0)), like(x, 0), x); },
                 {rows},
                 {},
                 1,
                 ops::relu_op.doc});
  all.push_back({"relu_of_select",
                 &ops::relu_op,
                 [](X x) { return select(less_equal(like(x, 0), x), x, like(x, 0)); },
                 {rows},
                 {},
                 1,
                 ops::relu_op.doc});
  // The division of a softmax where its rows have been added up already.
  all.push_back({"softmax_of_late_division",
                 &ops::dot_op,
                 [](X x, X w) {
                   const X e = exp(x);
                   return dot(e, w) / sum(e, {kLast});
                 },
                 {{true, {3, 5, 7}}, {true, {3, 17, 7}}},
                 {},
                 1,
                 ops::softmax_op.doc,
                 [](X x, X w) { return dot(x.builder->add1(ops::softmax_op, {x}, {kLast}), w); }});
  for (int64_t axis : {kLast, kLast - 1, kLast - 2}) {
    all.push_back(log_softmax_of_sum<Shift::none>(axis));
    all.push_back(log_softmax_of_sum<Shift::largest>(axis));
    all.push_back(log_softmax_of_sum<Shift::finite>(axis));
    all.push_back({"softmax_of_exponentials",
                   &ops::softmax_op,
                   [](X x, A a) {
                     const X e = exp(x);
                     return e / sum(e, {a.integer("axis")});
                   },
                   {rows},
                   {axis},
                   1,
                   ops::softmax_op.doc});
    all.push_back({"softmax_of_shifted",
                   &ops::softmax_op,
                   [](X x, A a) {
                     const int64_t axis = a.integer("axis");
                     return x.builder->add1(ops::softmax_op, {x - reduce_max(x, {axis})}, {axis});
                   },
                   {rows},
                   {axis},
                   2,
                   ops::softmax_op.doc});
    all.push_back({"softmax_of_logarithm",
                   &ops::softmax_op,
                   [](X x, A a) { return exp(x.builder->add1(ops::log_softmax_op, {x}, {a.integer("axis")})); },
                   {rows},
                   {axis},
                   2,
                   ops::softmax_op.doc});
    all.push_back({"softmax", &ops::softmax_op, ops::softmax_op.meaning, {rows}, {axis}, 1, ops::softmax_op.doc});
    all.push_back(
        {"log_softmax", &ops::log_softmax_op, ops::log_softmax_op.meaning, {rows}, {axis}, 1, ops::log_softmax_op.doc});
  }
  // Of planes and volumes: a scale as large, or none.
  const RuleOperand volumes{true, {2, 3, 5, 17}}, plane{true, {5, 17}, is_weight, "it is no constant"},
      volume{true, {3, 5, 17}, is_weight, "it is no constant"};
  for (int64_t axes : {1, 2, 3}) {
    const RuleOperand &x = axes == 1 ? rows : volumes, &scale = axes == 1 ? row : axes == 2 ? plane : volume;
    for (const RuleOperand& b : {scale, none})
      for (const RuleOperand& g : {scale, none})
        all.push_back({"layer_norm",
                       &ops::layer_norm_op,
                       ops::layer_norm_op.meaning,
                       {x, g, b},
                       {axes, kAny},
                       1,
                       ops::layer_norm_op.doc});
  }
  // As a scale and a shift of x itself.
  all.push_back({"layer_norm_of_scale_and_shift",
                 &ops::layer_norm_op,
                 [](X x, X g, X b, A a) {
                   X m = mean(x, {-1}), d = x - m;
                   X scale = rsqrt(mean(square(d), {-1}) + a.real("eps")) * g;
                   return x * scale + (b - m * scale);
                 },
                 {rows, row, row},
                 {int64_t{1}, kAny},
                 1,
                 "Ba et al. 2016"});
  // The variance as E[x^2] - E[x]^2, which loses digits where the mean is large.
  for (const RuleOperand& b : {row, none})
    for (const RuleOperand& g : {row, none}) {
      all.push_back({"layer_norm_of_square_means",
                     &ops::layer_norm_op,
                     [](X x, Opt g, Opt b, A a) {
                       X m = mean(x, {-1});
                       X y = (x - m) * rsqrt(mean(square(x), {-1}) - square(m) + a.real("eps"));
                       if (g) y = y * g;
                       return b ? y + b : y;
                     },
                     {rows, g, b},
                     {int64_t{1}, kAny},
                     1,
                     "Ba et al. 2016"});
      all.back().approximate = true;
    }
  all.push_back(
      {"gelu_tanh_of_sigmoid",
       &ops::gelu_tanh_op,
       [](X x) { return x * x.builder->add1(ops::sigmoid_op, {1.59576912160573071176 * (x + 0.044715 * x * x * x)}); },
       {rows},
       {},
       2,
       "Hendrycks and Gimpel 2016"});
  all.push_back({"gelu_tanh_of_exponential",
                 &ops::gelu_tanh_op,
                 [](X x) { return x / (1.0 + exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x))); },
                 {rows},
                 {},
                 1,
                 "Hendrycks and Gimpel 2016"});
  all.push_back({"gelu_tanh_of_product",
                 &ops::gelu_tanh_op,
                 [](X x) { return 0.5 * x * (1.0 + tanh(x * (0.79788456080286535588 + 0.03567740813636141 * x * x))); },
                 {rows},
                 {},
                 1,
                 "Hendrycks and Gimpel 2016"});
  add_channel_norms(all);
  all.push_back({"gelu_tanh_of_sigmoid_of_product",
                 &ops::gelu_tanh_op,
                 [](X x) {
                   return x * x.builder->add1(ops::sigmoid_op,
                                              {x * (1.59576912160573071176 + 0.07135481627272282 * x * x)});
                 },
                 {rows},
                 {},
                 2,
                 "Hendrycks and Gimpel 2016"});
  // Of the sum of squares: rows of length 1, but for eps.
  for (const RuleOperand& g : {row, none})
    all.push_back({"rms_norm_of_length",
                   &ops::rms_norm_op,
                   [](X x, Opt g, A a) {
                     const X y = x * rsqrt(sum(square(x), {kLast}) + a.real("eps"));
                     return g ? y * g : y;
                   },
                   {rows, g},
                   {int64_t{1}, kAny},
                   1,
                   "sum(x^2) + eps = C (mean(x^2) + eps / C)",
                   [](X x, Opt g, A a) {
                     ir::Builder& b = *x.builder;
                     const Dim size = x.dim(kLast);
                     if (!size.is_const()) return X{&b, ir::kNoValue};
                     const auto count = static_cast<double>(size.value());
                     X gain = broadcast(reshape(b.scalar(x.dtype(), 1 / std::sqrt(count)), {1}), {size});
                     if (g) gain = reshape(g, {size}) * gain;
                     return b.add1(ops::rms_norm_op, {x, gain}, {a.integer("axes"), a.real("eps") / count});
                   }});
  for (const RuleOperand& g : {row, none})
    all.push_back({"rms_norm",
                   &ops::rms_norm_op,
                   ops::rms_norm_op.meaning,
                   {rows, g},
                   {int64_t{1}, kAny},
                   1,
                   ops::rms_norm_op.doc});
  for (const RuleOperand& b : {RuleOperand{true, {5}}, none})
    all.push_back({"linear",
                   &ops::linear_op,
                   ops::linear_op.meaning,
                   {{true, {3, 17}}, {true, {5, 17}, is_weight, "it is no constant"}, b},
                   {},
                   1,
                   ops::linear_op.doc});
  add_rope_rules(all);
  const RuleOperand q{true, {2, 3, 5, 11}}, k{true, {2, 3, 7, 11}}, v{true, {2, 3, 7, 13}};
  for (const RuleOperand& mask : {RuleOperand{true, {2, 3, 5, 7}, is_finite_mask, "it may hide a whole row"}, none})
    all.push_back({"attention_of_softmax",
                   &ops::attention_op,
                   [](X q, X k, X v, Opt mask, A a) {
                     X s = dot(q, k) * a.real("scale");
                     if (mask) s = s + mask;
                     return matmul(s.builder->add1(ops::softmax_op, {s}, {kLast}), v);
                   },
                   {q, k, v, mask},
                   {kAny, Shape(), 0.0, Shape(), -HUGE_VAL, int64_t{0}},
                   2,
                   "Vaswani et al. 2017"});
  for (const RuleOperand& mask : {RuleOperand{true, {2, 3, 5, 7}}, none})
    all.push_back({"attention",
                   &ops::attention_op,
                   ops::attention_op.meaning,
                   {q, k, v, mask},
                   {kAny, Shape(), 0.0, Shape(), -HUGE_VAL, int64_t{0}},
                   2,
                   ops::attention_op.doc});
  return all;
}

}  // namespace

std::span<const Rule> rules() {
  static const auto* const all = new std::vector<Rule>(make_rules());
  return *all;
}

}  // namespace tessera::passes
