// What a training run shows while it goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "train/sample.h"
#include "train/trainer.h"

namespace qkv::cli {

// A line of its own on a terminal (standard error), renewed a few times a second; and on standard output a line
// a validation and one a sample, which stay.
class TrainProgress {
 public:
  explicit TrainProgress(int64_t steps);
  ~TrainProgress();
  TrainProgress(const TrainProgress&) = delete;
  TrainProgress& operator=(const TrainProgress&) = delete;

  void Started(int64_t step);
  void Stepped(const train::StepReport& report);
  void Validated(int64_t step, double loss);
  void Sampled(int64_t step, const train::Sample& sample);

 private:
  using Clock = std::chrono::steady_clock;
  void ShowLine();
  void WipeLine();
  double TokensPerSecond() const;
  std::string TimeLeft() const;

  int64_t steps_, first_step_ = 0, step_ = 0, tokens_ = 0;
  double loss_ = 0;  // smoothed
  Clock::time_point start_, shown_;
  bool visible_, has_line_ = false;
};

// "1 h 05 min", "3 min 20 s", "45 s".
std::string Duration(double seconds);

}  // namespace qkv::cli
