// What tells contents apart: 128 bits of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// For accidents, not for adversaries. Four lanes of eight bytes a step, so that weights pass at the speed of memory.
class Fingerprint {
 public:
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  // 32 hexadecimal digits. Two parts give another one than both as one part.
  std::string text() const;

 private:
  std::array<uint64_t, 4> lanes_ = {0x2545f4914f6cdd1du, 0x9e3779b97f4a7c15u, 0xd1b54a32d192ed03u, 0x8cb92ba72f3d8dd7u};
  uint64_t parts_ = 0;
};

// What of a file changes whenever its contents do: device, number, size and times; empty when there is no such file.
std::string file_stamp(const std::string& path);

}  // namespace tessera
