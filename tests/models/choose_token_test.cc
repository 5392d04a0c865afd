#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "qkv/error.h"
#include "qkv/generate.h"

namespace qkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// How often each token is chosen in 4,000 steps.
std::vector<double> Shares(const std::vector<float>& logits, const Sampling& sampling,
                           const std::vector<int64_t>& text = {}) {
  constexpr int kSteps = 4000;
  std::vector<double> shares(logits.size());
  for (int64_t step = 0; step < kSteps; ++step) {
    shares[static_cast<size_t>(ChooseToken(logits, text, sampling, step))] += 1.0 / kSteps;
  }
  return shares;
}

Sampling Warm() {
  Sampling sampling;
  sampling.temperature = 1;
  return sampling;
}

TEST(ChooseToken, WithoutATemperatureTheLikeliestAndTheLowerOfEquals) {
  EXPECT_EQ(ChooseToken(std::vector<float>{1, 3, 2}, {}, {}, 0), 1);
  EXPECT_EQ(ChooseToken(std::vector<float>{1, 3, 3}, {}, {}, 7), 1);
  EXPECT_EQ(ChooseToken(std::vector<float>{-kInfinity, std::nanf(""), -5}, {}, {}, 0), 2);
}

TEST(ChooseToken, SharesAreTheSoftmax) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f), -kInfinity};
  const auto shares = Shares(logits, Warm());
  EXPECT_NEAR(shares[0], 0.5, 0.03);  // four standard deviations
  EXPECT_NEAR(shares[1], 0.3, 0.03);
  EXPECT_NEAR(shares[2], 0.2, 0.03);
  EXPECT_EQ(shares[3], 0);
}

TEST(ChooseToken, TheTemperatureSharpens) {
  Sampling cool = Warm();
  cool.temperature = 0.5f;  // probabilities squared: 0.25 : 0.09 : 0.04
  const auto shares = Shares({std::log(0.5f), std::log(0.3f), std::log(0.2f)}, cool);
  EXPECT_NEAR(shares[0], 0.25 / 0.38, 0.03);
  EXPECT_NEAR(shares[2], 0.04 / 0.38, 0.03);
}

TEST(ChooseToken, TopKTopPAndMinPLeaveTheLikeliest) {
  const std::vector<float> logits{std::log(0.2f), std::log(0.5f), std::log(0.3f)};
  Sampling top_k = Warm(), top_p = Warm(), min_p = Warm();
  top_k.top_k = 2;
  top_p.top_p = 0.7f;  // 0.5 + 0.3 are the fewest that hold it
  min_p.min_p = 0.5f;  // 0.2 is less than half of 0.5
  for (const Sampling& sampling : {top_k, top_p, min_p}) {
    const auto shares = Shares(logits, sampling);
    EXPECT_EQ(shares[0], 0);
    EXPECT_NEAR(shares[1], 0.625, 0.03);
    EXPECT_NEAR(shares[2], 0.375, 0.03);
  }
  top_k.top_k = 1;
  EXPECT_NEAR(Shares(logits, top_k)[1], 1, 1e-9);
  top_p.top_p = 1e-6f;
  EXPECT_NEAR(Shares(logits, top_p)[1], 1, 1e-9);
}

TEST(ChooseToken, ThePenaltyLowersWhatTheTextHolds) {
  Sampling sampling;
  sampling.repetition_penalty = 2;
  EXPECT_EQ(ChooseToken(std::vector<float>{3, 2}, std::vector<int64_t>{0, 0}, sampling, 0), 1);
  EXPECT_EQ(ChooseToken(std::vector<float>{-1, -1.5f}, std::vector<int64_t>{0}, sampling, 0), 1);
}

TEST(ChooseToken, TheSeedAndTheStepDecide) {
  const std::vector<float> logits(100);
  std::vector<int64_t> first, again, other;
  Sampling sampling = Warm(), reseeded = Warm();
  reseeded.seed = 1;
  for (int64_t step = 0; step < 20; ++step) {
    first.push_back(ChooseToken(logits, {}, sampling, step));
    again.push_back(ChooseToken(logits, {}, sampling, step));
    other.push_back(ChooseToken(logits, {}, reseeded, step));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

TEST(ChooseToken, RefusesWhatIsOutOfRange) {
  const std::vector<float> logits{1, 2};
  const auto refused = [&](auto change, const char* where) {
    Sampling sampling;
    change(sampling);
    try {
      ChooseToken(logits, {}, sampling, 0);
      ADD_FAILURE() << where;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.where(), where);
    }
  };
  refused([](Sampling& s) { s.temperature = -1; }, "temperature");
  refused([](Sampling& s) { s.temperature = std::nanf(""); }, "temperature");
  refused([](Sampling& s) { s.top_k = -1; }, "top_k");
  refused([](Sampling& s) { s.top_p = 0; }, "top_p");
  refused([](Sampling& s) { s.min_p = 2; }, "min_p");
  refused([](Sampling& s) { s.repetition_penalty = 0; }, "repetition_penalty");
  EXPECT_THROW(ChooseToken(std::vector<float>{-kInfinity, std::nanf("")}, {}, {}, 0), Error);
}

}  // namespace
}  // namespace qkv
