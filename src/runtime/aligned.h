// Buffers aligned for vector loads, without initialisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace qkv {

inline constexpr size_t kAlignment = 64;  // bytes: a cache line, an AVX-512 vector

struct AlignedDelete {
  size_t bytes = 0;  // of the block
  void operator()(void* memory) const noexcept;
};
using AlignedMemory = std::unique_ptr<void, AlignedDelete>;

// Error{kOutOfMemory} naming the size when the memory cannot be had.
//
// Blocks of 64 KiB and more that were given back are kept for the next calls, 64 MiB of them at most: the system would
// take such memory back, and hand it out again page by page, which took a fifth of the time of a layer of 1,024 rows.
AlignedMemory AllocateAligned(size_t bytes);

template <class T> class AlignedBuffer {
  static_assert(std::is_trivial_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t count);  // Error{kOutOfMemory}, also where count * sizeof(T) overflows

  T* data() { return static_cast<T*>(memory_.get()); }
  const T* data() const { return static_cast<const T*>(memory_.get()); }
  int64_t size() const { return count_; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }

 private:
  AlignedMemory memory_;
  int64_t count_ = 0;
};

size_t CheckedBytes(int64_t count, size_t size_of_element);  // Error{kOutOfMemory} on overflow

template <class T> AlignedBuffer<T>::AlignedBuffer(int64_t count)
    : memory_(AllocateAligned(CheckedBytes(count, sizeof(T)))), count_(count) {}

}  // namespace qkv
