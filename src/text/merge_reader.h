// Reads lists of merges. Included only by sources of this folder.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "text/model.h"

namespace tessera::text {

// Looks merges up in groups: a vocabulary is larger than the caches, and the misses of a group overlap.
class MergeReader {
 public:
  // `prefix` is left out of a right token in the result. Merges of tokens that the vocabulary lacks are E0209, or with
  // `lenient` never fire. All three must outlive the reader.
  MergeReader(const Vocabulary& vocabulary, MergeTable& table, std::string_view prefix, bool lenient)
      : vocabulary_(vocabulary), table_(table), prefix_(prefix), lenient_(lenient) {}

  // The texts must live until finish().
  Status add(std::string_view left, std::string_view right);
  // "left right", split at the first space from `from` on. E0104 where there is none, or `once` and a second.
  Status add_line(std::string_view line, size_t from, bool once);
  Status finish() { return flush(); }

 private:
  static constexpr size_t kGroup = 32;
  struct Pending {
    std::string_view left, right;
    std::string joined;
    std::array<uint64_t, 3> hashes;
  };
  Status flush();

  const Vocabulary& vocabulary_;
  MergeTable& table_;
  std::string_view prefix_;
  bool lenient_;
  uint32_t rank_ = 0;  // of the first that is pending
  size_t count_ = 0;
  std::array<Pending, kGroup> pending_;
};

}  // namespace tessera::text
