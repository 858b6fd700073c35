// Parses bytes as a safetensors file and reads the ends of every tensor.
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const auto tensors = parse_safetensors(std::as_bytes(std::span(data, size)), nullptr);
  if (!tensors) return 0;
  for (const auto& [name, tensor] : *tensors) {
    if (tensor.bytes() == 0) continue;
    volatile char ends = static_cast<char>(tensor.as<char>()[0] ^ tensor.as<char>()[tensor.bytes() - 1]);
    static_cast<void>(ends);
  }
  return 0;
}
