// Safetensors files: an 8-byte length, a JSON header that names tensors with type, shape and byte range, then their
// elements, little-endian and row-major.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tessera/tensor.h"

namespace tessera {

// The file is untrusted. `keep` keeps `bytes` alive; the tensors point into them. E0103 when the header or a tensor
// passes the end; E0104 when the header is not of the format, two tensors overlap or have one name, or a range is not
// of the size that type and shape ask for; E0402 for an element type that we do not know.
Result<std::map<std::string, Tensor>> parse_safetensors(std::span<const std::byte> bytes,
                                                        std::shared_ptr<const void> keep);

// All tensors of a model's folder: those of model.safetensors, or of the files that model.safetensors.index.json names.
// E0101 when there is neither; E0203 when two files hold a tensor of one name; E0202 when the index promises a tensor
// that its file does not hold.
struct SafetensorsFolder {
  std::map<std::string, Tensor> tensors;
  std::vector<std::shared_ptr<const MappedFile>> files;
};
Result<SafetensorsFolder> open_safetensors(const std::string& folder);

}  // namespace tessera
