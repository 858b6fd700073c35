#include "kernels/dispatch.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>

#include "base/cpu.h"
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
  std::string_view family;
  std::string_view isa;
  const FamilyTable* table;
};
constexpr CompiledTable kTables[] = {
#define TESSERA_FAMILY_TABLE(family, isa) {#family, #isa, &tessera_##family##_##isa},
#include "kernels/families.inc"
#undef TESSERA_FAMILY_TABLE
};

constexpr KernelDesc kDescs[] = {
#define TESSERA_KERNEL(family, op, kernel, types, layouts, in_place) {#family, op, kernel, types, layouts, in_place},
#include "kernels/table.def"
#undef TESSERA_KERNEL
};

bool by_name(const KernelEntry* a, std::string_view b) { return std::string_view(a->name) < b; }

}  // namespace

struct Registry {
  std::vector<KernelSet> sets;
  Registry() {
    // A family that is not compiled for a set is the same there as in the set before it.
    std::map<std::string_view, const FamilyTable*> families;
    for (size_t i = 0; i < std::size(kTables); ++i) {
      const CompiledTable& compiled = kTables[i];
      TESSERA_CHECK(compiled.isa == compiled.table->isa);
      families[compiled.family] = compiled.table;
      if (i + 1 < std::size(kTables) && kTables[i + 1].isa == compiled.isa) continue;
      KernelSet& set = sets.emplace_back();
      set.isa_ = compiled.isa;
      for (const auto& [family, table] : families)
        for (int k = 0; k < table->count; ++k) set.kernels_.push_back(&table->entries[k]);
      std::sort(set.kernels_.begin(), set.kernels_.end(),
                [](const KernelEntry* a, const KernelEntry* b) { return by_name(a, b->name); });
    }
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
  for (Isa isa : available_isas())
    if (const KernelSet* set = set_for(name(isa))) sets.push_back(set);
  return sets;
}

Result<const KernelSet*> chosen_set() {
  TESSERA_ASSIGN(const Isa chosen, chosen_isa());
  if (const KernelSet* set = set_for(name(chosen))) return set;
  const std::vector<const KernelSet*> sets = runnable_sets();
  const char* forced = std::getenv("TESSERA_ISA");
  if (sets.empty() || (forced != nullptr && *forced != '\0'))
    return fail(Code::isa_unavailable, "this build has no kernels for the instruction set {}", name(chosen));
  return sets.back();
}

}  // namespace tessera::kernels
