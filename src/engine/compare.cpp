#include "engine/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/strings.h"
#include "tensor/scalar.h"

namespace tessera::engine {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string position(const Dims& shape, int64_t index) {
  Dims at(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    at[axis] = index % shape[axis];
    index /= shape[axis];
  }
  return fmt::format("[{}]", joined(at, ", "));
}

std::vector<double> decoded(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.count()));
  decode_all(tensor.dtype(), tensor.data(), values);
  return values;
}

std::vector<Int128> decoded_ints(const Tensor& tensor) {
  std::vector<Int128> values(static_cast<size_t>(tensor.count()));
  decode_all(tensor.dtype(), tensor.data(), values);
  return values;
}

std::optional<std::string> type_difference(const Tensor& actual, const Tensor& expected) {
  if (actual.dtype() != expected.dtype())
    return fmt::format("the type is {}, expected {}", name(actual.dtype()), name(expected.dtype()));
  if (actual.shape() != expected.shape())
    return fmt::format("the shape is [{}], expected [{}]", joined(actual.shape(), ", "),
                       joined(expected.shape(), ", "));
  return std::nullopt;
}

// One line about the first of `wrong` elements out of all.
std::string elements_differ(const Tensor& tensor, int64_t wrong, int64_t first, const std::string& values) {
  return fmt::format("{} of {} elements differ, the worst at {}: {}", wrong, tensor.count(),
                     position(tensor.shape(), first), values);
}

std::optional<std::string> strings_differ(const Tensor& actual, const Tensor& expected) {
  for (int64_t i = 0; i < actual.count(); ++i) {
    const std::string& a = actual.strings()[static_cast<size_t>(i)];
    const std::string& b = expected.strings()[static_cast<size_t>(i)];
    if (a != b) return fmt::format("at {}: \"{}\", expected \"{}\"", position(actual.shape(), i), a, b);
  }
  return std::nullopt;
}

std::optional<std::string> ints_differ(const Tensor& actual, const Tensor& expected) {
  const std::vector<Int128> a = decoded_ints(actual), b = decoded_ints(expected);
  int64_t wrong = 0, first = -1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (wrong++ == 0) first = static_cast<int64_t>(i);
  }
  if (wrong == 0) return std::nullopt;
  auto text = [&](Int128 v) {
    return is_unsigned_int(actual.dtype()) ? fmt::format("{}", static_cast<uint64_t>(v))
                                           : fmt::format("{}", static_cast<int64_t>(v));
  };
  const size_t at = static_cast<size_t>(first);
  return elements_differ(actual, wrong, first, fmt::format("{}, expected {}", text(a[at]), text(b[at])));
}

std::optional<std::string> reals_differ(const Tensor& actual, const Tensor& expected, Tolerance tolerance) {
  const std::vector<double> a = decoded(actual), b = decoded(expected);
  // An element whose terms cancel carries the rounding of terms as large as the largest element: f32 results are
  // expected no closer than two units in that one's last place.
  if (actual.dtype() == DType::f32 && tolerance.absolute > 0) {
    double largest = 0;
    for (double v : b)
      if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
    tolerance.absolute = std::max(tolerance.absolute, 0x1p-22 * largest);
  }
  int64_t wrong = 0, worst = -1;
  double worst_excess = -1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double off = std::abs(a[i] - b[i]);
    const double allowed = std::isfinite(b[i]) ? tolerance.absolute + tolerance.relative * std::abs(b[i]) : 0;
    if (off <= allowed) continue;
    ++wrong;
    const double excess = std::isfinite(off) ? off - allowed : kInfinity;
    if (excess > worst_excess) worst_excess = excess, worst = static_cast<int64_t>(i);
  }
  if (wrong == 0) return std::nullopt;
  const size_t at = static_cast<size_t>(worst);
  return elements_differ(actual, wrong, worst, fmt::format("{:.9g}, expected {:.9g}", a[at], b[at]));
}

using TensorDifference = std::optional<std::string> (*)(const Tensor&, const Tensor&, ToleranceOf);

