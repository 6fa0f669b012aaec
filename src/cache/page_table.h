// PageTable: the pages of one sequence, in token order: token t lies in pages()[t / page_tokens()], slot t %
// page_tokens().
//
//   PageTable table(&pool, 32);
//   RIDGE_RETURN_IF_ERROR(table.Reserve(tokens_so_far + chunk));
//
// Guarantees: holds exactly one reference for each page it lists and gives them back in its destructor, so a sequence
// that is cancelled or fails leaks nothing. A call that fails changes nothing. Pages taken from a shared prefix are
// never written: PrepareWrite puts a private page in place first. Engine thread only; the pool must outlive the table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/page_pool.h"

namespace ridge::cache {

struct PageCopy {  // the backend must copy the contents of `from` to `to` before the next step
  PageId from = kNoPage;
  PageId to = kNoPage;
};

// Pages that `tokens` tokens need. tokens >= 0, page_tokens >= 1.
constexpr int64_t PagesForTokens(int64_t tokens, int32_t page_tokens) {
  return tokens / page_tokens + (tokens % page_tokens != 0 ? 1 : 0);
}

class PageTable {
 public:
  // pool is borrowed. page_tokens >= 1, checked.
  PageTable(PagePool* pool, int32_t page_tokens);
  ~PageTable() { Clear(); }
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;

  // Makes room for `tokens` tokens in all. Errors: kResourceExhausted.
  Status Reserve(int64_t tokens);

  // Starts an empty table with a prefix that others hold too (from the prefix tree): one more reference for each page.
  void AdoptPrefix(std::span<const PageId> prefix);

  // One more page that others hold too, behind the ones that there are.
  void AdoptNext(PageId page);

  // Puts another page, which holds the same tokens, in the place of one: the old one is given back. i < pages().size().
  void Replace(size_t i, PageId page);

  // Before tokens from `first_token` on are written: if the page they start in is shared, replaces it by a private one
  // and says what to copy. Later pages of the table must not be shared (they are not, if the table was cut by
  // Truncate). Errors: kResourceExhausted.
  Result<std::optional<PageCopy>> PrepareWrite(int64_t first_token);

  // Keeps what `tokens` tokens need and gives the rest back.
  void Truncate(int64_t tokens);

  // Gives back the pages all of whose tokens are before `token` (a sliding window has passed them); their entries
  // become kNoPage and the others keep their places.
  void DropBefore(int64_t token);

  void Clear() { Truncate(0); }

  std::span<const PageId> pages() const { return pages_; }  // [PagesForTokens(tokens)]; kNoPage where dropped
  int32_t page_tokens() const { return page_tokens_; }
  int64_t capacity_tokens() const { return static_cast<int64_t>(pages_.size()) * page_tokens_; }

 private:
  PagePool* pool_;
  int32_t page_tokens_;
  std::vector<PageId> pages_;
  size_t dropped_ = 0;  // pages_[0, dropped_) are kNoPage
};

}  // namespace ridge::cache
