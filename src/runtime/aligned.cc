#include "runtime/aligned.h"

#include <cstdlib>
#include <limits>
#include <string>

#include "qkv/error.h"

namespace qkv {

void* AllocateAligned(size_t bytes) {
  if (bytes == 0) return nullptr;
  // aligned_alloc wants a multiple of the alignment; rounding up may not wrap.
  void* memory = bytes <= std::numeric_limits<size_t>::max() - kAlignment
                     ? std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)
                     : nullptr;
  if (memory == nullptr) {
    throw Error(ErrorCode::kOutOfMemory, "out of memory", {}, std::to_string(bytes) + " bytes");
  }
  return memory;
}

void FreeAligned(void* memory) noexcept { std::free(memory); }

size_t CheckedBytes(int64_t count, size_t size_of_element) {
  size_t bytes = 0;
  if (count < 0 || __builtin_mul_overflow(static_cast<size_t>(count), size_of_element, &bytes)) {
    throw Error(ErrorCode::kOutOfMemory, "out of memory", {},
                std::to_string(count) + " elements of " + std::to_string(size_of_element) + " bytes");
  }
  return bytes;
}

}  // namespace qkv
