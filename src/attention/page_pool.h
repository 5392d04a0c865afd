// Fixed-size pages of memory with reference counts: forked sequences share them, a writer gets its own.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/aligned.h"

namespace qkv {

class PagePool {
 public:
  PagePool(int64_t pages, int64_t bytes_per_page);

  std::byte* Take();                     // a page of one reference; the pool is sized so that there is one
  void Share(std::byte* page);           // one more reference
  void Release(std::byte* page);         // one fewer; the last one frees it
  std::byte* MakeOwn(std::byte* page);   // the same page if nobody else has it, else a copy; the reference moves
  int64_t bytes_per_page() const { return bytes_per_page_; }
  int64_t bytes() const { return memory_.size(); }
  const std::byte* data() const { return memory_.data(); }

 private:
  size_t Index(const std::byte* page) const;

  int64_t bytes_per_page_;
  AlignedBuffer<std::byte> memory_;
  std::vector<int32_t> references_;
  std::vector<int64_t> free_;
};

}  // namespace qkv
