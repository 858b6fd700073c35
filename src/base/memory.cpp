#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/result.h"

namespace tessera {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMapFrom = SIZE_MAX;  // only the heap is watched for accesses out of bounds
#else
constexpr size_t kMapFrom = 256 << 10;  // below it, the page faults of a mapping cost more than the heap keeps
#endif
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kMaxStatusFile = 1 << 20;

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

std::atomic<size_t> set_limit{0};

// Maps `bytes` (whole pages) at a multiple of `alignment`; null when the machine refuses.
std::byte* map_aligned(size_t bytes, size_t alignment, size_t page) {
  const size_t slack = alignment > page ? alignment : 0;
  void* memory = ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(memory);
  if (slack == 0) return begin;
  const size_t before = round_up(reinterpret_cast<size_t>(begin), alignment) - reinterpret_cast<size_t>(begin);
  if (before > 0) ::munmap(begin, before);
  if (slack > before) ::munmap(begin + before + bytes, slack - before);
  return begin + before;
}

}  // namespace

size_t memory_limit() {
  static const size_t machine = [] {
    const uint64_t total = machine_memory().total;
    return static_cast<size_t>(total > 0 ? std::min<uint64_t>(total, PTRDIFF_MAX / 2) : PTRDIFF_MAX / 2);
  }();
  const size_t set = set_limit.load(std::memory_order_relaxed);
  return set > 0 ? std::min(set, machine) : machine;
}

void set_memory_limit(size_t bytes) { set_limit.store(bytes, std::memory_order_relaxed); }

Status check_allocation(size_t bytes) {
  if (bytes <= memory_limit()) return {};
  return fail(Code::out_of_memory, "{} bytes asked for, but the limit of one allocation is {}", bytes, memory_limit());
}

Result<AlignedBuffer> AlignedBuffer::make(size_t bytes, Pages pages) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  TESSERA_TRY(check_allocation(bytes));
  if (bytes < kMapFrom) {
    const size_t rounded = round_up(bytes, kBufferAlignment);
    buffer.data_ = static_cast<std::byte*>(std::aligned_alloc(kBufferAlignment, rounded));
    if (buffer.data_ != nullptr) std::memset(buffer.data_, 0, rounded);
  } else {
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t rounded = round_up(bytes, page);
    const bool huge = pages == Pages::huge && rounded >= kHugePage;
    buffer.data_ = map_aligned(rounded, huge ? kHugePage : page, page);
    if (buffer.data_ != nullptr) {
      buffer.mapped_ = rounded;
      if (huge) ::madvise(buffer.data_, rounded, MADV_HUGEPAGE);  // advice: a machine without them says no
    }
  }
  if (buffer.data_ == nullptr)
    return fail(Code::out_of_memory, "{} bytes could not be allocated; {} are available", bytes,
                machine_memory().available);
  buffer.size_ = bytes;
  return buffer;
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  AlignedBuffer taken(std::move(other));  // right for a move to itself too
  swap(taken);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (mapped_ > 0) {
    ::munmap(data_, mapped_);
  } else {
    std::free(data_);
  }
}

void AlignedBuffer::swap(AlignedBuffer& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
}

ResidentSet resident_set() {
  const std::string status = read_file("/proc/self/status", kMaxStatusFile).value_or("");
  ResidentSet set = {parse_field(status, "VmRSS").value_or(0), parse_field(status, "VmHWM").value_or(0)};
  set.peak = std::max(set.peak, set.now);  // the kernel updates them at different times
  return set;
}

MachineMemory machine_memory(const std::string& root) {
  const std::string info = read_file(root + "/proc/meminfo", kMaxStatusFile).value_or("");
  MachineMemory memory = {parse_field(info, "MemTotal").value_or(0), parse_field(info, "MemAvailable").value_or(0)};
  const CgroupLimits limits = cgroup_limits(root);
  if (limits.memory) {
    if (memory.total == 0) memory.available = UINT64_MAX;
    memory.total = memory.total == 0 ? *limits.memory : std::min(memory.total, *limits.memory);
    const uint64_t used = std::min(limits.memory_in_use.value_or(0), *limits.memory);
    memory.available = std::min(memory.available, *limits.memory - used);
  }
  return memory;
}

}  // namespace tessera
