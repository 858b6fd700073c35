// Parses bytes as a GGUF file, and reads what it says.
#include "formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  auto file = gguf::File::parse(std::as_bytes(std::span(data, size)));
  if (!file) return 0;
  uint64_t sum = 0;
  for (const auto& [key, value] : file->metadata()) {
    if (auto integers = file->integers(key)) sum += integers->size();
    if (auto reals = file->reals(key)) sum += reals->size();
    if (auto strings = file->strings(key)) sum += strings->size();
    if (auto items = gguf::items(value)) sum += items->size();
  }
  for (const gguf::TensorInfo& info : file->tensors())
    for (std::byte byte : file->bytes(info)) sum += static_cast<uint64_t>(byte);
  volatile uint64_t kept = sum;
  static_cast<void>(kept);
  return 0;
}
