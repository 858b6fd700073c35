// The architectures of Hugging Face's transformers that are known: how config.json describes each, and what it calls
// its tensors.
#pragma once

#include <span>
#include <string_view>

#include "import/huggingface/fields.h"
#include "import/transformer/config.h"

namespace tessera::huggingface {

// "layers.#.mlp.down_proj": # stands for the layer and @ for the expert; ".weight" or ".bias" follows. A '^' in front
// keeps the model's prefix away.
struct PartName {
  transformer::Part part;
  std::string_view text;
};

struct Family {
  std::string_view type;  // model_type
  void (*read)(Fields& fields, transformer::Config& config);
  std::span<const PartName> names;
  std::span<const std::string_view> prefixes;  // one of these stands before every name
};

std::span<const Family> families();
// E0402 names all that are known.
Result<const Family*> find_family(std::string_view type);

// Decoders, and encoders, in files of their own.
std::span<const Family> decoder_families();
std::span<const Family> encoder_families();

// "gelu_new": E0402 for one that is not known.
transformer::Activation read_activation(Fields& fields, std::string_view key, std::string_view otherwise);
// `parameters` is rope_parameters, or rope_scaling of older files; empty for plain ones.
transformer::Rope read_rope(Fields& fields, const Json& parameters, double theta, int64_t width);
// The theta of `parameters`, of the field beside it, or what the architecture takes.
double read_theta(Fields& fields, const Json& parameters, double otherwise);
// rope_parameters or rope_scaling. `kind` is taken out of parameters by layer type ("sliding_attention").
const Json& rope_parameters(Fields& fields, std::string_view kind = "full_attention");

}  // namespace tessera::huggingface
