#include "base/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/test_folder.h"

namespace tessera {
namespace {

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

TEST(AlignedBuffer, ZeroedAndAligned) {
  for (Pages pages : {Pages::normal, Pages::huge})
    for (size_t bytes : {size_t{1}, size_t{64}, size_t{1000}, size_t{256} << 10, (size_t{5} << 20) + 3}) {
      auto buffer = AlignedBuffer::make(bytes, pages);
      ASSERT_TRUE(buffer);
      EXPECT_EQ(buffer->size(), bytes);
      EXPECT_EQ(reinterpret_cast<size_t>(buffer->data()) % kBufferAlignment, 0u);
      EXPECT_TRUE(all_zero(buffer->bytes()));
      std::memset(buffer->data(), 0xff, bytes);
    }
}

TEST(AlignedBuffer, Empty) {
  auto buffer = AlignedBuffer::make(0);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_EQ(buffer->size(), 0u);
}

TEST(AlignedBuffer, RefusesTheImpossible) {
  for (size_t bytes : {SIZE_MAX, SIZE_MAX - 63, size_t{1} << 62, static_cast<size_t>(machine_memory().total) + 1}) {
    auto buffer = AlignedBuffer::make(bytes);
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code, Code::out_of_memory);
  }
}

TEST(MemoryLimit, HoldsForOneAllocation) {
  const size_t machine = memory_limit();
  set_memory_limit(1000);
  EXPECT_EQ(memory_limit(), 1000u);
  EXPECT_TRUE(check_allocation(1000));
  EXPECT_EQ(check_allocation(1001).error().code, Code::out_of_memory);
  EXPECT_EQ(AlignedBuffer::make(1001).error().code, Code::out_of_memory);
  set_memory_limit(0);
  EXPECT_EQ(memory_limit(), machine);
}

TEST(MemoryLimit, ExhaustionIsAnError) {
  const auto thrown = [](auto exception) { return without_throwing([&]() -> Result<int> { throw exception; }); };
  EXPECT_EQ(thrown(std::bad_alloc()).error().code, Code::out_of_memory);
  EXPECT_EQ(thrown(std::length_error("too long")).error().code, Code::out_of_memory);
  EXPECT_EQ(thrown(std::runtime_error("odd")).error().code, Code::internal);
  EXPECT_EQ(without_throwing([]() -> Result<int> { return 3; }).value(), 3);
}

TEST(AlignedBuffer, Moves) {
  for (size_t bytes : {size_t{100}, size_t{1} << 20}) {
    AlignedBuffer a = AlignedBuffer::make(bytes).value();
    std::byte* data = a.data();
    AlignedBuffer b = std::move(a);
    EXPECT_EQ(b.data(), data);
    AlignedBuffer c = AlignedBuffer::make(10).value();
    c = std::move(b);
    EXPECT_EQ(c.data(), data);
    EXPECT_EQ(c.size(), bytes);
    AlignedBuffer& same = c;
    c = std::move(same);
    EXPECT_EQ(c.data(), data);
    c = AlignedBuffer();
    EXPECT_EQ(c.data(), nullptr);
  }
}

TEST(ResidentSet, FollowsWhatIsTouched) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer keeps freed memory";
#endif
  const ResidentSet before = resident_set();
  ASSERT_GT(before.now, 0u);
  constexpr size_t kBytes = 64 << 20;
  {
    AlignedBuffer buffer = AlignedBuffer::make(kBytes).value();
    EXPECT_LT(resident_set().now, before.now + kBytes / 2);  // not yet touched
    std::memset(buffer.data(), 1, kBytes);
    EXPECT_GT(resident_set().now, before.now + kBytes * 9 / 10);
  }
  const ResidentSet after = resident_set();
  EXPECT_LT(after.now, before.now + kBytes / 2);
  EXPECT_GE(after.peak, before.now + kBytes * 9 / 10);
}

TEST(MachineMemory, OfThisMachine) {
  const MachineMemory memory = machine_memory();
  EXPECT_GT(memory.total, 0u);
  EXPECT_GT(memory.available, 0u);
  EXPECT_LE(memory.available, memory.total);
}

TEST(MachineMemory, HonoursTheContainer) {
  TestFolder root;
  root.put("proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  900 kB\n");
  EXPECT_EQ(machine_memory(root.path()).total, 1000u << 10);
  EXPECT_EQ(machine_memory(root.path()).available, 900u << 10);
  root.put("proc/self/cgroup", "0::/\n");
  root.put("sys/fs/cgroup/memory.max", "500000\n");
  root.put("sys/fs/cgroup/memory.current", "100000\n");
  EXPECT_EQ(machine_memory(root.path()).total, 500000u);
  EXPECT_EQ(machine_memory(root.path()).available, 400000u);
  root.put("sys/fs/cgroup/memory.current", "600000\n");  // over the limit for a moment
  EXPECT_EQ(machine_memory(root.path()).available, 0u);
  root.put("sys/fs/cgroup/memory.max", "900000000\n");
  EXPECT_EQ(machine_memory(root.path()).total, 1000u << 10);
}

}  // namespace
}  // namespace tessera
