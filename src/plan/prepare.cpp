#include "plan/prepare.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "base/fault.h"
#include "base/result.h"
#include "plan/pack.h"
#include "plan/sizes.h"
#include "plan/verify.h"
#include "tensor/scalar.h"

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

// A kernel with a planted fault: the last element of its first result is wrong. Kernels are plain functions, so there
// is one at a time.
std::atomic<kernels::Fn> sound = nullptr;

int spoiled(const kernels::Args& args) noexcept {
  const int done = sound.load()(args);
  if (done != kernels::kDone || args.n_out == 0) return done;
  const kernels::View& view = args.out[0];
  const auto dtype = static_cast<DType>(view.type);
  int64_t count = 1;
  for (int axis = 0; axis < view.rank; ++axis) count *= view.shape[axis];
  if (count == 0 || dtype == DType::string || is_block(dtype)) return done;
  const double value = decode(dtype, view.data, count - 1);
  encode(dtype, view.data, count - 1, dtype == DType::boolean ? 1 - value : value * 1.25 + 1);
  return done;
}

// The entry that is called for `entry`.
const kernels::KernelEntry* entry_to_call(const kernels::KernelEntry* entry, const std::optional<PlantedFault>& fault) {
  if (!fault || fault->where != PlantedFault::Where::kernel || fault->name != entry->name) return entry;
  static kernels::KernelEntry with_fault = {};
  sound = entry->fn;
  with_fault = *entry;
  with_fault.fn = spoiled;
  return &with_fault;
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
  TESSERA_ASSIGN(const std::optional<PlantedFault> fault, planted_fault());
  if (fault && fault->where == PlantedFault::Where::kernel && kernels.find(fault->name) == nullptr)
    return fail(Code::usage, "there is no kernel '{}' to plant a fault in", fault->name);
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
      p.kernels[s].entry = entry_to_call(p.kernels[s].entry, fault);
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
