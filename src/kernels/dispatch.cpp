#include "kernels/dispatch.h"

#include <algorithm>

#include "base/result.h"
#include "kernels/table.h"

extern "C" {
#define TESSERA_FAMILY_TABLE(family, isa) extern const tessera::kernels::FamilyTable tessera_##family##_##isa;
#include "kernels/families.inc"
#undef TESSERA_FAMILY_TABLE
}

namespace tessera::kernels {
namespace {

struct CompiledTable {
  std::string_view isa;
  const FamilyTable* table;
};
constexpr CompiledTable kTables[] = {
#define TESSERA_FAMILY_TABLE(family, isa) {#isa, &tessera_##family##_##isa},
#include "kernels/families.inc"
#undef TESSERA_FAMILY_TABLE
};

constexpr KernelDesc kDescs[] = {
#define TESSERA_KERNEL(family, op, kernel, types, layouts, in_place) {#family, op, kernel, types, layouts, in_place},
#include "kernels/table.def"
#undef TESSERA_KERNEL
};

bool by_name(const KernelEntry* a, std::string_view b) { return std::string_view(a->name) < b; }

bool runs(std::string_view isa) {
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (isa == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == "avx512") return avx512;
  if (isa == "avx512_bf16") return avx512 && __builtin_cpu_supports("avx512bf16");
#endif
  return isa == "baseline" || isa == "neon";
}

}  // namespace

struct Registry {
  std::vector<KernelSet> sets;
  Registry() {
    for (const CompiledTable& compiled : kTables) {
      TESSERA_CHECK(compiled.isa == compiled.table->isa);
      if (sets.empty() || sets.back().isa() != compiled.isa) sets.emplace_back().isa_ = compiled.isa;
      for (int i = 0; i < compiled.table->count; ++i) sets.back().kernels_.push_back(&compiled.table->entries[i]);
    }
    for (KernelSet& set : sets)
      std::sort(set.kernels_.begin(), set.kernels_.end(),
                [](const KernelEntry* a, const KernelEntry* b) { return by_name(a, b->name); });
  }
};

std::span<const KernelDesc> kernel_table() { return kDescs; }

const KernelEntry* KernelSet::find(std::string_view kernel) const {
  auto at = std::lower_bound(kernels_.begin(), kernels_.end(), kernel, by_name);
  return at != kernels_.end() && (*at)->name == kernel ? *at : nullptr;
}

std::span<const KernelSet> compiled_sets() {
  static const Registry registry;
  return registry.sets;
}

const KernelSet* set_for(std::string_view isa) {
  for (const KernelSet& set : compiled_sets())
    if (set.isa() == isa) return &set;
  return nullptr;
}

std::vector<const KernelSet*> runnable_sets() {
  std::vector<const KernelSet*> sets;
  for (const KernelSet& set : compiled_sets())
    if (runs(set.isa())) sets.push_back(&set);
  return sets;
}

}  // namespace tessera::kernels
