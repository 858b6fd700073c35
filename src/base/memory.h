// Aligned memory, and how much of it the process and the machine have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <stdexcept>
#include <string>

#include "base/result.h"

namespace tessera {

constexpr size_t kBufferAlignment = 64;  // a cache line, and the widest vector

// Whether a large buffer asks for pages of 2 MiB: fewer TLB misses, but memory comes in larger pieces.
enum class Pages { normal, huge };

// The most bytes that one allocation of tensor memory may have: the machine's (or the container's), or less where that
// was set. Larger ones would succeed, where memory is overcommitted, and kill the process when touched.
size_t memory_limit();
// For the whole process. 0 sets the machine's again.
void set_memory_limit(size_t bytes);
// E0503 when `bytes` pass memory_limit().
Status check_allocation(size_t bytes);

// f(), which gives a Result. Where memory runs out inside, which the standard library tells by throwing, gives E0503;
// whatever else is thrown is a fault of ours, E0901. Nothing throws across the API.
template <class F>
auto without_throwing(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory, "memory ran out; the limit of one allocation is {} bytes", memory_limit());
  } catch (const std::length_error&) {
    return fail(Code::out_of_memory, "a list would be longer than memory; the limit of one allocation is {} bytes",
                memory_limit());
  } catch (const std::exception& thrown) {
    return fail(Code::internal, "an exception that nothing expects: {}", thrown.what());
  }
}

// Zeroed memory, aligned to kBufferAlignment, owned. Large buffers are mapped on their own: pages are taken from the
// machine when first touched, and given back when the buffer dies.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // E0503 when the machine refuses, or `bytes` pass memory_limit().
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
