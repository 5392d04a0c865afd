#include "train/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "qkv/error.h"

namespace qkv::train {
namespace {

TEST(LearningRate, RisesLinearlyThenFallsAlongACosine) {
  TrainOptions options;
  options.steps = 111;
  options.warmup_steps = 10;
  options.learning_rate = 1.0;
  options.final_learning_rate = 0.1;
  EXPECT_DOUBLE_EQ(LearningRate(options, 0), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(options, 4), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(options, 9), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(options, 10), 1.0);
  EXPECT_NEAR(LearningRate(options, 35), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(LearningRate(options, 60), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(LearningRate(options, 110), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(options, 1000), 0.1);
}

TEST(LearningRate, WithoutWarmUpOrWithNothingElse) {
  TrainOptions options;
  options.steps = 1;
  options.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(LearningRate(options, 0), options.learning_rate);
  options.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(LearningRate(options, 0), options.learning_rate / 4);
}

TEST(TrainOptions, OutOfRangeIsRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<const char*, std::function<void(TrainOptions&)>> cases[] = {
      {"steps", [](auto& o) { o.steps = -1; }},
      {"warmup", [](auto& o) { o.warmup_steps = -1; }},
      {"batch", [](auto& o) { o.batch = 0; }},
      {"length", [](auto& o) { o.length = 0; }},
      {"accumulate", [](auto& o) { o.accumulate = 0; }},
      {"lr", [](auto& o) { o.learning_rate = -1e-3; }},
      {"lr", [&](auto& o) { o.learning_rate = nan; }},
      {"final_lr", [](auto& o) { o.final_learning_rate = -1; }},
      {"beta1", [](auto& o) { o.beta1 = 1; }},
      {"beta2", [](auto& o) { o.beta2 = -0.1; }},
      {"epsilon", [](auto& o) { o.epsilon = 0; }},
      {"weight_decay", [&](auto& o) { o.weight_decay = nan; }},
      {"clip", [](auto& o) { o.clip = -1; }},
  };
  EXPECT_NO_THROW(CheckOptions({}));
  for (const auto& [name, change] : cases) {
    TrainOptions options;
    change(options);
    try {
      CheckOptions(options);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.where(), name);
    }
  }
}

}  // namespace
}  // namespace qkv::train
