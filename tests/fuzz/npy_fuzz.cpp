// Parses bytes as a .npy file. The first byte chooses the type that is wanted.
#include "formats/npy.h"
#include "tensor/scalar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  std::optional<DType> expected;
  if (data[0] < kDTypeCount) expected = static_cast<DType>(data[0]);
  auto tensor = parse_npy(std::as_bytes(std::span(data + 1, size - 1)), nullptr, expected);
  if (tensor && tensor->count() > 0) {
    volatile double last = decode(tensor->dtype(), tensor->data(), tensor->count() - 1);
    static_cast<void>(last);
  }
  return 0;
}
