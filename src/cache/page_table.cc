#include "cache/page_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/quantity.h"

namespace ridge::cache {

PageTable::PageTable(PagePool* pool, int32_t page_tokens) : pool_(pool), page_tokens_(page_tokens) {
  RIDGE_CHECK(pool != nullptr && page_tokens >= 1);
}

PageTable::PageTable(PageTable&& other) noexcept
    : pool_(other.pool_),
      page_tokens_(other.page_tokens_),
      pages_(std::exchange(other.pages_, {})),
      dropped_(std::exchange(other.dropped_, 0)) {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  if (this == &other) return *this;
  Clear();
  pool_ = other.pool_;
  page_tokens_ = other.page_tokens_;
  pages_ = std::exchange(other.pages_, {});
  dropped_ = std::exchange(other.dropped_, 0);
  return *this;
}

Status PageTable::Reserve(int64_t tokens) {
  const int64_t need = PagesForTokens(std::max<int64_t>(tokens, 0), page_tokens_);
  const int64_t have = static_cast<int64_t>(pages_.size());
  if (need <= have) return {};
  // Before the table grows, so that an absurd count asks for no memory.
  if (need - have > pool_->free_pages()) {
    return Fail(Code::kResourceExhausted, "no free KV pages")
        .Found(fmt::format("{} of {} pages free", pool_->free_pages(), pool_->capacity_pages()))
        .Expected(fmt::format("{} more for {}", need - have, Count(tokens, "token")));
  }
  pages_.resize(static_cast<size_t>(need), kNoPage);
  return pool_->Allocate(std::span<PageId>(pages_).subspan(static_cast<size_t>(have)));
}

void PageTable::AdoptPrefix(std::span<const PageId> prefix) {
  RIDGE_CHECK(pages_.empty());
  pages_.assign(prefix.begin(), prefix.end());
  for (const PageId page : prefix) pool_->AddRef(page);
}

void PageTable::AdoptNext(PageId page) {
  pages_.push_back(page);  // first: where there is no memory nothing has changed
  pool_->AddRef(page);
}

void PageTable::Replace(size_t i, PageId page) {
  pool_->AddRef(page);
  pool_->Release(pages_[i]);
  pages_[i] = page;
}

Result<std::optional<PageCopy>> PageTable::PrepareWrite(int64_t first_token) {
  if (first_token < 0 || first_token >= capacity_tokens())
    return std::nullopt;  // nothing reserved there: nothing shared
  PageId& page = pages_[static_cast<size_t>(first_token / page_tokens_)];
  RIDGE_CHECK(page != kNoPage);
  if (pool_->references(page) == 1) return std::nullopt;
  RIDGE_ASSIGN_OR_RETURN(const PageId fresh, pool_->Allocate());
  const PageCopy copy{page, fresh};
  pool_->Release(page);
  page = fresh;
  return copy;
}

void PageTable::Truncate(int64_t tokens) {
  const size_t keep = static_cast<size_t>(PagesForTokens(std::max<int64_t>(tokens, 0), page_tokens_));
  while (pages_.size() > keep) {
    if (pages_.back() != kNoPage) pool_->Release(pages_.back());
    pages_.pop_back();
  }
  dropped_ = std::min(dropped_, pages_.size());
}

void PageTable::DropBefore(int64_t token) {
  const size_t end = std::min(static_cast<size_t>(std::max<int64_t>(token, 0) / page_tokens_), pages_.size());
  for (; dropped_ < end; ++dropped_) {
    pool_->Release(pages_[dropped_]);
    pages_[dropped_] = kNoPage;
  }
}

}  // namespace ridge::cache
