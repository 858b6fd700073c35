#include "ops/reference.h"

#include <fmt/format.h>

#include "base/strings.h"

namespace tessera::ops {

Result<Dims> broadcast(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims shape = longer;
  size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& size = shape[lead + i];
    if (size == shorter[i] || shorter[i] == 1) continue;
    if (size != 1)
      return fail(Code::shape_mismatch, "[{}] and [{}] do not broadcast", joined(a, ", "), joined(b, ", "));
    size = shorter[i];
  }
  TESSERA_TRY(ir::array_count(shape));
  return shape;
}

}  // namespace tessera::ops
