#include "attention/page_pool.h"

#include <cstring>

namespace qkv {
namespace {

// Sizes whose product overflows are one typed error: out of memory.
int64_t PoolBytes(int64_t pages, int64_t bytes_per_page) {
  const size_t bytes = CheckedBytes(pages, static_cast<size_t>(bytes_per_page));
  return bytes > static_cast<size_t>(INT64_MAX) ? -1 : static_cast<int64_t>(bytes);
}

}  // namespace

PagePool::PagePool(int64_t pages, int64_t bytes_per_page)
    : bytes_per_page_(bytes_per_page), memory_(PoolBytes(pages, bytes_per_page)) {
  references_.resize(static_cast<size_t>(pages));
  for (int64_t page = pages - 1; page >= 0; --page) free_.push_back(page);
}

size_t PagePool::Index(const std::byte* page) const {
  return static_cast<size_t>((page - memory_.data()) / bytes_per_page_);
}

std::byte* PagePool::Take() {
  const int64_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return memory_.data() + page * bytes_per_page_;
}

void PagePool::Share(std::byte* page) { ++references_[Index(page)]; }

void PagePool::Release(std::byte* page) {
  if (--references_[Index(page)] == 0) free_.push_back(static_cast<int64_t>(Index(page)));
}

std::byte* PagePool::MakeOwn(std::byte* page) {
  if (references_[Index(page)] == 1) return page;
  std::byte* own = Take();
  std::memcpy(own, page, static_cast<size_t>(bytes_per_page_));
  Release(page);
  return own;
}

}  // namespace qkv
