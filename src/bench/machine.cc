#include "bench/machine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <numeric>
#include <string_view>
#include <vector>

#include "bench/peak_loops.h"
#include "runtime/aligned.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "runtime/threads.h"

namespace qkv::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTries = 5;
constexpr double kTrySeconds = 0.02;
constexpr int64_t kLeastReadBytes = int64_t{256} << 20, kMostReadBytes = int64_t{2} << 30;
constexpr int64_t kPage = 4096;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The value of the first line "NAME...: value" of a file of /proc; empty where there is none.
std::string Field(const char* file, std::string_view name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!std::string_view(line).starts_with(name)) continue;
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

int64_t CacheSize() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  return std::max<int64_t>({0, sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE)});
#else
  return 0;
#endif
}

int64_t BeyondCaches() { return std::clamp(4 * CacheSize(), kLeastReadBytes, kMostReadBytes); }

// Runs `work(thread)` on each thread once. The tasks wait for each other, so that no thread takes two.
template <class Work>
double SecondsOfAll(int threads, const Work& work) {
  std::atomic<int> arrived{0};
  std::vector<Clock::time_point> begin(static_cast<size_t>(threads)), end = begin;
  ParallelFor(
      threads,
      [&](int64_t task, int) {
        for (++arrived; arrived < threads;) {
        }
        begin[static_cast<size_t>(task)] = Clock::now();
        work(task);
        end[static_cast<size_t>(task)] = Clock::now();
      },
      {}, threads);
  const auto took = *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
  return std::chrono::duration<double>(took).count();
}

double MultiplyPeak(MultiplyLoop loop, int threads) {
  if (loop == nullptr) return 0;
  int64_t steps = 1000;
  for (double seconds = 0; seconds < kTrySeconds; steps *= 2) {
    const auto begin = Clock::now();
    loop(steps);
    seconds = SecondsSince(begin);
  }
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    std::vector<double> done(static_cast<size_t>(threads));
    const double seconds =
        SecondsOfAll(threads, [&](int64_t t) { done[static_cast<size_t>(t)] = loop(steps); });
    best = std::max(best, std::accumulate(done.begin(), done.end(), 0.0) / seconds);
  }
  return best;
}

void MeasureRead(int threads, Peaks& peaks) {
  const int64_t all = std::min(BeyondCaches(), AvailableMemory() / 4), bytes = all / threads / kPage * kPage;
  if (bytes == 0) return;
  std::vector<AlignedBuffer<uint64_t>> buffers;
  for (int t = 0; t < threads; ++t) buffers.emplace_back(bytes / 8);
  SecondsOfAll(threads, [&](int64_t t) {
    AlignedBuffer<uint64_t>& own = buffers[static_cast<size_t>(t)];
    UseLargePages(own.data(), bytes);
    std::fill_n(own.data(), own.size(), uint64_t{1});
  });
  std::atomic<uint64_t> total{0};  // so that the sums are not dropped
  for (int i = 0; i < kTries; ++i) {
    const double seconds = SecondsOfAll(
        threads, [&](int64_t t) { total += WidestReadLoop()(buffers[static_cast<size_t>(t)].data(), bytes); });
    peaks.read = std::max(peaks.read, static_cast<double>(bytes) * threads / seconds);
  }
  peaks.read_bytes = bytes * threads;
}

}  // namespace

Machine DescribeMachine() {
  std::string processor = Field("/proc/cpuinfo", "model name");
  if (processor.empty()) processor = "unknown processor";
  return {processor, NameOf(ChosenIsa()), Threads(), CacheSize(), BeyondCaches(), AvailableMemory()};
}

double Peaks::bf16() const { return std::max({f32, bf16_dot, bf16_tiles}); }

Peaks MeasurePeaks(int threads) {
  Peaks peaks;
  peaks.f32 = MultiplyPeak(Float32Loop(), threads);
  peaks.bf16_dot = MultiplyPeak(BFloat16DotLoop(), threads);
  peaks.bf16_tiles = MultiplyPeak(BFloat16TileLoop(), threads);
  MeasureRead(threads, peaks);
  return peaks;
}

void UseLargePages(void* memory, int64_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<uintptr_t>(memory) + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace qkv::bench
