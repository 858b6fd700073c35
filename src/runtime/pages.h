// Which rows of a key-value cache belong to whom: pages of equal size, counted by their users, so that sequences that
// begin alike share what is computed once.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tessera/error.h"

namespace tessera::runtime {

// Not thread-safe: it belongs to whoever schedules the steps.
class PagePool {
 public:
  // Pages of `rows` rows each.
  PagePool(int64_t pages, int64_t rows);

  // A page for one user, its contents undefined; E0503 when all are in use. Pages that only wait to be found again are
  // given up first, the longest unused first.
  Result<int64_t> take();
  void release(int64_t page);
  // Pages that take() can still give.
  int64_t available() const { return static_cast<int64_t>(free_.size() + idle_.size()); }
  int64_t rows() const { return rows_; }

  // The pages of the longest known beginning of `tokens` in whole pages, each with one user more. Never all of them:
  // the last token has to be computed for its result.
  std::vector<int64_t> find(std::span<const int64_t> tokens);
  // Makes known that pages[i] holds the tokens [i rows, (i + 1) rows) of a sequence, after those before it.
  void remember(std::span<const int64_t> tokens, std::span<const int64_t> pages);

 private:
  // A page by the page before it (-1: none) and its own tokens.
  struct Key {
    int64_t before;
    std::vector<int64_t> tokens;
    auto operator<=>(const Key&) const = default;
  };
  void forget(int64_t page);

  struct Page {
    int64_t users = 0;
    int64_t used = 0;  // when it was last given up
    bool known = false;
    std::map<Key, int64_t>::iterator entry = {};
    int64_t children = 0;  // known pages that follow it
  };
  int64_t rows_;
  int64_t clock_ = 0;
  std::vector<Page> pages_;
  std::vector<int64_t> free_;
  std::map<int64_t, int64_t> idle_;  // known pages without a user, by when they were last used
  std::map<Key, int64_t> known_;
};

}  // namespace tessera::runtime
