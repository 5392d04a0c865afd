// Memory that ends exactly at an unreadable page, so that one element too many is a crash. AddressSanitizer
// does not see generated code or memory behind a mask; this does.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace qkv::test {

// Which end of the buffer touches an unreadable page. The other end has one too, up to a page away.
enum class Edge { kEnd, kBegin };

// `count` elements, zero at first. At kEnd data() is aligned for T only, whatever vectors would like.
template <class T>
class GuardedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit GuardedBuffer(int64_t count, Edge edge = Edge::kEnd) : count_(static_cast<size_t>(count)) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = count_ * sizeof(T);
    const size_t inner = (bytes + page - 1) / page * page;
    mapped_bytes_ = inner + 2 * page;
    void* memory = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mapped_ = static_cast<std::byte*>(memory);
    if (inner > 0 && mprotect(mapped_ + page, inner, PROT_READ | PROT_WRITE) != 0) {
      munmap(mapped_, mapped_bytes_);
      throw std::bad_alloc();
    }
    data_ = reinterpret_cast<T*>(mapped_ + page + (edge == Edge::kEnd ? inner - bytes : 0));
  }

  explicit GuardedBuffer(std::span<const T> values, Edge edge = Edge::kEnd)
      : GuardedBuffer(static_cast<int64_t>(values.size()), edge) {
    std::copy(values.begin(), values.end(), data_);
  }

  GuardedBuffer(GuardedBuffer&& other) noexcept
      : mapped_(std::exchange(other.mapped_, nullptr)),
        mapped_bytes_(other.mapped_bytes_),
        data_(other.data_),
        count_(other.count_) {}
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;

  ~GuardedBuffer() {
    if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return static_cast<int64_t>(count_); }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + count_; }

 private:
  std::byte* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace qkv::test
