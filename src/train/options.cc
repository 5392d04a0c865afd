#include "train/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "qkv/error.h"

namespace qkv::train {
namespace {

void RequireCount(int64_t value, int64_t least, const char* name) {
  if (value >= least) return;
  throw Error(ErrorCode::kInvalidArgument, "bad option", name, "at least " + std::to_string(least),
              std::to_string(value));
}

// NaN is refused as well.
void RequireReal(double value, bool allowed, const char* name, const char* expected) {
  if (allowed && std::isfinite(value)) return;
  throw Error(ErrorCode::kInvalidArgument, "bad option", name, expected, fmt::format("{}", value));
}

}  // namespace

void CheckOptions(const TrainOptions& o) {
  RequireCount(o.steps, 0, "steps");  // 0: the untrained model
  RequireCount(o.warmup_steps, 0, "warmup");
  RequireCount(o.batch, 1, "batch");
  RequireCount(o.length, 1, "length");
  RequireCount(o.accumulate, 1, "accumulate");
  RequireReal(o.learning_rate, o.learning_rate >= 0, "lr", "a number of at least 0");
  RequireReal(o.final_learning_rate, o.final_learning_rate >= 0, "final_lr",
              "a number of at least 0");
  RequireReal(o.beta1, o.beta1 >= 0 && o.beta1 < 1, "beta1", "0 or more and below 1");
  RequireReal(o.beta2, o.beta2 >= 0 && o.beta2 < 1, "beta2", "0 or more and below 1");
  RequireReal(o.epsilon, o.epsilon > 0, "epsilon", "a number above 0");
  RequireReal(o.weight_decay, o.weight_decay >= 0, "weight_decay", "a number of at least 0");
  RequireReal(o.clip, o.clip >= 0, "clip", "a number of at least 0");
}

double LearningRate(const TrainOptions& o, int64_t step) {
  if (step < o.warmup_steps) {
    return o.learning_rate * static_cast<double>(step + 1) / static_cast<double>(o.warmup_steps);
  }
  const int64_t falling = std::max<int64_t>(1, o.steps - 1 - o.warmup_steps);
  const double done = std::min(1.0, static_cast<double>(step - o.warmup_steps) / static_cast<double>(falling));
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return o.final_learning_rate + share * (o.learning_rate - o.final_learning_rate);
}

}  // namespace qkv::train
