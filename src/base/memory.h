// Aligned memory, and how much of it the process and the machine have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tessera/error.h"

namespace tessera {

constexpr size_t kBufferAlignment = 64;  // a cache line, and the widest vector

// Whether a large buffer asks for pages of 2 MiB: fewer TLB misses, but memory comes in larger pieces.
enum class Pages { normal, huge };

// Zeroed memory, aligned to kBufferAlignment, owned. Large buffers are mapped on their own: pages are taken from the
// machine when first touched, and given back when the buffer dies.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // E0503 when the machine refuses, or when it could never hold `bytes` (more than machine_memory().total).
  static Result<AlignedBuffer> make(size_t bytes, Pages pages = Pages::normal);
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  // Null exactly when size() is 0.
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  void swap(AlignedBuffer& other) noexcept;

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // bytes mapped, 0 when the memory is the heap's
};

// Bytes of this process that lie in memory: now, and at most since it started. 0 where the machine does not tell.
struct ResidentSet {
  uint64_t now = 0;
  uint64_t peak = 0;
};
ResidentSet resident_set();

// Bytes of the machine, or of the container where that is less. `available` is what can be had without swapping.
struct MachineMemory {
  uint64_t total = 0;
  uint64_t available = 0;
};
// `root` stands before /proc and /sys.
MachineMemory machine_memory(const std::string& root = "");

}  // namespace tessera
