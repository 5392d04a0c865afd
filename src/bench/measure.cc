#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "qkv/error.h"

namespace qkv::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSampleMs = 20;
constexpr int64_t kMostCalls = 10'000;

// Milliseconds of `calls` calls together.
double Time(Workload& workload, int64_t calls) {
  const auto begin = Clock::now();
  for (int64_t i = 0; i < calls; ++i) workload.Run();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

int64_t CallsFor(double ms, double one_call) {
  return std::clamp(static_cast<int64_t>(std::ceil(ms / std::max(one_call, 1e-6))), int64_t{1}, kMostCalls);
}

}  // namespace

std::vector<double> TimeRounds(Workload& workload, int rounds, const Progress& progress) {
  workload.Run();
  const int64_t calls = CallsFor(kSampleMs, Time(workload, 1));
  std::vector<double> samples;
  for (int round = 0; round < rounds; ++round) {
    if (progress && !progress(round, rounds)) throw Error(ErrorCode::kCancelled, "cancelled");
    samples.push_back(Time(workload, calls) / static_cast<double>(calls));
  }
  return samples;
}

std::vector<double> TimeCalls(Workload& workload, int64_t calls) {
  std::vector<double> times;
  for (int64_t i = 0; i < calls; ++i) times.push_back(Time(workload, 1));
  return times;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

PhaseTimes TimePhases(Workload& workload, int threads) {
  constexpr double kMs = 200;  // in all
  workload.Run();
  const int64_t calls = CallsFor(kMs, Time(workload, 1));
  PhaseTicks total;
  phase_ticks = &total;
  const uint64_t begin = ReadTicks();
  const double wall_ms = Time(workload, calls);
  const double ticks_per_ms = static_cast<double>(ReadTicks() - begin) / wall_ms;
  phase_ticks = nullptr;

  PhaseTimes times;
  times.wall_ms = wall_ms / static_cast<double>(calls);
  for (size_t phase = 0; phase < times.ms.size(); ++phase) {
    times.ms[phase] = static_cast<double>(total.ticks[phase]) / ticks_per_ms / static_cast<double>(calls);
  }
  times.other_ms = times.wall_ms * threads - std::accumulate(times.ms.begin(), times.ms.end(), 0.0);
  return times;
}

}  // namespace qkv::bench
