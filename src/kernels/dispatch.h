// Finds kernels by name in the instruction sets that this build compiled.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/abi.h"
#include "tessera/error.h"

namespace tessera::kernels {

// The kernels of one instruction set. Immutable; made once a process.
class KernelSet {
 public:
  // What the tables say that their objects were compiled for: "avx2".
  std::string_view isa() const { return isa_; }
  // nullptr when there is none of this name.
  const KernelEntry* find(std::string_view kernel) const;
  std::span<const KernelEntry* const> kernels() const { return kernels_; }

 private:
  friend struct Registry;
  std::string_view isa_;
  std::vector<const KernelEntry*> kernels_;  // by name
};

// Those that this build compiled, narrowest first; this CPU need not run them all.
std::span<const KernelSet> compiled_sets();
// nullptr when this build lacks it.
const KernelSet* set_for(std::string_view isa);
// Those of them that this CPU runs, narrowest first: tests compare them with each other.
std::vector<const KernelSet*> runnable_sets();
// The one that TESSERA_ISA names, else the last of runnable_sets(). E0802 when the one named is not among them.
Result<const KernelSet*> chosen_set();

}  // namespace tessera::kernels
