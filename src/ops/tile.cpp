#include "ops/tile.h"

#include <bit>

namespace tessera::ops {
namespace {

using ir::OpDef;
using ir::X;
using ir::Xs;

constexpr const OpDef* kTileOps[] = {
    nullptr,       &neg_op,      &abs_op,        &exp_op, &log_op, &sqrt_op, &rsqrt_op,   &tanh_op, &erf_op,
    &floor_op,     &ceil_op,     &round_op,      &sin_op, &cos_op, &relu_op, &sigmoid_op, &silu_op, &gelu_op,
    &gelu_tanh_op, &softplus_op, &hard_swish_op, &add_op, &sub_op, &mul_op,  &div_op,     &min_op,  &max_op,
};

int operands_of(const OpDef& op) { return op.signature.starts_with("a[") ? 2 : 1; }

}  // namespace

std::span<const OpDef* const> tile_ops() { return kTileOps; }

int tile_op(const OpDef& op) {
  for (size_t i = 1; i < std::size(kTileOps); ++i)
    if (kTileOps[i] == &op) return static_cast<int>(i);
  return -1;
}

std::vector<int64_t> encode_tile(std::span<const TileStep> steps) {
  std::vector<int64_t> program;
  for (const TileStep& step : steps) program.insert(program.end(), {step.op, step.args[0], step.args[1], step.args[2]});
  return program;
}

std::vector<TileStep> decode_tile(std::span<const int64_t> program) {
  std::vector<TileStep> steps;
  for (size_t i = 0; i + 4 <= program.size(); i += 4)
    steps.push_back({program[i], {program[i + 1], program[i + 2], program[i + 3]}});
  return steps;
}

Status check_tile(const ir::Infer& infer, int inputs) {
  const std::vector<int64_t>& program = infer.attrs.integers("program");
  const std::string_view name = infer.op.name;
  const auto count = static_cast<int64_t>(program.size() / 4);
  if (program.size() % 4 != 0 || count > kMaxTileSteps)
    return fail(Code::attribute_invalid, "{}: a program of {} numbers; it takes four a step, and {} steps at most",
                name, program.size(), kMaxTileSteps);
  if (inputs < 1 || inputs > kMaxTileInputs)
    return fail(Code::attribute_invalid, "{}: a program starts from 1 to {} values, not {}", name, kMaxTileInputs,
                inputs);
  int64_t known = inputs;
  for (const TileStep& step : decode_tile(program)) {
    if (step.op < 0 || step.op >= static_cast<int64_t>(std::size(kTileOps)))
      return fail(Code::attribute_invalid, "{}: its program has no operator {}", name, step.op);
    const int wanted = step.op == kTileLiteral ? 0 : operands_of(*kTileOps[step.op]);
    for (int i = 0; i < wanted; ++i)
      if (step.args[i] < 0 || step.args[i] >= known)
        return fail(Code::attribute_invalid, "{}: step {} of its program reads value {} of {}", name, known - inputs,
                    step.args[i], known);
    if (step.op == kTileLiteral && (step.args[0] < 0 || step.args[0] > UINT32_MAX))
      return fail(Code::attribute_invalid, "{}: {} are the bits of no f32", name, step.args[0]);
    ++known;
  }
  const int64_t keep = infer.attrs.integer("keep");
  if (keep < -1 || keep >= known)
    return fail(Code::attribute_invalid, "{}: it keeps value {} of {}", name, keep, known);
  for (const char* attr : {"gain", "shift"})
    if (infer.op.attrs.find(attr) >= 0)
      if (const int64_t value = infer.attrs.integer(attr); value < -1 || value >= inputs)
        return fail(Code::attribute_invalid, "{}: its {} is value {} of {}", name, attr, value, inputs);
  return {};
}

Xs run_tile(const ir::A& attrs, Xs values, const Shape& shape) {
  ir::Builder& builder = *values[0].builder;
  const Xs inputs = values;
  for (const TileStep& step : decode_tile(attrs.integers("program"))) {
    if (step.op == kTileLiteral) {
      values.push_back(like(values[0], std::bit_cast<float>(static_cast<uint32_t>(step.args[0]))));
      continue;
    }
    const OpDef& op = *kTileOps[step.op];
    Xs operands;
    for (int i = 0; i < operands_of(op); ++i) operands.push_back(values[static_cast<size_t>(step.args[i])]);
    values.push_back(builder.add(op, operands)[0]);
  }
  // Without a step the result is what the anchor made: the operands that follow it are for the row region.
  X y = broadcast(values.size() > inputs.size() ? values.back() : values[0], shape);
  Xs results;
  const auto input = [&](int64_t i) { return i < 0 ? X{&builder, ir::kNoValue} : inputs[static_cast<size_t>(i)]; };
  const std::string_view norm = attrs.word("norm");
  if (norm == "layer")
    y = builder.add(layer_norm_op, Xs{y, input(attrs.integer("gain")), input(attrs.integer("shift"))},
                    {int64_t{1}, attrs.real("eps")})[0];
  if (norm == "rms")
    y = builder.add(rms_norm_op, Xs{y, input(attrs.integer("gain"))}, {int64_t{1}, attrs.real("eps")})[0];
  results.push_back(y);
  if (const int64_t keep = attrs.integer("keep"); keep >= 0)
    results.push_back(broadcast(values[static_cast<size_t>(keep)], shape));
  return results;
}

std::string tile_text(const ir::A& attrs) {
  std::string text;
  const auto append = [&](std::string_view word) { text += (text.empty() ? "" : "+") + std::string(word); };
  for (const TileStep& step : decode_tile(attrs.integers("program")))
    if (step.op != kTileLiteral) append(kTileOps[step.op]->name);
  if (attrs.integer("norm") != 0) append(attrs.word("norm") == "layer" ? "layer_norm" : "rms_norm");
  return text;
}

}  // namespace tessera::ops
