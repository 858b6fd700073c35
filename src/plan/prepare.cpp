#include "plan/prepare.h"

#include <algorithm>
#include <optional>

#include "base/result.h"
#include "plan/pack.h"
#include "plan/sizes.h"
#include "plan/verify.h"

namespace tessera::plan {
namespace {

Lifetimes lifetimes_of(const Routine& r) {
  const auto n = static_cast<uint32_t>(r.values.size());
  const auto end = static_cast<uint32_t>(r.steps.size());
  Lifetimes l;
  l.owner.resize(n);
  l.first.assign(n, 0);
  l.last.assign(n, 0);
  for (ValueId v = 0; v < n; ++v) {
    const Storage storage = r.values[v].storage;
    // Bases come before what lies on them.
    l.owner[v] = storage == Storage::view || storage == Storage::successor ? l.owner[r.values[v].base] : v;
  }
  for (uint32_t s = 0; s < end; ++s) {
    for (ValueId v : r.results(r.steps[s])) {
      if (v == kNone) continue;
      if (l.owner[v] == v) l.first[v] = s;
      l.last[l.owner[v]] = s;
    }
    for (ValueId v : r.operands(r.steps[s]))
      if (v != kNone) l.last[l.owner[v]] = s;
  }
  for (ValueId v : r.outputs) l.last[l.owner[v]] = end;
  std::vector<uint32_t> count(end + 1, 0);
  auto dies = [&](ValueId v) {
    const Storage storage = r.values[v].storage;
    return (storage == Storage::boxed || storage == Storage::buffer) && l.last[v] < end;
  };
  for (ValueId v = 0; v < n; ++v)
    if (dies(v)) ++count[l.last[v] + 1];
  for (uint32_t s = 0; s < end; ++s) count[s + 1] += count[s];
  l.dead_after = count;
  l.dead.resize(count[end]);
  for (ValueId v = 0; v < n; ++v)
    if (dies(v)) l.dead[count[l.last[v]]++] = v;
  return l;
}

// Kernels trust that packed constants have the bytes that they would have written themselves.
Status check_packed(const Plan& plan, const Routine& r, const Step& step, const BoundKernel& kernel,
                    std::optional<Sizes>& sizes) {
  const auto operands = r.operands(step);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] == kNone || !r.values[operands[i]].packed) continue;
    if (!sizes) sizes.emplace(r, Bindings(r.symbols.size()));
    TESSERA_ASSIGN(const size_t bytes, packed_bytes(r, step, i, *kernel.entry, *sizes));
    const Tensor& constant = plan.constants[r.values[operands[i]].index];
    if (constant.bytes() != bytes)
      return fail(Code::plan_invalid, "{}: operand {} is packed in {} bytes, the kernel '{}' wants {}",
                  describe(plan, step), i, constant.bytes(), kernel.entry->name, bytes);
  }
  return {};
}

}  // namespace

const KernelRule* rule_of(const Plan& plan, const Routine& r, const Step& step) {
  auto types_of = [&](std::span<const ValueId> values) {
    std::vector<std::optional<DType>> types;
    for (ValueId v : values) types.push_back(v == kNone ? std::nullopt : std::optional(r.values[v].dtype));
    return types;
  };
  const KernelRef& ref = plan.kernels[step.op];
  return find_rule(ref.op, ref.kernel, types_of(r.operands(step)), types_of(r.results(step)));
}

Result<Prepared> prepare(std::shared_ptr<const Plan> plan, const kernels::KernelSet& kernels) {
  TESSERA_TRY(verify(*plan));
  if (!plan->isa.empty() && plan->isa != kernels.isa())
    return fail(Code::artifact_isa, "the model was compiled for {} kernels, but {} kernels are to run it", plan->isa,
                kernels.isa());
  Prepared prepared;
  for (const Routine& r : plan->routines) {
    PreparedRoutine& p = prepared.routines.emplace_back();
    p.lifetimes = lifetimes_of(r);
    p.kernels.resize(r.steps.size());
    p.symbols_of_step.resize(r.steps.size());
    std::optional<Sizes> sizes;                             // those known without a run
    std::vector<uint32_t> made_by(r.values.size(), kNone);  // step; kNone: there from the start
    for (uint32_t s = 0; s < r.steps.size(); ++s) {
      const Step& step = r.steps[s];
      for (ValueId v : r.results(step))
        if (v != kNone) made_by[v] = s;
      if (step.kind != StepKind::kernel) continue;
      const KernelRef& ref = plan->kernels[step.op];
      p.kernels[s].rule = rule_of(*plan, r, step);
      p.kernels[s].entry = kernels.find(ref.kernel);
      if (p.kernels[s].entry == nullptr)
        return fail(Code::plan_invalid, "the kernel '{}' of {} is not in this build's {} kernels", ref.kernel,
                    describe(*plan, step), kernels.isa());
      TESSERA_TRY(check_packed(*plan, r, step, p.kernels[s], sizes));
    }
    for (uint32_t i = 0; i < r.symbols.size(); ++i) {
      const Symbol& symbol = r.symbols[i];
      const uint32_t step = symbol.source == Symbol::Source::outer ? kNone : made_by[p.lifetimes.owner[symbol.value]];
      (step == kNone ? p.symbols_of_inputs : p.symbols_of_step[step]).push_back(i);
    }
  }
  prepared.plan = std::move(plan);
  prepared.kernels = &kernels;
  return prepared;
}

Prepared outline(std::shared_ptr<const Plan> plan) {
  Prepared prepared;
  for (const Routine& r : plan->routines) {
    PreparedRoutine& p = prepared.routines.emplace_back();
    p.lifetimes = lifetimes_of(r);
    p.kernels.resize(r.steps.size());
    for (uint32_t s = 0; s < r.steps.size(); ++s)
      if (r.steps[s].kind == StepKind::kernel) p.kernels[s].rule = rule_of(*plan, r, r.steps[s]);
  }
  prepared.plan = std::move(plan);
  return prepared;
}

}  // namespace tessera::plan
