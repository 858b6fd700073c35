// Language models of other formats, as GGUF files hold them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "import/transformer/source.h"

namespace tessera::gguf_import {

// A weight by the name, in the shape and in the order that GGUF files give it.
struct Exported {
  std::string name;
  Dims shape;
  DType type;
  std::function<Result<Tensor>()> data;
};

// Writes what the model is. E0402 for encoders, for kinds of models that GGUF has no word for, and for ropes that it
// has none for.
Status write_config(const transformer::Config& config, gguf::Writer& writer);

// All weights that the model's graph asks for; E0202 and E0312 as transformer::build.
Result<std::vector<Exported>> export_weights(const transformer::Source& source);

// E0402 names what a file that was written so says otherwise than the model: GGUF leaves much to the architecture's
// name.
Status check_exported(const transformer::Config& model, const transformer::Config& file);

}  // namespace tessera::gguf_import
