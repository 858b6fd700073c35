#include "plan/colour.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace tessera::plan {
namespace {

using Order = std::vector<uint32_t>;

// Searching a gap among all placed intervals is quadratic: above this only the linear walk over time is tried.
constexpr size_t kMaxQuadratic = 1500;
// Orders are mended at most this often, and so that all of them together stay cheap beside the rest of planning.
constexpr size_t kMostRepairs = 32, kMostRepairWork = 1'000'000;

bool overlap(const Interval& a, const Interval& b) { return a.first <= b.last && b.first <= a.last; }

// Places intervals in `order`, each into the tightest gap between those placed before that live at the same time. A gap
// above another interval is filled from its top, `ceiling` at most: so long-lived ones gather at both edges of the
// arena, and leave the middle whole for large ones.
Colouring place_in_order(std::span<const Interval> intervals, const Order& order, size_t ceiling) {
  Colouring result = {std::vector<size_t>(intervals.size(), 0), 0};
  std::vector<uint32_t> placed;  // by offset
  for (uint32_t i : order) {
    const size_t bytes = intervals[i].bytes;
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
    auto consider = [&](size_t top) {
      if (top < end || top - end < bytes || top - end >= best_gap) return;
      best = end == 0 ? 0 : top - bytes;
      best_gap = top - end;
    };
    for (uint32_t p : placed) {
      if (!overlap(intervals[p], intervals[i])) continue;
      consider(result.offsets[p]);
      end = std::max(end, result.offsets[p] + intervals[p].bytes);
    }
    consider(ceiling);
    const size_t at = best == SIZE_MAX ? end : best;
    result.offsets[i] = at;
    result.total = std::max(result.total, at + bytes);
    auto where = std::upper_bound(placed.begin(), placed.end(), at,
                                  [&](size_t offset, uint32_t p) { return offset < result.offsets[p]; });
    placed.insert(where, i);
  }
  return result;
}

// Walks the steps as an allocator would: frees what died, takes the tightest free range for what is born.
Colouring place_over_time(std::span<const Interval> intervals) {
  Colouring result = {std::vector<size_t>(intervals.size(), 0), 0};
  Order births(intervals.size()), deaths(intervals.size());
  std::iota(births.begin(), births.end(), 0);
  deaths = births;
  std::stable_sort(births.begin(), births.end(), [&](uint32_t a, uint32_t b) {
    return intervals[a].first != intervals[b].first ? intervals[a].first < intervals[b].first
                                                    : intervals[a].bytes > intervals[b].bytes;
  });
  std::stable_sort(deaths.begin(), deaths.end(),
                   [&](uint32_t a, uint32_t b) { return intervals[a].last < intervals[b].last; });
  std::map<size_t, size_t> free_at;             // offset -> bytes
  std::set<std::pair<size_t, size_t>> by_size;  // (bytes, offset)
  auto add_free = [&](size_t offset, size_t bytes) {
    auto next = free_at.lower_bound(offset);
    if (next != free_at.end() && next->first == offset + bytes) {
      bytes += next->second;
      by_size.erase({next->second, next->first});
      next = free_at.erase(next);
    }
    if (next != free_at.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        by_size.erase({before->second, before->first});
        free_at.erase(before);
      }
    }
    free_at.emplace(offset, bytes);
    by_size.emplace(bytes, offset);
  };
  auto take_free = [&](std::map<size_t, size_t>::iterator range) {
    by_size.erase({range->second, range->first});
    free_at.erase(range);
  };
  size_t dead = 0;
  for (uint32_t i : births) {
    for (; dead < deaths.size() && intervals[deaths[dead]].last < intervals[i].first; ++dead)
      add_free(result.offsets[deaths[dead]], intervals[deaths[dead]].bytes);
    const size_t bytes = intervals[i].bytes;
    auto fit = by_size.lower_bound({bytes, 0});
    size_t at = result.total;
    if (fit != by_size.end()) {
      const auto [size, offset] = *fit;
      at = offset;
      take_free(free_at.find(offset));
      if (size > bytes) add_free(offset + bytes, size - bytes);
    } else if (!free_at.empty() && free_at.rbegin()->first + free_at.rbegin()->second == result.total) {
      at = free_at.rbegin()->first;  // the free range at the end grows
      take_free(std::prev(free_at.end()));
    }
    result.offsets[i] = at;
    result.total = std::max(result.total, at + bytes);
  }
  return result;
}

}  // namespace

Colouring colour(std::span<const Interval> intervals, size_t alignment) {
  std::vector<Interval> sized;  // those that take memory, rounded
  std::vector<uint32_t> which;
  for (uint32_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].bytes == 0) continue;
    sized.push_back(intervals[i]);
    sized.back().bytes = (intervals[i].bytes + alignment - 1) & ~(alignment - 1);
    which.push_back(i);
  }
  Colouring best = place_over_time(sized);
  const size_t bound = live_set_bound(sized);
  if (sized.size() <= kMaxQuadratic) {
    auto length = [&](uint32_t i) { return sized[i].last - sized[i].first; };
    auto area = [&](uint32_t i) { return static_cast<double>(sized[i].bytes) * (length(i) + 1.0); };
    auto larger = [&](uint32_t a, uint32_t b) {
      return sized[a].bytes != sized[b].bytes ? sized[a].bytes > sized[b].bytes : length(a) > length(b);
    };
    auto longer = [&](uint32_t a, uint32_t b) { return length(a) != length(b) ? length(a) > length(b) : larger(a, b); };
    auto wider = [&](uint32_t a, uint32_t b) { return area(a) > area(b); };
    auto earlier = [&](uint32_t a, uint32_t b) { return sized[a].first < sized[b].first; };
    Order order(sized.size());
    auto attempt = [&](auto before) {
      if (best.total == bound) return;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), before);
      for (size_t ceiling : {size_t{0}, bound})
        if (Colouring next = place_in_order(sized, order, ceiling); next.total < best.total) best = std::move(next);
    };
    // What came to lie highest found no room where it belongs: it goes first.
    auto repair = [&](auto before) {
      const size_t rounds = std::min(kMostRepairs, kMostRepairWork / (sized.size() * sized.size() + 1));
      if (best.total == bound) return;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), before);
      for (size_t round = 0; round < rounds && best.total > bound; ++round) {
        Colouring next = place_in_order(sized, order, bound);
        const auto top = std::find_if(order.begin(), order.end(),
                                      [&](uint32_t i) { return next.offsets[i] + sized[i].bytes == next.total; });
        std::rotate(order.begin(), top, top + 1);
        if (next.total < best.total) best = std::move(next);
      }
    };
    attempt(larger);
    attempt(wider);
    attempt(longer);
    attempt(earlier);
    repair(larger);
    repair(wider);
    repair(longer);
  }
  Colouring result = {std::vector<size_t>(intervals.size(), 0), best.total};
  for (size_t i = 0; i < which.size(); ++i) result.offsets[which[i]] = best.offsets[i];
  return result;
}

size_t live_set_bound(std::span<const Interval> intervals) {
  std::map<uint32_t, std::pair<size_t, size_t>> changes;  // step -> (bytes born there, bytes dead before it)
  for (const Interval& interval : intervals) {
    changes[interval.first].first += interval.bytes;
    if (interval.last != UINT32_MAX) changes[interval.last + 1].second += interval.bytes;
  }
  size_t live = 0, most = 0;
  for (const auto& [step, change] : changes) {
    live += change.first - change.second;
    most = std::max(most, live);
  }
  return most;
}

}  // namespace tessera::plan
