#include "engine/verify.h"

#include <fmt/format.h>

#include <cmath>

#include "base/result.h"

namespace tessera::engine {
namespace {

// The same relative error for every tolerance of difference(): sequences and optionals have no other measure.
Tolerance nested_tolerance(DType dtype) { return {verify_tolerance(dtype), verify_tolerance(dtype)}; }

OutputVerdict judge(const NamedValue& actual, const NamedValue& expected, double tolerance) {
  OutputVerdict verdict{actual.name, false, 0, std::nullopt, ""};
  const Tensor* a = actual.value.tensor();
  const Tensor* b = expected.value.tensor();
  const bool comparable = a != nullptr && b != nullptr && a->dtype() == b->dtype() && a->shape() == b->shape() &&
                          a->dtype() != DType::string;
  if (!comparable) {
    const auto why = difference(actual.value, expected.value, nested_tolerance);
    verdict.ok = !why;
    verdict.why = why.value_or("");
    return verdict;
  }
  verdict.tolerance = is_float(a->dtype()) && tolerance > 0 ? tolerance : verify_tolerance(a->dtype());
  verdict.distance = distance(*a, *b);
  verdict.ok = verdict.distance->relative <= verdict.tolerance;
  if (!verdict.ok)
    verdict.why = fmt::format("element {} is {:.9g}, the reference {:.9g}: relative error {:.3g}, allowed {:.3g}",
                              verdict.distance->index, verdict.distance->actual, verdict.distance->expected,
                              verdict.distance->relative, verdict.tolerance);
  return verdict;
}

// How much of its tolerance an output uses.
double use_of(const OutputVerdict& verdict) {
  if (!verdict.distance) return verdict.ok ? 0 : HUGE_VAL;
  if (verdict.distance->relative == 0) return 0;
  return verdict.tolerance > 0 ? verdict.distance->relative / verdict.tolerance : HUGE_VAL;
}

}  // namespace

double verify_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-10;
    case DType::f32:
      return 1e-4;
    case DType::f16:
      return 1e-2;
    case DType::bf16:
      return 5e-2;
    default:
      return is_float(dtype) ? 0.25 : 0;  // one unit of the coarsest 8-bit type
  }
}

const OutputVerdict* Verdict::worst() const {
  const OutputVerdict* worst = nullptr;
  for (const OutputVerdict& output : outputs)
    if (worst == nullptr || use_of(output) > use_of(*worst)) worst = &output;
  return worst;
}

Result<Verdict> verify(const Model& model, SessionOptions options, std::span<const NamedValue> inputs, double tolerance,
                       const std::atomic<bool>* stop) {
  options.reference = false;
  TESSERA_ASSIGN(const Session optimised, Session::create(model, options));
  TESSERA_ASSIGN(const std::vector<NamedValue> actual, optimised.run(inputs, {.stop = stop}));
  options.reference = true;
  TESSERA_ASSIGN(const Session reference, Session::create(model, options));
  TESSERA_ASSIGN(const std::vector<NamedValue> expected, reference.run(inputs, {.stop = stop}));
  Verdict verdict;
  for (size_t i = 0; i < actual.size(); ++i) {
    verdict.outputs.push_back(judge(actual[i], expected[i], tolerance));
    verdict.ok &= verdict.outputs.back().ok;
  }
  return verdict;
}

}  // namespace tessera::engine
