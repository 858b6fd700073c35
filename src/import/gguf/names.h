// What GGUF files call the tensors of a model.
#pragma once

#include <string>

#include "import/transformer/build.h"

namespace tessera::gguf_import {

// "blk.3.ffn_down.weight". `post_norm`: of a model whose norms stand after the residual sums.
std::string tensor_name(const transformer::Key& key, bool post_norm);

// Whether the weights of all experts are one tensor, the expert its outermost axis.
bool is_stacked(transformer::Part part);
// What such a weight of one expert is called where it stands alone: "blk.3.ffn_down.5.weight".
std::string expert_name(const transformer::Key& key);

}  // namespace tessera::gguf_import
