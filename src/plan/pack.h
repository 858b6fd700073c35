// Constants laid out as their kernels read them, once, before a plan runs.
#pragma once

#include <cstddef>
#include <functional>

#include "kernels/dispatch.h"
#include "plan/plan.h"
#include "plan/prepare.h"
#include "plan/sizes.h"
#include "tessera/error.h"

namespace tessera::plan {

struct PackOptions {
  const kernels::Parallel* parallel = nullptr;  // null: one thread
  // Told of each constant that nothing reads any more: its pages may be given back.
  std::function<void(const void* data, size_t bytes)> release_source = {};
};

// Replaces every operand that its kernel takes packed by its packed form, for the kernels of `kernels`. Operands that
// are the same elements for the same kernel share one. Constants that only they read leave the plan as soon as their
// last reader has been packed, so that a model is never twice in memory. A plan that is packed already stays as it is.
// E0503 when there is no memory, E0603 when the set lacks a kernel.
Status pack_constants(Plan& plan, const kernels::KernelSet& kernels, const PackOptions& options = {});

// Bytes that operand `index` of the step must have when packed; `sizes` are those known without a run. E0603 when the
// kernel packs no such operand, or when its shape depends on a run.
Result<size_t> packed_bytes(const Routine& routine, const Step& step, size_t index, const kernels::KernelEntry& entry,
                            const Sizes& sizes);

}  // namespace tessera::plan