std::optional<std::string> elements_difference(const Tensor& actual, const Tensor& expected, ToleranceOf tolerance) {
  if (auto why = type_difference(actual, expected)) return why;
  if (actual.dtype() == DType::string) return strings_differ(actual, expected);
  if (is_float(actual.dtype())) return reals_differ(actual, expected, tolerance(actual.dtype()));
  return ints_differ(actual, expected);
}

std::optional<std::string> range_difference(const Tensor& actual, const Tensor& expected, ToleranceOf) {
  if (auto why = type_difference(actual, expected)) return why;
  if (actual.count() == 0 || actual.dtype() == DType::string) return std::nullopt;
  const std::vector<double> a = decoded(actual), b = decoded(expected);
  const auto [low, high] = std::minmax_element(b.begin(), b.end());
  const double width = *high - *low;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i] >= *low - width && a[i] <= *high + width))
      return fmt::format("at {}: {:.9g}, far outside the expected range [{:.9g}, {:.9g}]",
                         position(actual.shape(), static_cast<int64_t>(i)), a[i], *low, *high);
  return std::nullopt;
}

std::string_view kind_of(const Value& value) {
  return value.tensor() ? "a tensor" : value.sequence() ? "a sequence" : "an optional";
}

std::optional<std::string> values_differ(const Value& actual, const Value& expected, TensorDifference compare,
                                         ToleranceOf tolerance) {
  if (actual.held.index() != expected.held.index())
    return fmt::format("the value is {}, expected {}", kind_of(actual), kind_of(expected));
  if (actual.tensor()) return compare(*actual.tensor(), *expected.tensor(), tolerance);
  if (actual.sequence()) {
    const auto& a = actual.sequence()->items;
    const auto& b = expected.sequence()->items;
    if (a.size() != b.size()) return fmt::format("the sequence has {} items, expected {}", a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      if (auto why = values_differ(a[i], b[i], compare, tolerance)) return fmt::format("item {}: {}", i, *why);
    return std::nullopt;
  }
  const auto& a = actual.optional()->value;
  const auto& b = expected.optional()->value;
  if ((a == nullptr) != (b == nullptr))
    return fmt::format("the optional is {}, expected {}", a ? "present" : "absent", b ? "present" : "absent");
  return a ? values_differ(*a, *b, compare, tolerance) : std::nullopt;
}

}  // namespace

Tolerance conformance_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {1e-7, 1e-12};
    case DType::f32:
      return {1e-3, 1e-7};
    case DType::f16:
      return {0x1p-9, 0x1p-12};  // two units in the last place
    case DType::bf16:
      return {0x1p-6, 0x1p-9};
    default:
      return {0, 0};
  }
}

Distance distance(const Tensor& actual, const Tensor& expected, bool nan_is_any) {
  const std::vector<double> a = decoded(actual), b = decoded(expected);
  Distance result;
  double dot = 0, norm_a = 0, norm_b = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(b[i])) largest = std::max(largest, std::abs(b[i]));
    if (std::isfinite(a[i]) && std::isfinite(b[i])) dot += a[i] * b[i], norm_a += a[i] * a[i], norm_b += b[i] * b[i];
    if (a[i] == b[i] || (std::isnan(b[i]) && (nan_is_any || std::isnan(a[i])))) continue;
    double off = std::abs(a[i] - b[i]);
    if (!std::isfinite(off)) off = kInfinity;
    if (off > result.max_abs) result = {off, 0, 1, static_cast<int64_t>(i), a[i], b[i]};
  }
  if (result.max_abs > 0) result.relative = largest > 0 ? result.max_abs / largest : kInfinity;
  if (norm_a > 0 && norm_b > 0) result.cosine = dot / std::sqrt(norm_a * norm_b);
  return result;
}

std::optional<std::string> difference(const Value& actual, const Value& expected, ToleranceOf tolerance) {
  return values_differ(actual, expected, elements_difference, tolerance);
}

std::optional<std::string> difference_of_random(const Value& actual, const Value& expected) {
  return values_differ(actual, expected, range_difference, conformance_tolerance);
}

}  // namespace tessera::engine
