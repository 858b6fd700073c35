// What a compilation came to: its kernels, and the figures that are compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/compiled.h"
#include "engine/cost.h"

namespace tessera::engine {

struct OperandLine {
  std::vector<std::string> shape;  // "768", "batch"
  std::vector<int64_t> sizes;      // the same as numbers, -1 where only a run tells
  DType dtype = DType::f32;
};

// One step that reads or writes tensor memory.
struct KernelLine {
  std::string op;                   // the composite's name: "attention", "linear+add+layer_norm"
  std::string kernel;               // the kernel's; "host" where the interpreter runs it
  std::vector<std::string> covers;  // the user's names of the nodes whose work it does
  std::vector<OperandLine> inputs, outputs;
  std::optional<Cost> cost;  // nothing where sizes are not known
};
std::vector<KernelLine> kernel_lines(const Compilation& made);

// All of a plan. What depends on sizes that are not known is nothing.
struct PlanFigures {
  int64_t nodes = 0;    // of the graph, constants left out
  int64_t kernels = 0;  // steps that read or write tensor memory, nested ones once
  std::optional<Cost> cost;
  std::optional<int64_t> live_set_bound_bytes;
  std::optional<int64_t> arena_bytes;
};
Result<PlanFigures> figures_of(const Compilation& made);

}  // namespace tessera::engine
