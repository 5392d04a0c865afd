#include "train/windows.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "qkv/error.h"

namespace qkv::train {
namespace {

std::vector<int32_t> Counting(int64_t size) {
  std::vector<int32_t> tokens(static_cast<size_t>(size));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

struct Filled {
  std::vector<int32_t> inputs, targets;
  Filled(const BatchSource& source, int64_t index, int64_t sequences, int64_t length)
      : inputs(static_cast<size_t>(sequences * length)), targets(inputs.size()) {
    source.Fill(index, {sequences, length, inputs, targets});
  }
};

TEST(ShuffledWindows, TargetsFollowInputs) {
  const auto tokens = Counting(1000);
  const ShuffledWindows source(tokens, 16, 5);
  for (int64_t index = 0; index < 50; ++index) {
    const Filled batch(source, index, 3, 16);
    for (size_t i = 0; i < batch.inputs.size(); ++i) {
      ASSERT_EQ(batch.targets[i], batch.inputs[i] + 1);
      if (i % 16 != 0) { ASSERT_EQ(batch.inputs[i], batch.inputs[i - 1] + 1); }
    }
  }
}

TEST(ShuffledWindows, AnEpochHoldsEveryWindowOnceAndEachHasItsOwnOrder) {
  constexpr int64_t kLength = 7;
  for (const int64_t windows : {1, 2, 3, 31, 32, 33, 1000}) {
    const auto tokens = Counting((windows + 1) * kLength + 1);
    const ShuffledWindows source(tokens, kLength, 9);
    std::vector<std::vector<int32_t>> orders;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int32_t> starts;
      orders.emplace_back();
      for (int64_t w = 0; w < windows; ++w) {
        const Filled batch(source, epoch * windows + w, 1, kLength);
        starts.insert(batch.inputs[0]);
        orders.back().push_back(batch.inputs[0] / kLength);
      }
      EXPECT_EQ(static_cast<int64_t>(starts.size()), windows);
      for (const int32_t start : starts) EXPECT_EQ((start - *starts.begin()) % kLength, 0);
    }
    if (windows > 30) { EXPECT_NE(orders[0], orders[1]); }
  }
}

TEST(ShuffledWindows, TheOrderDependsOnTheSeedAndTheIndexAlone) {
  const auto tokens = Counting(5000);
  const ShuffledWindows source(tokens, 32, 1), again(tokens, 32, 1), other(tokens, 32, 2);
  const Filled late(source, 40, 4, 32);
  EXPECT_EQ(late.inputs, Filled(again, 40, 4, 32).inputs);
  EXPECT_NE(late.inputs, Filled(other, 40, 4, 32).inputs);
  // Two batches of two sequences are one of four.
  const Filled first(source, 80, 2, 32), second(source, 81, 2, 32);
  std::vector<int32_t> both = first.inputs;
  both.insert(both.end(), second.inputs.begin(), second.inputs.end());
  EXPECT_EQ(late.inputs, both);
}

TEST(Windows, TheShortestTextIsOneTokenLongerThanTheContext) {
  const auto tokens = Counting(9);
  EXPECT_EQ(Filled(ShuffledWindows(tokens, 8, 0), 0, 1, 8).targets.back(), 8);
  EXPECT_EQ(Filled(SequentialWindows(tokens, 8), 3, 1, 8).targets.back(), 8);
  EXPECT_THROW(ShuffledWindows(tokens, 9, 0), Error);
  EXPECT_THROW(SequentialWindows(tokens, 9), Error);
}

TEST(SequentialWindows, OneAfterTheOther) {
  const auto tokens = Counting(25);
  const SequentialWindows source(tokens, 8);
  EXPECT_EQ(source.windows(), 3);
  const Filled batch(source, 0, 4, 8);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(batch.inputs[static_cast<size_t>(i)], i);
  EXPECT_EQ(batch.inputs[24], 0);  // from the beginning
}

}  // namespace
}  // namespace qkv::train
