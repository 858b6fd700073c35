#include "runtime/instance_cache.h"

namespace tessera::runtime {
namespace {

// Close enough: the vectors that grow with the plan.
size_t bytes_of(const plan::Instance& instance) {
  return sizeof(instance) + instance.places.size() * sizeof(plan::Place) + instance.checked.size() / 8 +
         instance.sizes.bytes();
}

}  // namespace

size_t InstanceCache::Hash::operator()(const Key& key) const {
  uint64_t hash = key.routine;
  for (const std::optional<int64_t>& value : key.symbols) {
    hash ^= static_cast<uint64_t>(value.value_or(-1)) + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
    hash *= 0xff51afd7ed558ccd;
  }
  return hash;
}

std::shared_ptr<const plan::Instance> InstanceCache::find(uint32_t routine, const plan::Bindings& symbols) {
  const std::lock_guard lock(mutex_);
  auto found = by_key_.find(Key{routine, symbols});
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->second;
}

void InstanceCache::insert(uint32_t routine, std::shared_ptr<const plan::Instance> instance) {
  const std::lock_guard lock(mutex_);
  Key key = {routine, instance->symbols};
  if (by_key_.contains(key)) return;  // another thread was faster
  bytes_ += bytes_of(*instance);
  entries_.emplace_front(key, std::move(instance));
  by_key_.emplace(std::move(key), entries_.begin());
  while (entries_.size() > capacity_ || (bytes_ > most_bytes_ && entries_.size() > 1)) {
    bytes_ -= bytes_of(*entries_.back().second);
    by_key_.erase(entries_.back().first);
    entries_.pop_back();
  }
}

size_t InstanceCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace tessera::runtime
