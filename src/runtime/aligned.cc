#include "runtime/aligned.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>

#include "qkv/error.h"

namespace qkv {
namespace {

// AddressSanitizer finds the use of memory that was given back only where it sees that.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepsBlocks = false;
#else
constexpr bool kKeepsBlocks = true;
#endif

// Blocks that were given back, the oldest first. A lock that somebody holds is not waited for: a child process may
// have inherited it so.
class KeptBlocks {
 public:
  // The smallest that is not much too large, or nothing.
  AlignedMemory Take(size_t bytes) noexcept {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return {};
    int best = count_;
    for (int i = 0; i < count_; ++i) {
      if (blocks_[i].bytes < bytes || blocks_[i].bytes - bytes > bytes / 4) continue;
      if (best == count_ || blocks_[i].bytes < blocks_[best].bytes) best = i;
    }
    return best == count_ ? AlignedMemory() : Remove(best);
  }

  bool Keep(void* memory, size_t bytes) noexcept {
    if (!kKeepsBlocks || bytes < kLeast || bytes > kMost) return false;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    while (count_ == kMostBlocks || bytes_ + bytes > kMost) std::free(Remove(0).release());
    blocks_[count_++] = {memory, bytes};
    bytes_ += bytes;
    return true;
  }

  void Clear() noexcept {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    while (lock && count_ > 0) std::free(Remove(0).release());
  }

 private:
  static constexpr size_t kLeast = size_t{64} << 10, kMost = size_t{64} << 20;
  static constexpr int kMostBlocks = 64;

  struct Block {
    void* memory;
    size_t bytes;
  };

  AlignedMemory Remove(int i) noexcept {
    AlignedMemory memory(blocks_[i].memory, {blocks_[i].bytes});
    std::copy(blocks_ + i + 1, blocks_ + count_, blocks_ + i);
    --count_;
    bytes_ -= memory.get_deleter().bytes;
    return memory;
  }

  std::mutex mutex_;
  Block blocks_[kMostBlocks];
  int count_ = 0;
  size_t bytes_ = 0;
};

// Never destroyed: buffers of static objects are given back after it would be.
KeptBlocks& Kept() {
  static KeptBlocks& kept = *new KeptBlocks;
  return kept;
}

}  // namespace

void AlignedDelete::operator()(void* memory) const noexcept {
  if (!Kept().Keep(memory, bytes)) std::free(memory);
}

AlignedMemory AllocateAligned(size_t bytes) {
  if (bytes == 0) return {};
  if (AlignedMemory kept = Kept().Take(bytes)) return kept;
  // aligned_alloc wants a multiple of the alignment; rounding up may not wrap.
  void* memory = nullptr;
  if (bytes <= std::numeric_limits<size_t>::max() - kAlignment) {
    const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    memory = std::aligned_alloc(kAlignment, whole);
    if (memory == nullptr) {
      Kept().Clear();
      memory = std::aligned_alloc(kAlignment, whole);
    }
  }
  if (memory == nullptr) {
    throw Error(ErrorCode::kOutOfMemory, "out of memory", {}, std::to_string(bytes) + " bytes");
  }
  return AlignedMemory(memory, {bytes});
}

size_t CheckedBytes(int64_t count, size_t size_of_element) {
  size_t bytes = 0;
  if (count < 0 || __builtin_mul_overflow(static_cast<size_t>(count), size_of_element, &bytes)) {
    throw Error(ErrorCode::kOutOfMemory, "out of memory", {},
                std::to_string(count) + " elements of " + std::to_string(size_of_element) + " bytes");
  }
  return bytes;
}

}  // namespace qkv
