// Whole steps: against PyTorch's losses, and what a run must keep to whatever it is asked.
#include "train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "qkv/error.h"
#include "runtime/threads.h"
#include "train/golden_batches.h"

namespace qkv::train {
namespace {

using test::GoldenBatches;
using test::GoldenRun;

TEST(Trainer, LosesAsPyTorchDoes) {
  std::ifstream file(QKV_GOLDEN "/train/losses.json");
  const auto golden = nlohmann::json::parse(file);
  const GoldenRun run;
  const GoldenBatches batches(run.config.vocab);
  Trainer trainer(run.config, run.options, StateFrom(run.Parameters()));
  ASSERT_EQ(golden["losses"].size(), 200u);
  for (int64_t step = 0; step < run.options.steps; ++step) {
    const StepReport report = trainer.Step(batches);
    const double loss = golden["losses"][static_cast<size_t>(step)];
    const double norm = golden["norms"][static_cast<size_t>(step)];
    ASSERT_EQ(report.step, step);
    ASSERT_EQ(report.tokens, 2 * 4 * 24);
    ASSERT_NEAR(report.loss, loss, 1e-3 * loss) << "step " << step;
    ASSERT_NEAR(report.gradient_norm, norm, 1e-2 * norm) << "step " << step;
  }
  EXPECT_EQ(trainer.state().step, 200);
}

struct Bits {
  std::vector<float> values;
  explicit Bits(const TrainState& state) {
    for (const auto* buffer : {&state.parameters, &state.first_moment, &state.second_moment}) {
      values.insert(values.end(), buffer->data(), buffer->data() + buffer->size());
    }
  }
  bool operator==(const Bits&) const = default;
};

AlignedBuffer<float> CopyOf(const AlignedBuffer<float>& from) {
  AlignedBuffer<float> copy(from.size());
  std::copy_n(from.data(), from.size(), copy.data());
  return copy;
}

TrainState CopyOf(const TrainState& state) {
  return {state.step, CopyOf(state.parameters), CopyOf(state.first_moment), CopyOf(state.second_moment)};
}

class TrainerIn : public testing::TestWithParam<Precision> {
 protected:
  TrainerIn() : batches_(run_.config.vocab) {
    run_.options.precision = GetParam();
    run_.config.dropout = 0.1f;
    run_.options.seed = 3;
  }
  Trainer Start() const { return {run_.config, run_.options, InitialState(run_.config, 5)}; }

  GoldenRun run_;
  GoldenBatches batches_;
};

TEST_P(TrainerIn, ResumesToTheSameBits) {
  Trainer unbroken = Start();
  for (int step = 0; step < 6; ++step) unbroken.Step(batches_);
  Trainer first = Start();
  for (int step = 0; step < 3; ++step) first.Step(batches_);
  Trainer second(run_.config, run_.options, CopyOf(first.state()));
  second.Evaluate(batches_, 2);  // leaves no trace
  for (int step = 3; step < 6; ++step) EXPECT_EQ(second.Step(batches_).step, step);
  EXPECT_EQ(Bits(unbroken.state()), Bits(second.state()));
}

TEST_P(TrainerIn, DropoutFollowsTheSeedAndTheStep) {
  const auto norm_of = [&](uint64_t seed, int64_t step) {
    TrainOptions options = run_.options;
    options.seed = seed;
    TrainState state = InitialState(run_.config, 5);
    state.step = step;
    struct FirstBatch : BatchSource {
      void Fill(int64_t, const Batch& batch) const override { GoldenBatches(61).Fill(0, batch); }
    };
    return Trainer(run_.config, options, std::move(state)).Step(FirstBatch()).gradient_norm;
  };
  EXPECT_EQ(norm_of(1, 0), norm_of(1, 0));
  EXPECT_NE(norm_of(1, 0), norm_of(2, 0));
  EXPECT_NE(norm_of(1, 0), norm_of(1, 1));
}

TEST_P(TrainerIn, Learns) {
  Trainer trainer = Start();
  const double before = trainer.Evaluate(batches_, 4);
  EXPECT_NEAR(before, std::log(61.0), 0.2);
  for (int step = 0; step < 60; ++step) trainer.Step(batches_);
  EXPECT_LT(trainer.Evaluate(batches_, 4), 0.7 * before);
}

TEST_P(TrainerIn, ALossThatIsNotFiniteLeavesTheStateAlone) {
  TrainState state = InitialState(run_.config, 5);
  state.step = 41;  // done: the next is the 42nd
  const ParameterTable table(run_.config);
  state.parameters[table.Find("h.1.mlp.c_fc.weight").offset] = std::numeric_limits<float>::quiet_NaN();
  const Bits before(state);
  Trainer trainer(run_.config, run_.options, std::move(state));
  try {
    trainer.Step(batches_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFinite);
    EXPECT_STREQ(error.what(),
                 "step 42: training diverged: the loss is not finite, expected a number, got nan");
  }
  EXPECT_EQ(trainer.state().step, 41);
  EXPECT_EQ(std::memcmp(Bits(trainer.state()).values.data(), before.values.data(), before.values.size() * 4),
            0);
}

TEST_P(TrainerIn, ATokenOutsideTheVocabularyIsRefused) {
  struct Outside : BatchSource {
    int32_t input, target;
    Outside(int32_t i, int32_t t) : input(i), target(t) {}
    void Fill(int64_t, const Batch& batch) const override {
      std::fill(batch.inputs.begin(), batch.inputs.end(), 1);
      std::fill(batch.targets.begin(), batch.targets.end(), 1);
      batch.inputs.back() = input;
      batch.targets.back() = target;
    }
  };
  Trainer trainer = Start();
  const Bits before(trainer.state());
  for (const auto& [input, target] : {std::pair{61, 1}, {-1, 1}, {1, 61}, {1, -1}}) {
    EXPECT_THROW(trainer.Step(Outside(input, target)), Error) << input << ' ' << target;
  }
  EXPECT_EQ(Bits(trainer.state()), before);
  EXPECT_EQ(trainer.state().step, 0);
}

INSTANTIATE_TEST_SUITE_P(, TrainerIn, testing::Values(Precision::kFloat32, Precision::kBFloat16),
                         [](const auto& p) { return p.param == Precision::kFloat32 ? "float32" : "bfloat16"; });

TEST(Trainer, WhatContradictsIsRefused) {
  const GoldenRun run;
  TrainOptions longer = run.options;
  longer.length = run.config.context + 1;
  EXPECT_THROW(Trainer(run.config, longer, InitialState(run.config, 0)), Error);
  DecoderConfig other = run.config;
  other.vocab = 62;
  EXPECT_THROW(Trainer(run.config, run.options, InitialState(other, 0)), Error);
}

}  // namespace
}  // namespace qkv::train
