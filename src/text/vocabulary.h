// Tokens and their ids: one block of memory for the strings, open addressing for the way back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera::text {

uint64_t hash_bytes(std::string_view bytes);

class Vocabulary {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // Ids are below this: more than any model has, and few enough that a hostile id cannot exhaust memory.
  static constexpr uint32_t kMaxIds = 1u << 24;

  // The longest tokens of real models have some hundred bytes. Searches take time for each place times this.
  static constexpr size_t kMaxTokenBytes = 4096;

  void reserve(size_t tokens, size_t bytes);
  // E0209 when the token is too long, or `id` is out of range or has another token already. A token that is there keeps
  // its first id, but reading it back by the new id works too.
  Status add(std::string_view token, uint64_t id);
  // The id, or kNone.
  uint32_t find(std::string_view token) const { return find(token, hash_bytes(token)); }
  uint32_t find(std::string_view token, uint64_t hash) const;
  // Begin to fetch what find() reads first, and then.
  void prefetch_slot(uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }
  void prefetch_token(uint64_t hash) const {
    if (slots_.empty()) return;
    const Slot& slot = slots_[hash & (slots_.size() - 1)];
    if (slot.id != kNone) __builtin_prefetch(bytes_.data() + slot.place.begin);
  }
  // The largest id + 1.
  size_t size() const { return places_.size(); }
  bool has(uint64_t id) const { return id < places_.size() && places_[id].begin != kNone; }
  std::string_view token(uint64_t id) const {
    return has(id) ? std::string_view(bytes_).substr(places_[id].begin, places_[id].length) : std::string_view();
  }
  size_t longest() const { return longest_; }  // bytes

 private:
  struct Place {
    uint32_t begin = kNone;
    uint32_t length = 0;
  };
  struct Slot {
    uint32_t id = kNone;
    uint32_t hash = 0;  // its upper half: most slots of other tokens are told apart without reading the token
    Place place = {};   // as in places_: one memory access less
  };
  void grow();

  std::string bytes_;
  std::vector<Place> places_;  // by id
  std::vector<Slot> slots_;    // a power of two, at most half full
  size_t count_ = 0;
  size_t longest_ = 0;
};

}  // namespace tessera::text
