// Tasks that lie side by side in memory, shared out so that threads stay where they are.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/aligned.h"

namespace qkv {

// Numbers 0, 1, ... in a run for each thread. A thread takes its own run from the front, so that it works on rows
// that it has just written; then, so that none waits for a slow one, the others' from the back.
class TaskRuns {
 public:
  explicit TaskRuns(int threads) : runs_(static_cast<size_t>(threads)) {}

  // first to end - 1. Before any is taken.
  void Set(int thread, uint32_t first, uint32_t end) { runs_[static_cast<size_t>(thread)].left = Pack(first, end); }

  // 0 to count - 1, as evenly as can be.
  void Share(uint32_t count) {
    const uint64_t threads = runs_.size();
    for (uint64_t thread = 0; thread < threads; ++thread) {
      runs_[thread].left = Pack(static_cast<uint32_t>(count * thread / threads),
                                static_cast<uint32_t>(count * (thread + 1) / threads));
    }
  }

  // A number that nobody else is given. As many calls as there are numbers, at most.
  uint32_t Take(int thread) {
    const auto own = static_cast<size_t>(thread);
    for (size_t i = own;; i = (i + 1) % runs_.size()) {
      std::atomic<uint64_t>& left = runs_[i].left;
      uint64_t seen = left;
      while (First(seen) < End(seen)) {
        const uint32_t taken = i == own ? First(seen) : End(seen) - 1;
        const uint64_t rest = i == own ? Pack(taken + 1, End(seen)) : Pack(First(seen), taken);
        if (left.compare_exchange_weak(seen, rest)) return taken;
      }
    }
  }

 private:
  struct alignas(kAlignment) Run {
    std::atomic<uint64_t> left{0};  // both ends, so that they change together
  };
  static uint64_t Pack(uint32_t first, uint32_t end) { return uint64_t{first} << 32 | end; }
  static uint32_t First(uint64_t run) { return static_cast<uint32_t>(run >> 32); }
  static uint32_t End(uint64_t run) { return static_cast<uint32_t>(run); }

  std::vector<Run> runs_;
};

}  // namespace qkv
