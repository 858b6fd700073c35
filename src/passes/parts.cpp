#include "passes/parts.h"

#include "ir/core_ops.h"

namespace tessera::passes {
namespace {

// The one base axis along which b starts elsewhere than a, and how much further on; nothing when they start at several
// places or at the same one.
std::optional<std::pair<int, Dim>> step_between(const ir::View& a, const ir::View& b) {
  std::optional<std::pair<int, Dim>> step;
  for (size_t i = 0; i < a.offsets.size(); ++i) {
    if (a.offsets[i] == b.offsets[i]) continue;
    if (step) return std::nullopt;
    step = {static_cast<int>(i), b.offsets[i] - a.offsets[i]};
  }
  return step;
}

}  // namespace

Part part_of(const ir::Graph& graph, ir::ValueId v) {
  const ir::NodeId def = graph.value(v).def;
  if (def != ir::kNoNode && graph.node(def).op == &ir::core::view)
    return {graph.operands(def)[0], std::get<ir::View>(graph.node(def).attrs->values[0])};
  return {v, ir::normalised(ir::identity_view(graph.type(v)->shape))};
}

std::optional<ir::View> even_parts(std::span<const Part> parts, size_t axis) {
  size_t repeats = 1;
  while (repeats < parts.size() && parts[repeats].view == parts[0].view) ++repeats;
  if (parts.size() % repeats != 0) return std::nullopt;
  ir::View view = parts[0].view;
  std::vector<ir::ViewAtom> digits;
  if (repeats < parts.size()) {
    const auto step = step_between(parts[0].view, parts[repeats].view);
    if (!step) return std::nullopt;
    for (size_t i = 0; i < parts.size(); ++i) {
      ir::View expected = parts[0].view;
      Dim& start = expected.offsets[static_cast<size_t>(step->first)];
      start = start + step->second * static_cast<int64_t>(i / repeats);
      if (!(parts[i].view == expected)) return std::nullopt;
    }
    digits.push_back({step->first, step->second, static_cast<int64_t>(parts.size() / repeats)});
  }
  if (repeats > 1) digits.push_back({-1, 0, static_cast<int64_t>(repeats)});
  view.axes[axis].insert(view.axes[axis].begin(), digits.begin(), digits.end());
  return view;
}

std::optional<ir::View> adjacent_parts(std::span<const Part> parts, size_t axis) {
  ir::View view = parts[0].view;
  if (view.axes[axis].size() != 1 || view.axes[axis][0].axis < 0) return std::nullopt;
  for (size_t i = 1; i < parts.size(); ++i) {
    ir::View expected = view;
    ir::ViewAtom& digit = expected.axes[axis][0];
    Dim& start = expected.offsets[static_cast<size_t>(digit.axis)];
    start = start + digit.stride * digit.size;
    if (parts[i].view.axes[axis].size() > 1) return std::nullopt;
    const Dim size = parts[i].view.axes[axis].empty() ? Dim(1) : parts[i].view.axes[axis][0].size;
    digit.size = size;
    if (!(parts[i].view == ir::normalised(expected))) return std::nullopt;
    view.axes[axis][0].size = view.axes[axis][0].size + size;
  }
  return view;
}

}  // namespace tessera::passes
