// A plan that has been verified and bound to the kernels of one instruction set. Immutable: any number of runs share
// it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/dispatch.h"
#include "plan/kernel_desc.h"
#include "plan/plan.h"
#include "tessera/error.h"

namespace tessera::plan {

// Which value's memory each value lies in, and the steps during which that memory is needed. Does not depend on sizes.
struct Lifetimes {
  std::vector<ValueId> owner;   // by value: itself unless it is a view or a successor
  std::vector<uint32_t> first;  // by owner: the step that makes it; 0 for inputs and constants
  std::vector<uint32_t> last;   // by owner: the last step that reads it; the number of steps for outputs
  // Boxed and buffer values that nothing needs after step s: dead[dead_after[s] .. dead_after[s + 1]).
  std::vector<ValueId> dead;
  std::vector<uint32_t> dead_after;
};

struct BoundKernel {
  const KernelRule* rule = nullptr;  // null for steps that are no kernels
  const kernels::KernelEntry* entry = nullptr;
};

struct PreparedRoutine {
  Lifetimes lifetimes;
  std::vector<BoundKernel> kernels;                    // by step
  std::vector<std::vector<uint32_t>> symbols_of_step;  // those that become known when the step is done
  std::vector<uint32_t> symbols_of_inputs;             // those known at the start, outer ones too
};

struct Prepared {
  std::shared_ptr<const Plan> plan;
  const kernels::KernelSet* kernels = nullptr;
  std::vector<PreparedRoutine> routines;
  bool reuse_memory = true;  // else each buffer has memory of its own
};

// The line of the kernel table that a kernel step names; null when none fits.
const KernelRule* rule_of(const Plan& plan, const Routine& routine, const Step& step);

// Verifies and binds. E0603 when the plan does not verify or the set lacks a kernel, E0604 when its constants
// are packed for another instruction set.
Result<Prepared> prepare(std::shared_ptr<const Plan> plan, const kernels::KernelSet& kernels);

// Lifetimes and rules without kernels, to see what memory a plan takes. It comes straight from the compiler: it is not
// verified, and its constants may still have to be packed. It cannot run.
Prepared outline(std::shared_ptr<const Plan> plan);

}  // namespace tessera::plan
