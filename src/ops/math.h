// Formulas over X: what meanings and importers are written in. Each function adds nodes to its operand's builder.
// Axes count from the end when negative. Binary functions broadcast; a number takes the other side's type.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "ir/builder.h"
#include "ir/core_ops.h"
#include "ops/ops.h"

// In the namespace of X, so that formulas find them without a prefix.
namespace tessera::ir {

// Arithmetic.
X operator+(X a, X b);
X operator-(X a, X b);
X operator*(X a, X b);
X operator/(X a, X b);
X operator-(X a);
X operator+(X a, double b);
X operator-(X a, double b);
X operator*(X a, double b);
X operator/(X a, double b);
X operator+(double a, X b);
X operator-(double a, X b);
X operator*(double a, X b);
X operator/(double a, X b);
X like(X x, double value);  // the number as a scalar of x's type

X abs(X x);
X exp(X x);
X log(X x);
X sqrt(X x);
X ceil(X x);
X rsqrt(X x);
X tanh(X x);
X erf(X x);
X floor(X x);
X square(X x);
X min(X a, X b);
X max(X a, X b);
X mod(X a, X b);
X pow(X a, X b);

// Logic and comparison: bool results.
X equal(X a, X b);
X less(X a, X b);
X less_equal(X a, X b);
X logical_not(X x);
X logical_and(X a, X b);
X logical_or(X a, X b);
X select(X condition, X a, X b);

X cast(X x, DType to);
// Weights as f32, however they are stored: decoded where in blocks, else cast.
X decoded(X weights);

// Reductions; the axes stay with size 1.
using Axes = std::vector<int64_t>;
X sum(X x, Axes axes);
X mean(X x, Axes axes);
X reduce_max(X x, Axes axes);
X reduce_min(X x, Axes axes);

// y[..., m, n] = sum over k of a[..., m, k] b[..., n, k].
X dot(X a, X b);
// numpy matmul for operands of rank 2 and more.
X matmul(X a, X b);

// Structure.
X transpose(X x, std::vector<int> permutation);
X swap_axes(X x, int a, int b);
X reshape(X x, Shape shape);                   // row-major, counts must agree
X broadcast(X x, Shape shape);                 // numpy, to exactly this shape
X unsqueeze(X x, std::vector<int> positions);  // axes of size 1 at these positions of the result
X squeeze(X x, std::vector<int> axes);
X slice(X x, int axis, Dim start, Dim size, Dim step = 1);
X concat(Xs xs, int axis);
X pad(X x, Shape low, Shape high, X value = {});
X gather(X x, X index, int axis);
X iota(Builder& builder, Shape shape, int axis, DType dtype);

}  // namespace tessera::ir
