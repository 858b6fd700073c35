// rotary: rows of x turned by tables of cosines and sines.
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/loops.h"
#include "kernels/isa/vec.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kRotaryGrain = 4096;  // elements that a thread takes at least

// y [r] = x cos + rotated(x) sin, the second half negated before the first.
void rotary_halves(const float* x, const float* c, const float* s, float* y, int64_t r) {
  const int64_t half = r / 2;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Vec a = load(x + i), b = load(x + half + i);
    store(y + i, a * load(c + i) - b * load(s + i));
    store(y + half + i, b * load(c + half + i) + a * load(s + half + i));
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    y[i] = a * c[i] - b * s[i];
    y[half + i] = b * c[half + i] + a * s[half + i];
  }
}

void rotary_pairs(const float* x, const float* c, const float* s, float* y, int64_t r) {
  for (int64_t i = 0; i < r; i += 2) {
    const float a = x[i], b = x[i + 1];
    y[i] = a * c[i] - b * s[i];
    y[i + 1] = b * c[i + 1] + a * s[i + 1];
  }
}

// The last axis of every operand is contiguous; the tables may be narrower than x.
int rotary(const Args& args) noexcept {
  const View& x = args.in[0];
  const View& y = args.out[0];
  const int64_t d = x.shape[x.rank - 1], r = args.in[1].shape[args.in[1].rank - 1];
  View leads[3] = {x, args.in[1], args.in[2]};
  for (View& lead : leads) --lead.rank;
  const View* const views[3] = {&leads[0], &leads[1], &leads[2]};
  const Walk<3> walk = make_walk<3>(x.rank - 1, x.shape, views);
  int64_t rows = 1;
  for (int a = 0; a + 1 < x.rank; ++a) rows *= x.shape[a];
  const bool interleaved = args.attrs[0].i != 0;
  parallel_for(args.parallel, d == 0 ? 0 : rows, 1 + kRotaryGrain / (d + 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t at[3];
      walk_offsets(walk, walk.rank, row, at);
      const float* from = static_cast<const float*>(x.data) + at[0];
      float* to = static_cast<float*>(y.data) + row * d;
      (interleaved ? rotary_pairs : rotary_halves)(from, static_cast<const float*>(args.in[1].data) + at[1],
                                                   static_cast<const float*>(args.in[2].data) + at[2], to, r);
      if (r < d) memcpy(to + r, from + r, static_cast<size_t>(d - r) * 4);
    }
  });
  return kDone;
}

}  // namespace

TESSERA_FAMILY(rotary, {"rotary_f32", rotary, nullptr})
