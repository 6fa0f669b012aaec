// PagePool: who holds which page of the KV cache. Pages are numbers; what a page stores, and where, is the backend's
// business.
//
//   RIDGE_ASSIGN_OR_RETURN(PagePool pool, PagePool::Create(1024));
//   RIDGE_ASSIGN_OR_RETURN(PageId page, pool.Allocate());  // one reference; pool.Release(page) gives it back
//
// A page is free or held. A held page has one reference per holder: each sequence whose PageTable lists it, and the
// prefix cache for the one node that keeps it. A page with the cache's reference alone is idle: the cache may give it up.
//
// Guarantees: free_pages() + held_pages() == capacity_pages(), always; idle_pages() of the held ones are idle. Every operation is constant time per page. Which
// page comes next is a function of the calls so far: 0, 1, 2, ... at first, then the most recently freed (its memory is
// the likeliest to be in the processor's cache). Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace ridge::cache {

using PageId = int32_t;
inline constexpr PageId kNoPage = -1;

class PagePool {
 public:
  static constexpr int32_t kMaxCapacityPages = 1 << 30;

  // Errors: kInvalidArgument unless 1 <= capacity_pages <= kMaxCapacityPages.
  static Result<PagePool> Create(int32_t capacity_pages);

  PagePool(PagePool&&) = default;
  PagePool& operator=(PagePool&&) = default;

  // One page with one reference. Errors: kResourceExhausted.
  Result<PageId> Allocate();

  // Fills `pages` with one reference each, or changes nothing. Errors: kResourceExhausted, saying how many are missing.
  Status Allocate(std::span<PageId> pages);

  // One more reference to a held page. A free page or a foreign number is a fault of ours and ends the process.
  void AddRef(PageId page);

  // One reference less; true when that was the last and the page is free now.
  bool Release(PageId page);

  // Says that one of the references of a held page is the prefix cache's, or no longer is. Not twice in a row.
  void SetCached(PageId page, bool cached);

  // Says that the prefix cache has promised to keep a page that it holds, or no longer does. Not twice in a row.
  void SetPinned(PageId page, bool pinned);

  int32_t capacity_pages() const { return static_cast<int32_t>(references_.size()); }
  int32_t free_pages() const { return static_cast<int32_t>(free_.size()); }
  int32_t held_pages() const { return held_pages_; }
  int32_t idle_pages() const { return idle_pages_; }                // held by the prefix cache alone
  int32_t pinned_idle_pages() const { return pinned_idle_pages_; }  // of them, those that it has promised to keep
  int32_t references(PageId page) const;                            // 0: free

  // Proves the guarantees in time linear in the capacity. Errors: kInternal, naming the page.
  Status CheckIntegrity() const;

  // The same, and that every reference belongs to a holder: page p has as many references as it occurs in `holders`
  // (kNoPage is passed over). Finds leaks and double releases.
  Status CheckIntegrity(std::span<const std::span<const PageId>> holders) const;

 private:
  explicit PagePool(int32_t capacity_pages);
  bool InRange(PageId page) const { return page >= 0 && page < capacity_pages(); }

  std::vector<int32_t> references_;  // [capacity]
  std::vector<bool> cached_;         // [capacity]
  std::vector<bool> pinned_;         // [capacity]; only of cached ones
  std::vector<PageId> free_;         // a stack; its last element is handed out next
  int32_t held_pages_ = 0, idle_pages_ = 0, pinned_idle_pages_ = 0;

  void CountIdle(PageId page, int32_t change) {
    idle_pages_ += change;
    if (pinned_[static_cast<size_t>(page)]) pinned_idle_pages_ += change;
  }
};

}  // namespace ridge::cache
