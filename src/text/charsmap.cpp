#include "text/charsmap.h"

#include <cstring>

#include "base/result.h"

namespace tessera::text {
namespace {

// The fields of a unit, as darts-clone packs them.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view blob) {
  Charsmap map;
  if (blob.empty()) return map;
  uint32_t size = 0;
  if (blob.size() < sizeof size) return fail(Code::file_truncated, "the charsmap has {} bytes", blob.size());
  std::memcpy(&size, blob.data(), sizeof size);
  blob.remove_prefix(sizeof size);
  if (size > blob.size())
    return fail(Code::file_truncated, "the charsmap's trie has {} bytes, but only {} follow", size, blob.size());
  if (size % 4 != 0 || size == 0) return fail(Code::file_malformed, "the charsmap's trie has {} bytes", size);
  map.units_.resize(size / 4);
  std::memcpy(map.units_.data(), blob.data(), size);
  map.replacements_ = blob.substr(size);
  return map;
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, size_t at, bool first) const {
  std::optional<Match> best;
  if (units_.empty()) return best;
  size_t node = offset(units_[0]);
  for (size_t i = at; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (node >= units_.size()) break;
    if (!has_leaf(unit)) continue;
    const size_t begin = value(units_[node]);
    if (begin >= replacements_.size()) continue;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    best = Match{i + 1 - at, rest.substr(0, rest.find('\0'))};
    if (first) break;
  }
  return best;
}

}  // namespace tessera::text
