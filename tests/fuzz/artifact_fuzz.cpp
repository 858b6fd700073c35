// The artifact reader: whole files, and the plan behind the header, which a checksum would keep the fuzzer away from.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dispatch.h"
#include "plan/artifact.h"
#include "plan/instantiate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  (void)plan::read_artifact(bytes, nullptr);
  Result<plan::Artifact> artifact = plan::read_plan(bytes, {}, nullptr);
  if (!artifact) return 0;
  // What verifies can be instantiated: with no size known, all are late.
  Result<plan::Prepared> prepared = plan::prepare(artifact->plan, kernels::compiled_sets().front());
  if (!prepared) return 0;
  for (uint32_t i = 0; i < artifact->plan->routines.size(); ++i) {
    const plan::Routine& routine = artifact->plan->routines[i];
    for (std::optional<int64_t> value : {std::optional<int64_t>(), std::optional<int64_t>(3)}) {
      plan::Bindings symbols(routine.symbols.size(), value);
      plan::Sizes sizes(routine, symbols);
      (void)plan::failed_guard(routine, sizes);
      (void)plan::instantiate(*prepared, i, std::move(symbols), std::move(sizes));
    }
  }
  return 0;
}
