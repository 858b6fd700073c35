#include "text/merge_reader.h"

#include "base/result.h"

namespace tessera::text {

Status MergeReader::add(std::string_view left, std::string_view right) {
  if (count_ == kGroup) TESSERA_TRY(flush());
  Pending& merge = pending_[count_++];
  merge.left = left;
  merge.right = right;
  merge.joined.assign(left);
  merge.joined += right.starts_with(prefix_) ? right.substr(prefix_.size()) : right;
  merge.hashes = {hash_bytes(left), hash_bytes(right), hash_bytes(merge.joined)};
  for (uint64_t hash : merge.hashes) vocabulary_.prefetch_slot(hash);
  return {};
}

Status MergeReader::add_line(std::string_view line, size_t from, bool once) {
  const size_t space = line.find(' ', from);
  if (space == std::string_view::npos || (once && line.find(' ', space + 1) != std::string_view::npos))
    return fail(Code::file_malformed, "merge {} is '{}', not two tokens", rank_ + count_, line);
  return add(line.substr(0, space), line.substr(space + 1));
}

Status MergeReader::flush() {
  for (size_t i = 0; i < count_; ++i)
    for (uint64_t hash : pending_[i].hashes) vocabulary_.prefetch_token(hash);
  std::array<std::array<uint32_t, 3>, kGroup> ids;
  for (size_t i = 0; i < count_; ++i) {
    const Pending& merge = pending_[i];
    const std::string_view parts[] = {merge.left, merge.right, merge.joined};
    for (size_t k = 0; k < 3; ++k) {
      ids[i][k] = vocabulary_.find(parts[k], merge.hashes[k]);
      if (ids[i][k] == Vocabulary::kNone && !lenient_)
        return fail(Code::tokenizer_invalid, "merge {}'s{} '{}' is not in the vocabulary", rank_ + i,
                    k == 2 ? " result" : "", parts[k]);
    }
    table_.prefetch(ids[i][0], ids[i][1]);
  }
  for (size_t i = 0; i < count_; ++i) {
    const auto [left, right, joined] = ids[i];
    if (left != Vocabulary::kNone && right != Vocabulary::kNone && joined != Vocabulary::kNone)
      table_.add(left, right, {rank_ + static_cast<uint32_t>(i), joined});
  }
  rank_ += static_cast<uint32_t>(count_);
  count_ = 0;
  return {};
}

}  // namespace tessera::text
