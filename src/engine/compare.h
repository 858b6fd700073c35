// Whether two values are the same, up to rounding.
#pragma once

#include <optional>
#include <string>

#include "tessera/tensor.h"

namespace tessera::engine {

// |actual - expected| <= absolute + relative * |expected|, element by element; NaN equals NaN, and infinities only
// themselves. Both 0: the elements must be equal. In f32, where the terms of a sum cancel, as much is allowed as the
// last places of the largest element.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

// What ONNX's own runner allows (rtol 1e-3, atol 1e-7) where the type can hold that much; a little more than the last
// bits of narrower types; nothing for integers, booleans and strings, nor for the types of fewer than 16 bits, whose
// values are only ever made by one rounding.
Tolerance conformance_tolerance(DType dtype);

// How far apart two tensors of one shape are.
struct Distance {
  double max_abs = 0;   // infinite where a NaN or an infinity meets anything else
  double relative = 0;  // max_abs / max|expected|, 0 when they are equal
  double cosine = 1;    // of the angle between them, over the elements that are finite in both
  int64_t index = -1;   // row-major, of the element that is furthest off; -1 when all are equal
  double actual = 0;    // that element
  double expected = 0;
};
// `nan_is_any`: where a NaN is expected, a number will do.
Distance distance(const Tensor& actual, const Tensor& expected, bool nan_is_any = false);

// Nothing when the values agree in kind, type, shape and, up to `tolerance` of their type, in every element; else one
// line that says where they do not. Sequences and optionals are compared item by item.
using ToleranceOf = Tolerance (*)(DType);
std::optional<std::string> difference(const Value& actual, const Value& expected,
                                      ToleranceOf tolerance = conformance_tolerance);

// As difference(), but of the elements only that they are in the range of those expected, widened by its own width:
// for values made by random generators.
std::optional<std::string> difference_of_random(const Value& actual, const Value& expected);

}  // namespace tessera::engine
