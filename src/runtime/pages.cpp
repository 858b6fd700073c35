#include "runtime/pages.h"

#include "base/result.h"

namespace tessera::runtime {

PagePool::PagePool(int64_t pages, int64_t rows) : rows_(rows), pages_(static_cast<size_t>(pages)) {
  for (int64_t i = pages; i-- > 0;) free_.push_back(i);
}

Result<int64_t> PagePool::take() {
  if (free_.empty()) {
    // A page that others follow would leave these unreachable: they were given up later, so leaves come first.
    for (const auto& [used, page] : idle_) {
      if (pages_[static_cast<size_t>(page)].children > 0) continue;
      const int64_t victim = page;
      idle_.erase(used);
      forget(victim);
      free_.push_back(victim);
      break;
    }
  }
  if (free_.empty())
    return fail(Code::out_of_memory, "all {} pages of the cache, of {} tokens each, are in use", pages_.size(), rows_);
  const int64_t page = free_.back();
  free_.pop_back();
  pages_[static_cast<size_t>(page)].users = 1;
  return page;
}

void PagePool::release(int64_t page) {
  Page& p = pages_[static_cast<size_t>(page)];
  if (--p.users > 0) return;
  if (!p.known) {
    free_.push_back(page);
    return;
  }
  p.used = ++clock_;
  idle_.emplace(p.used, page);
}

std::vector<int64_t> PagePool::find(std::span<const int64_t> tokens) {
  std::vector<int64_t> found;
  int64_t before = -1;
  for (size_t at = 0; at + static_cast<size_t>(rows_) < tokens.size(); at += static_cast<size_t>(rows_)) {
    const auto part = tokens.subspan(at, static_cast<size_t>(rows_));
    const auto entry = known_.find(Key{before, {part.begin(), part.end()}});
    if (entry == known_.end()) break;
    before = entry->second;
    Page& p = pages_[static_cast<size_t>(before)];
    if (p.users++ == 0) idle_.erase(p.used);
    found.push_back(before);
  }
  return found;
}

void PagePool::remember(std::span<const int64_t> tokens, std::span<const int64_t> pages) {
  int64_t before = -1;
  for (size_t i = 0; i < pages.size() && (i + 1) * static_cast<size_t>(rows_) <= tokens.size(); ++i) {
    Page& p = pages_[static_cast<size_t>(pages[i])];
    if (!p.known) {
      const auto part = tokens.subspan(i * static_cast<size_t>(rows_), static_cast<size_t>(rows_));
      const auto [entry, fresh] = known_.emplace(Key{before, {part.begin(), part.end()}}, pages[i]);
      if (!fresh) return;  // another sequence computed the same beforehand: this one's pages stay its own
      p.known = true;
      p.entry = entry;
      if (before >= 0) ++pages_[static_cast<size_t>(before)].children;
    }
    before = pages[i];
  }
}

void PagePool::forget(int64_t page) {
  Page& p = pages_[static_cast<size_t>(page)];
  if (p.entry->first.before >= 0) --pages_[static_cast<size_t>(p.entry->first.before)].children;
  known_.erase(p.entry);
  p.known = false;
}

}  // namespace tessera::runtime
