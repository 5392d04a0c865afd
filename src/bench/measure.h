// Timing a workload, and where its time goes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "bench/workload.h"
#include "kernels/phase.h"

namespace qkv::bench {

// A call to warm up, then `rounds` samples, in milliseconds a call. A sample is as many calls as last about
// 20 milliseconds, at least one. progress is asked between samples; false: Error{kCancelled}.
std::vector<double> TimeRounds(Workload& workload, int rounds, const Progress& progress = {});

// `calls` timed ones, each by itself, in milliseconds.
std::vector<double> TimeCalls(Workload& workload, int64_t calls);

double Median(std::vector<double> values);

// Milliseconds of thread time a call, by phase, and what is left of threads times wall time: planning, waiting,
// and what the kernels do not count (projections, norms).
struct PhaseTimes {
  std::array<double, kPhases> ms{};
  double other_ms = 0;
  double wall_ms = 0;
};
PhaseTimes TimePhases(Workload& workload, int threads);

}  // namespace qkv::bench
