// The instances of a session's routines, the least recently used thrown away when there are too many or they are too
// large.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "plan/instantiate.h"

namespace tessera::runtime {

// May be used from several threads at once.
class InstanceCache {
 public:
  InstanceCache(size_t capacity, size_t bytes) : capacity_(capacity), most_bytes_(bytes) {}

  // nullptr when there is none for these sizes.
  std::shared_ptr<const plan::Instance> find(uint32_t routine, const plan::Bindings& symbols);
  void insert(uint32_t routine, std::shared_ptr<const plan::Instance> instance);
  size_t size() const;

 private:
  struct Key {
    uint32_t routine;
    plan::Bindings symbols;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  using Entries = std::list<std::pair<Key, std::shared_ptr<const plan::Instance>>>;  // most recently used first

  size_t capacity_, most_bytes_;
  size_t bytes_ = 0;  // of the entries
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<Key, Entries::iterator, Hash> by_key_;
};

}  // namespace tessera::runtime
