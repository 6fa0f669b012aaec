#include "cache/page_pool.h"

#include <fmt/format.h>

#include <limits>

#include "base/quantity.h"

namespace ridge::cache {

Result<PagePool> PagePool::Create(int32_t capacity_pages) {
  if (capacity_pages < 1 || capacity_pages > kMaxCapacityPages) {
    return Fail(Code::kInvalidArgument, "invalid page pool")
        .Found(Count(capacity_pages, "page"))
        .Expected(fmt::format("1 to {}", kMaxCapacityPages));
  }
  return PagePool(capacity_pages);
}

PagePool::PagePool(int32_t capacity_pages)
    : references_(static_cast<size_t>(capacity_pages), 0),
      cached_(references_.size(), false),
      pinned_(references_.size(), false) {
  free_.reserve(references_.size());
  for (PageId page = capacity_pages - 1; page >= 0; --page) free_.push_back(page);
}

Result<PageId> PagePool::Allocate() {
  PageId page = kNoPage;
  RIDGE_RETURN_IF_ERROR(Allocate(std::span<PageId>(&page, 1)));
  return page;
}

Status PagePool::Allocate(std::span<PageId> pages) {
  if (pages.size() > free_.size()) {
    return Fail(Code::kResourceExhausted, "no free KV pages")
        .Found(fmt::format("{} of {} pages free", free_.size(), capacity_pages()))
        .Expected(fmt::format("{} free", pages.size()));
  }
  for (PageId& page : pages) {
    page = free_.back();
    free_.pop_back();
    references_[page] = 1;
    ++held_pages_;
  }
  return {};
}

void PagePool::AddRef(PageId page) {
  RIDGE_CHECK(InRange(page) && references_[page] > 0 && references_[page] < std::numeric_limits<int32_t>::max());
  if (cached_[page] && references_[page] == 1) CountIdle(page, -1);
  ++references_[page];
}

void PagePool::SetCached(PageId page, bool cached) {
  RIDGE_CHECK(InRange(page) && references_[page] > 0 && cached_[page] != cached && !pinned_[page]);
  cached_[page] = cached;
  if (references_[page] == 1) CountIdle(page, cached ? 1 : -1);
}

void PagePool::SetPinned(PageId page, bool pinned) {
  RIDGE_CHECK(InRange(page) && cached_[page] && pinned_[page] != pinned);
  pinned_[page] = pinned;
  if (references_[page] == 1) pinned_idle_pages_ += pinned ? 1 : -1;
}

bool PagePool::Release(PageId page) {
  RIDGE_CHECK(InRange(page) && references_[page] > 0);
  if (--references_[page] > 0) {
    if (cached_[page] && references_[page] == 1) CountIdle(page, 1);
    return false;
  }
  RIDGE_CHECK(!cached_[page]);  // the cache says so before it lets go
  free_.push_back(page);
  --held_pages_;
  return true;
}

int32_t PagePool::references(PageId page) const {
  RIDGE_CHECK(InRange(page));
  return references_[page];
}

Status PagePool::CheckIntegrity() const {
  const auto broken = [](std::string what, PageId page) {
    return Fail(Code::kInternal, std::move(what)).Where(fmt::format("page {}", page));
  };
  std::vector<bool> is_free(references_.size(), false);
  for (const PageId page : free_) {
    if (!InRange(page)) return broken("free list holds a foreign page", page);
    if (is_free[page]) return broken("free list holds a page twice", page);
    is_free[page] = true;
  }
  int32_t held = 0, idle = 0, pinned = 0;
  for (PageId page = 0; page < capacity_pages(); ++page) {
    if (references_[page] < 0) return broken("negative references", page);
    if (is_free[page] && references_[page] != 0) return broken("free page has references", page);
    if (!is_free[page] && references_[page] == 0) return broken("page is neither free nor held", page);
    if (references_[page] == 0 && cached_[page]) return broken("a free page is marked as cached", page);
    held += references_[page] > 0;
    if (pinned_[page] && !cached_[page]) return broken("a page is pinned that the cache does not hold", page);
    idle += references_[page] == 1 && cached_[page];
    pinned += references_[page] == 1 && pinned_[page];
  }
  if (idle != idle_pages_ || pinned != pinned_idle_pages_) {
    return Fail(Code::kInternal, "idle pages do not add up")
        .Found(fmt::format("{} by references, {} by count; {} and {} pinned", idle, idle_pages_, pinned,
                           pinned_idle_pages_));
  }
  if (held != held_pages_ || held + free_pages() != capacity_pages()) {
    return Fail(Code::kInternal, "page counts do not add up")
        .Found(fmt::format("{} held by references, {} by count, {} free", held, held_pages_, free_pages()))
        .Expected(fmt::format("{} in all", capacity_pages()));
  }
  return {};
}

Status PagePool::CheckIntegrity(std::span<const std::span<const PageId>> holders) const {
  RIDGE_RETURN_IF_ERROR(CheckIntegrity());
  std::vector<int32_t> counted(references_.size(), 0);
  for (const std::span<const PageId> holder : holders) {
    for (const PageId page : holder) {
      if (page == kNoPage) continue;
      if (!InRange(page))
        return Fail(Code::kInternal, "a holder lists a foreign page").Where(fmt::format("page {}", page));
      ++counted[page];
    }
  }
  for (PageId page = 0; page < capacity_pages(); ++page) {
    if (counted[page] == references_[page]) continue;
    return Fail(Code::kInternal, "references do not match the holders")
        .Where(fmt::format("page {}", page))
        .Found(fmt::format("{} references", references_[page]))
        .Expected(fmt::format("{}, one per holder", counted[page]));
  }
  return {};
}

}  // namespace ridge::cache
