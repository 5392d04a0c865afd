// Where the kernels' time goes: ticks by phase, counted while somebody asks for them. Otherwise a timer is one
// load and one branch, once a tile.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace qkv {

enum class Phase {
  kPack,     // a tile of keys and values into panels
  kScores,   // S = Q K^T, and the rules
  kSoftmax,  // maxima, exponentials, sums, rescaling
  kValues,   // O += P V
  kMerge,    // sums of splits
  kRows,     // queries loaded, results written
  kLook,     // capture: scores to weights, and what is kept of them
  kGradients,  // backward: dV += P^T dO, dK += dS^T Q, dQ += dS K
};
inline constexpr int kPhases = 8;
const char* NameOf(Phase phase);  // "pack", "scores", ...

// Ticks of a clock that all cores share and that runs at one rate, whatever their frequency.
inline uint64_t ReadTicks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
#error "no clock is known for this processor"
#endif
}

// The ticks of all threads together.
struct PhaseTicks {
  std::array<std::atomic<uint64_t>, kPhases> ticks{};
};

// Where all threads' timers add to; null: they do not count. For benchmarks: set it between calls.
inline std::atomic<PhaseTicks*> phase_ticks{nullptr};

// Counts the time from its making, or from Next, to Next or its end.
class PhaseTimer {
 public:
  explicit PhaseTimer(Phase phase) : total_(phase_ticks.load(std::memory_order_relaxed)), phase_(phase) {
    if (total_ != nullptr) begin_ = ReadTicks();
  }
  ~PhaseTimer() {
    if (total_ != nullptr) Add(ReadTicks());
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  void Next(Phase phase) {
    if (total_ != nullptr) {
      const uint64_t now = ReadTicks();
      Add(now);
      begin_ = now;
    }
    phase_ = phase;
  }

 private:
  void Add(uint64_t now) {
    total_->ticks[static_cast<size_t>(phase_)].fetch_add(now - begin_, std::memory_order_relaxed);
  }

  PhaseTicks* total_;
  Phase phase_;
  uint64_t begin_ = 0;
};

}  // namespace qkv
