// Buffers aligned for vector loads, without initialisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace qkv {

inline constexpr size_t kAlignment = 64;  // bytes: a cache line, an AVX-512 vector

// Error{kOutOfMemory} naming the size when the memory cannot be had.
void* AllocateAligned(size_t bytes);
void FreeAligned(void* memory) noexcept;

struct AlignedDelete {
  void operator()(void* memory) const noexcept { FreeAligned(memory); }
};

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
  std::unique_ptr<void, AlignedDelete> memory_;
  int64_t count_ = 0;
};

size_t CheckedBytes(int64_t count, size_t size_of_element);  // Error{kOutOfMemory} on overflow

template <class T> AlignedBuffer<T>::AlignedBuffer(int64_t count)
    : memory_(AllocateAligned(CheckedBytes(count, sizeof(T)))), count_(count) {}

}  // namespace qkv
