// Tile programs: straight-line programs of pointwise operators, run element by element on blocks that lie in cache. The
// operators that hold one (pointwise, fused_linear, fused_conv) describe it with the attributes of kTileAttrs; its
// meaning is the operators' own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/math.h"

namespace tessera::ops {

// Values are numbered: first what the program starts from, then the result of each step. A step is four numbers: an
// operator, an index into tile_ops(), and its operands' values, -1 where it has fewer. kTileLiteral instead has the
// bits of an f32 as its first operand. The last value is the result.
struct TileStep {
  int64_t op;
  int64_t args[3];
};
constexpr int64_t kTileLiteral = 0;
constexpr int kMaxTileSteps = 32;
constexpr int kMaxTileInputs = 12;

// By number; the first, which stands for literals, is null. The same order as kernels/program.h.
std::span<const ir::OpDef* const> tile_ops();
int tile_op(const ir::OpDef& op);  // -1 when programs do not know the operator

// The program as its attribute, and back.
std::vector<int64_t> encode_tile(std::span<const TileStep> steps);
std::vector<TileStep> decode_tile(std::span<const int64_t> program);

// What follows a program when a row of its result is to be normalised: attributes `norm`, `gain`, `shift`, `eps`. Gain
// and shift are values of the program's start, or -1.
constexpr ir::AttrSpec kProgramAttr = ir::ints_attr("program");
constexpr ir::AttrSpec kKeepAttr = ir::int_attr("keep", -1);  // a value that is a second result, before any norm
constexpr ir::AttrSpec kNormAttr = ir::word_attr("norm", "none|layer|rms");
constexpr ir::AttrSpec kGainAttr = ir::int_attr("gain", -1);
constexpr ir::AttrSpec kShiftAttr = ir::int_attr("shift", -1);
constexpr ir::AttrSpec kEpsAttr = ir::real_attr("eps", 1e-5);

// Whether the program of `infer`'s node is one that starts from `inputs` values. E0403.
Status check_tile(const ir::Infer& infer, int inputs);

// The results of the program (and norm) of shape `shape`: y, and what it keeps.
ir::Xs run_tile(const ir::A& attrs, ir::Xs values, const Shape& shape);

// "add+gelu+layer_norm": what a person calls the program.
std::string tile_text(const ir::A& attrs);

}  // namespace tessera::ops
