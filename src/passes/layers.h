// Linear layers of one input.
#pragma once

#include <optional>
#include <span>

#include "ir/builder.h"

namespace tessera::passes {

// The weight and bias of the layer whose outputs are those of all these layers (nodes of the operator linear), one
// after the other; the bias is absent when none has one. Nothing when a weight is no constant. Views of constants that
// only transpose stay views.
std::optional<ir::Xs> join_layers(ir::Builder& builder, std::span<const ir::NodeId> layers);

// The weight and bias of the layer whose outputs are those of this one, the even ones before the odd ones; nothing when
// they are no constants.
std::optional<ir::Xs> even_outputs_first(ir::Builder& builder, ir::NodeId layer);

}  // namespace tessera::passes
