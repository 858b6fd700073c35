// Places buffers in one arena so that no two that live at the same time overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::plan {

// Lives during the steps [first, last].
struct Interval {
  uint32_t first;
  uint32_t last;
  size_t bytes;
};

struct Colouring {
  std::vector<size_t> offsets;  // multiples of the alignment, one an interval
  size_t total = 0;             // bytes of the arena
};

// The best of several greedy orders; sizes are rounded up to `alignment`, a power of two. The sum of all sizes must not
// overflow. Deterministic.
Colouring colour(std::span<const Interval> intervals, size_t alignment);

// The largest sum of bytes that live in one step: no arena can be smaller.
size_t live_set_bound(std::span<const Interval> intervals);

}  // namespace tessera::plan
