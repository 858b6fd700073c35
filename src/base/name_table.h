// From names to values: a hash table in one piece of memory, for the hundred thousand names of a large model.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

// Names are not copied: whoever adds one keeps it alive. Entries stay; a pointer to a value is good until the next
// name is added.
template <class T>
class NameTable {
 public:
  T* find(std::string_view name) { return const_cast<T*>(std::as_const(*this).find(name)); }
  const T* find(std::string_view name) const {
    if (entries_.empty()) return nullptr;
    const uint32_t hash = hash_of(name);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.entry == kFree) return nullptr;
      if (slot.hash == hash && entries_[slot.entry].first == name) return &entries_[slot.entry].second;
    }
  }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  size_t size() const { return entries_.size(); }
  // Makes room for so many names in all.
  void reserve(size_t names) {
    entries_.reserve(names);
    while (slots_.size() < 2 * names) grow();
  }

  // The value of the name, and whether it is new; then it is `value`.
  std::pair<T*, bool> add(std::string_view name, T value) {
    if (T* found = find(name)) return {found, false};
    if (2 * (entries_.size() + 1) > slots_.size()) grow();
    const auto entry = static_cast<uint32_t>(entries_.size());
    entries_.emplace_back(name, std::move(value));
    put(hash_of(name), entry);
    return {&entries_.back().second, true};
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t entry = kFree;
  };
  static constexpr uint32_t kFree = ~uint32_t{0};

  static uint32_t hash_of(std::string_view name) {
    const uint64_t wide = std::hash<std::string_view>()(name);
    return static_cast<uint32_t>(wide ^ (wide >> 32));
  }
  void put(uint32_t hash, uint32_t entry) {
    size_t at = hash & mask_;
    while (slots_[at].entry != kFree) at = (at + 1) & mask_;
    slots_[at] = {hash, entry};
  }
  void grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.empty() ? 16 : 2 * old.size(), Slot());
    mask_ = slots_.size() - 1;
    for (const Slot& slot : old)
      if (slot.entry != kFree) put(slot.hash, slot.entry);
  }

  std::vector<std::pair<std::string_view, T>> entries_;
  std::vector<Slot> slots_;  // a power of two, at most half of them taken
  size_t mask_ = 0;
};

}  // namespace tessera
