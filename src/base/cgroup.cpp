#include "base/cgroup.h"

#include <algorithm>
#include <charconv>

#include "base/file.h"

namespace tessera {
namespace {

constexpr size_t kMaxFile = 1 << 20;  // files of /proc and /sys are far smaller

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n";
  size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

template <class T>
std::optional<T> parse_number(std::string_view text) {
  text = trimmed(text);
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string text_of(const std::string& path) { return read_file(path, kMaxFile).value_or(""); }

template <class T>
void tighten(std::optional<T>& limit, std::optional<T> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

// The folder of the group and of each group around it, innermost first. In a container the path may name groups that
// are not mounted there; reading their files gives nothing, and the mount point is the container's own group.
std::vector<std::string> folders(const std::string& mount, std::string path) {
  std::vector<std::string> result;
  while (!path.empty() && path != "/") {
    result.push_back(mount + path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  result.push_back(mount);
  return result;
}

// What is in use, less the file cache that the machine drops when it needs room.
std::optional<uint64_t> in_use(std::optional<uint64_t> charged, std::optional<uint64_t> inactive_file) {
  if (!charged) return std::nullopt;
  return *charged - std::min(*charged, inactive_file.value_or(0));
}

void read_v2(const std::string& folder, CgroupLimits& limits) {
  tighten(limits.cpus, parse_cpu_max(text_of(folder + "/cpu.max")));
  std::optional<uint64_t> memory = parse_memory_limit(text_of(folder + "/memory.max"));
  if (!memory || (limits.memory && *limits.memory <= *memory)) return;
  limits.memory = memory;
  limits.memory_in_use = in_use(parse_memory_limit(text_of(folder + "/memory.current")),
                                parse_field(text_of(folder + "/memory.stat"), "inactive_file"));
}

void read_v1_cpu(const std::string& folder, CgroupLimits& limits) {
  tighten(limits.cpus, parse_cfs_quota(text_of(folder + "/cpu.cfs_quota_us"), text_of(folder + "/cpu.cfs_period_us")));
}

void read_v1_memory(const std::string& folder, CgroupLimits& limits) {
  std::optional<uint64_t> memory = parse_memory_limit(text_of(folder + "/memory.limit_in_bytes"));
  if (!memory || (limits.memory && *limits.memory <= *memory)) return;
  limits.memory = memory;
  limits.memory_in_use = in_use(parse_memory_limit(text_of(folder + "/memory.usage_in_bytes")),
                                parse_field(text_of(folder + "/memory.stat"), "total_inactive_file"));
}

}  // namespace

std::optional<double> parse_cpu_max(std::string_view cpu_max) {
  cpu_max = trimmed(cpu_max);
  size_t space = cpu_max.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return parse_cfs_quota(cpu_max.substr(0, space), cpu_max.substr(space));
}

std::optional<double> parse_cfs_quota(std::string_view quota_us, std::string_view period_us) {
  std::optional<int64_t> quota = parse_number<int64_t>(quota_us);
  std::optional<int64_t> period = parse_number<int64_t>(period_us);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<uint64_t> parse_memory_limit(std::string_view text) {
  std::optional<uint64_t> bytes = parse_number<uint64_t>(text);
  // Version 1 writes "no limit" as the largest page-aligned signed number.
  constexpr uint64_t kNone = uint64_t{1} << 62;
  return bytes && *bytes < kNone ? bytes : std::nullopt;
}

std::optional<uint64_t> parse_field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    const bool colon = line.starts_with(':');
    if (!colon && !line.starts_with(' ')) continue;
    if (colon) line.remove_prefix(1);
    line = trimmed(line);
    const bool kilo = line.ends_with(" kB");
    if (kilo) line.remove_suffix(3);
    std::optional<uint64_t> value = parse_number<uint64_t>(line);
    if (value && kilo) value = *value < (uint64_t{1} << 53) ? *value << 10 : UINT64_MAX;
    return value;
  }
  return std::nullopt;
}

std::optional<std::string> parse_group_path(std::string_view proc_self_cgroup, std::string_view controller) {
  // Lines are "hierarchy:controller,controller:/path"; version 2 is "0::/path".
  while (!proc_self_cgroup.empty()) {
    size_t end = std::min(proc_self_cgroup.find('\n'), proc_self_cgroup.size());
    std::string_view line = proc_self_cgroup.substr(0, end);
    proc_self_cgroup.remove_prefix(std::min(end + 1, proc_self_cgroup.size()));
    size_t first = line.find(':');
    size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    std::string_view path = line.substr(second + 1);
    std::string_view names = line.substr(first + 1, second - first - 1);
    if (controller.empty()) {
      if (names.empty()) return std::string(path);
      continue;
    }
    while (!names.empty()) {
      size_t comma = std::min(names.find(','), names.size());
      if (names.substr(0, comma) == controller) return std::string(path);
      names.remove_prefix(std::min(comma + 1, names.size()));
    }
  }
  return std::nullopt;
}

CgroupLimits cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  const std::string groups = text_of(root + "/proc/self/cgroup");
  const std::string mount = root + "/sys/fs/cgroup";
  if (auto path = parse_group_path(groups, "")) {
    for (const char* unified : {"", "/unified"})  // alone, or beside version 1
      for (const std::string& folder : folders(mount + unified, *path)) read_v2(folder, limits);
  }
  if (auto path = parse_group_path(groups, "cpu")) {
    for (const char* name : {"/cpu", "/cpu,cpuacct"})  // the second where the first is no link to it
      for (const std::string& folder : folders(mount + name, *path)) read_v1_cpu(folder, limits);
  }
  if (auto path = parse_group_path(groups, "memory")) {
    for (const std::string& folder : folders(mount + "/memory", *path)) read_v1_memory(folder, limits);
  }
  return limits;
}

}  // namespace tessera
