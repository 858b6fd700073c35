// What a tile program is made of, as kernels see it: four numbers a step, an operator and up to three values. The first
// values are those that the program starts from; each step adds one. The last is the result. The order of the operators
// is that of ops::tile_ops().
#pragma once

namespace tessera::kernels {

// X(name, operands)
// clang-format off
#define TESSERA_TILE_OPS(X)                                                                                    \
  X(literal, 0)                                                                                                \
  X(neg, 1)                                                                                                    \
  X(abs, 1)                                                                                                    \
  X(exp, 1)                                                                                                    \
  X(log, 1) X(sqrt, 1) X(rsqrt, 1) X(tanh, 1) X(erf, 1) X(floor, 1) X(ceil, 1) X(round, 1) X(sin, 1) X(cos, 1) \
      X(relu, 1) X(sigmoid, 1) X(silu, 1) X(gelu, 1) X(gelu_tanh, 1) X(softplus, 1) X(hard_swish, 1) X(add, 2) \
          X(sub, 2) X(mul, 2) X(div, 2) X(min, 2) X(max, 2)
// clang-format on

#define TESSERA_TILE_ENUM(name, operands) tile_##name,
enum TileOp { TESSERA_TILE_OPS(TESSERA_TILE_ENUM) kTileOpCount };
#undef TESSERA_TILE_ENUM

constexpr int kMaxTileSteps = 32;
constexpr int kMaxTileInputs = 12;

}  // namespace tessera::kernels
