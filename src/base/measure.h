// What this machine can do at most, measured: the two sides of the roofline.
#pragma once

#include "base/cpu.h"
#include "tessera/error.h"

namespace tessera {

// f32 multiply-adds from registers, in GFLOP/s (a multiply-add is two), on `threads` threads at once with the vectors
// of `isa`, which this CPU must run. Takes about a tenth of a second. E0503 when the threads cannot be had.
Result<double> measure_peak_gflops(Isa isa, int threads);

// The same of multiply-adds of 8-bit integers to 32-bit sums (vpdpbusd, else a product of pairs and an addition), or of
// pairs of bf16 to f32 sums (vdpbf16ps, else as f32), in GOP/s.
enum class Arithmetic { f32, bf16, int8 };
Result<double> measure_peak_gops(Isa isa, Arithmetic arithmetic, int threads);

// Reading memory that no cache holds, in GB/s (1e9 bytes), on `threads` threads at once, each of which reads `streams`
// places at the same time. Takes under a second, and memory: four times the last-level cache, at least 128 MiB, at most
// a quarter of what is available. E0503 when it cannot be had.
Result<double> measure_read_bandwidth(int threads, int streams = 1);

// Copying such memory with ordinary stores, likewise; bytes read and bytes written both count.
Result<double> measure_copy_bandwidth(int threads);

}  // namespace tessera
