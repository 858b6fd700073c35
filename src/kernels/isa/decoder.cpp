// append: rows into a state's pages, and rope in f32.
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/half.h"
#include "kernels/isa/loops.h"
#include "kernels/isa/vec.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kGrain = 4096;  // elements that a thread takes at least

// Elements [begin, begin + n) of `from`, which are codes for a state of codes and else f32.
void write_row(const void* from, int64_t begin, void* to, int64_t at, int64_t n, uint8_t type) {
  const float* x = static_cast<const float*>(from) + begin;
  if (type == kF32) {
    memcpy(static_cast<float*>(to) + at, x, static_cast<size_t>(n) * 4);
  } else if (type == kI8) {
    memcpy(static_cast<int8_t*>(to) + at, static_cast<const int8_t*>(from) + begin, static_cast<size_t>(n));
  } else if (type == kF16) {
    f32_block_to_f16(x, static_cast<uint16_t*>(to) + at, n);
  } else {
    f32_block_to_bf16(x, static_cast<uint16_t*>(to) + at, n);
  }
}

// state [P, G, R, D], rows [N, G, D] with any strides but along the last axis, slots [N].
int append(const Args& args) noexcept {
  const View &state = args.in[0], &rows = args.in[1];
  const int64_t* slots = static_cast<const int64_t*>(args.in[2].data);
  const int64_t count = rows.shape[0], groups = state.shape[1], page = state.shape[2], width = state.shape[3];
  for (int64_t i = 0; i < count; ++i)
    if (slots[i] < 0 || slots[i] >= state.shape[0] * page) return kIndexOutOfRange;
  if (count * groups * width == 0) return kDone;
  parallel_for(args.parallel, count, 1 + kGrain / (groups * width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t g = 0; g < groups; ++g)
        write_row(rows.data, i * rows.stride[0] + g * rows.stride[1], args.out[0].data,
                  ((slots[i] / page * groups + g) * page + slots[i] % page) * width, width, state.type);
  });
  return kDone;
}

// x [N, H, D] with rows along D, cos and sin [N, R].
int rope(const Args& args) noexcept {
  const View& x = args.in[0];
  const int64_t tokens = x.shape[0], heads = x.shape[1], width = x.shape[2], pairs = args.in[1].shape[1];
  const float* cosines = static_cast<const float*>(args.in[1].data);
  const float* sines = static_cast<const float*>(args.in[2].data);
  const bool interleaved = args.attrs[0].i != 0;
  parallel_for(args.parallel, tokens, 1 + kGrain / (heads * width + 1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* c = cosines + t * pairs;
      const float* s = sines + t * pairs;
      for (int64_t h = 0; h < heads; ++h) {
        const float* from = static_cast<const float*>(x.data) + t * x.stride[0] + h * x.stride[1];
        float* to = static_cast<float*>(args.out[0].data) + (t * heads + h) * width;
        if (interleaved)
          for (int64_t i = 0; i < pairs; ++i) {
            const float a = from[2 * i], b = from[2 * i + 1];
            to[2 * i] = a * c[i] - b * s[i];
            to[2 * i + 1] = b * c[i] + a * s[i];
          }
        else
          for (int64_t i = 0; i < pairs; ++i) {
            const float a = from[i], b = from[i + pairs];
            to[i] = a * c[i] - b * s[i];
            to[i + pairs] = b * c[i] + a * s[i];
          }
        for (int64_t i = 2 * pairs; i < width; ++i) to[i] = from[i];
      }
    }
  });
  return kDone;
}

}  // namespace

TESSERA_FAMILY(decoder, {"append", append, nullptr}, {"rope_f32", rope, nullptr})
