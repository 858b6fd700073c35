#include "base/fingerprint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>

namespace tessera {
namespace {

// A bijection of the state for each word, and of the word for each state: no two words of one place are lost in one.
uint64_t step(uint64_t state, uint64_t word) {
  state = (state ^ word) * 0xff51afd7ed558ccdu;
  return state ^ (state >> 32);
}

}  // namespace

void Fingerprint::add(std::span<const std::byte> bytes) {
  constexpr size_t kStep = 32;
  const size_t size = bytes.size();
  uint64_t words[4];
  for (; bytes.size() >= kStep; bytes = bytes.subspan(kStep)) {
    std::memcpy(words, bytes.data(), kStep);
    for (size_t i = 0; i < 4; ++i) lanes_[i] = step(lanes_[i], words[i]);
  }
  std::memset(words, 0, kStep);
  if (!bytes.empty()) std::memcpy(words, bytes.data(), bytes.size());
  for (size_t i = 0; i < 4; ++i) lanes_[i] = step(lanes_[i], words[i]);
  lanes_[0] = step(lanes_[0], size);
  lanes_[1] = step(lanes_[1], ++parts_);
}

std::string Fingerprint::text() const {
  uint64_t high = parts_, low = ~parts_;
  for (uint64_t lane : lanes_) {
    high = step(high, lane);
    low = step(low * 0x9e3779b97f4a7c15u, lane);
  }
  return fmt::format("{:016x}{:016x}", high, low);
}

std::string file_stamp(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return "";
  return fmt::format("{}:{}:{}:{}.{}:{}.{}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

}  // namespace tessera
