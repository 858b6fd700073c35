// What products with quantized weights agree on.
#pragma once

#include <cstdint>

namespace tessera::ops {

// Up to so many rows compiled models round x a second time (`fine` of quant_linear): it costs nothing there, as reading
// the weights takes longer.
constexpr int64_t kFineRows = 16;

}  // namespace tessera::ops
