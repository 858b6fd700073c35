// The limits that a container sets on this process, from the cgroup files (versions 1 and 2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct CgroupLimits {
  std::optional<double> cpus;             // CPU quota, in cores
  std::optional<uint64_t> memory;         // bytes
  std::optional<uint64_t> memory_in_use;  // bytes that count against `memory` and could not be given back at once
};

// What holds for this process: the tightest limit of its group and the groups around it. `root` stands before /proc and
// /sys.
CgroupLimits cgroup_limits(const std::string& root = "");

// The texts of single files. None when there is no limit or the text is not understood.
std::optional<double> parse_cpu_max(std::string_view cpu_max);  // v2 cpu.max: "150000 100000" or "max 100000"
std::optional<double> parse_cfs_quota(std::string_view quota_us, std::string_view period_us);  // v1: "-1" is none
std::optional<uint64_t> parse_memory_limit(std::string_view text);  // "max", or v1's huge number, is none
// The number behind `key` in lines of "key number" or "key: number kB".
std::optional<uint64_t> parse_field(std::string_view text, std::string_view key);

// The path of the group that /proc/self/cgroup gives for a v1 controller ("memory"), or for v2 ("").
std::optional<std::string> parse_group_path(std::string_view proc_self_cgroup, std::string_view controller);

}  // namespace tessera
