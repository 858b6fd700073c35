#include "base/cgroup.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"

namespace tessera {
namespace {

TEST(Cgroup, CpuMax) {
  EXPECT_EQ(parse_cpu_max("150000 100000\n"), 1.5);
  EXPECT_EQ(parse_cpu_max("50000 100000"), 0.5);
  for (const char* text : {"max 100000\n", "", "150000", "0 100000", "100000 0", "-1 100000", "x y", "1 2 3"})
    EXPECT_EQ(parse_cpu_max(text), std::nullopt) << text;
}

TEST(Cgroup, CfsQuota) {
  EXPECT_EQ(parse_cfs_quota("400000\n", "100000\n"), 4.0);
  EXPECT_EQ(parse_cfs_quota("-1\n", "100000\n"), std::nullopt);
  EXPECT_EQ(parse_cfs_quota("", ""), std::nullopt);
}

TEST(Cgroup, MemoryLimit) {
  EXPECT_EQ(parse_memory_limit("1073741824\n"), 1073741824u);
  for (const char* text : {"max\n", "9223372036854771712\n", "", "-1", "99999999999999999999999", "12 34"})
    EXPECT_EQ(parse_memory_limit(text), std::nullopt) << text;
}

TEST(Cgroup, Fields) {
  const char* text = "anon 5\ninactive_file 4096\nVmRSS:\t   12 kB\nbad: x kB\nhuge: 18446744073709551615 kB\nlast 7";
  EXPECT_EQ(parse_field(text, "inactive_file"), 4096u);
  EXPECT_EQ(parse_field(text, "VmRSS"), 12u * 1024);
  EXPECT_EQ(parse_field(text, "last"), 7u);
  EXPECT_EQ(parse_field(text, "huge"), UINT64_MAX);
  for (const char* key : {"inactive", "bad", "none", "Rss"}) EXPECT_EQ(parse_field(text, key), std::nullopt) << key;
}

TEST(Cgroup, GroupPath) {
  const char* text = "12:memory:/docker/ab\n3:cpu,cpuacct:/c\n1:name=systemd:/s\nbroken\n0::/unified";
  EXPECT_EQ(parse_group_path(text, "memory"), "/docker/ab");
  EXPECT_EQ(parse_group_path(text, "cpu"), "/c");
  EXPECT_EQ(parse_group_path(text, "cpuacct"), "/c");
  EXPECT_EQ(parse_group_path(text, ""), "/unified");
  EXPECT_EQ(parse_group_path(text, "cpuset"), std::nullopt);
  EXPECT_EQ(parse_group_path("", ""), std::nullopt);
}

TEST(Cgroup, Version2TakesTheTightestOfTheGroupsAround) {
  TestFolder root;
  root.put("proc/self/cgroup", "0::/a/b\n");
  root.put("sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  root.put("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  root.put("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.put("sys/fs/cgroup/a/memory.max", "1000000\n");
  root.put("sys/fs/cgroup/a/memory.current", "700000\n");
  root.put("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 300000\n");
  const CgroupLimits limits = cgroup_limits(root.path());
  EXPECT_EQ(limits.cpus, 2.5);
  EXPECT_EQ(limits.memory, 1000000u);
  EXPECT_EQ(limits.memory_in_use, 400000u);
}

TEST(Cgroup, Version1InAContainerWhosePathIsNotMounted) {
  TestFolder root;
  root.put("proc/self/cgroup", "5:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n");
  root.put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  root.put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  root.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n");
  root.put("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 600000\n");
  const CgroupLimits limits = cgroup_limits(root.path());
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory, 2000000u);
  EXPECT_EQ(limits.memory_in_use, 0u);
}

TEST(Cgroup, NothingThere) {
  TestFolder root;
  const CgroupLimits limits = cgroup_limits(root.path());
  EXPECT_EQ(limits.cpus, std::nullopt);
  EXPECT_EQ(limits.memory, std::nullopt);
}

}  // namespace
}  // namespace tessera
