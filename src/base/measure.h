// What this machine can do at most, measured: the two sides of the roofline.
#pragma once

#include "base/cpu.h"
#include "tessera/error.h"

namespace tessera {

// f32 multiply-adds from registers, in GFLOP/s (a multiply-add is two), on `threads` threads at once with the vectors
// of `isa`, which this CPU must run. Takes about a tenth of a second. E0503 when the threads cannot be had.
Result<double> measure_peak_gflops(Isa isa, int threads);

// Reading memory that no cache holds, in GB/s (1e9 bytes), on `threads` threads at once. Takes under a second, and
// memory: four times the last-level cache, at least 128 MiB, at most a quarter of what is available. E0503 when it
// cannot be had.
Result<double> measure_read_bandwidth(int threads);

}  // namespace tessera
