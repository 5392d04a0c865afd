// Runs of numbers to bfloat16 and back on every instruction set, as the scalar conversions have them.
#include "kernels/round.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "runtime/cpu.h"
#include "runtime/half.h"
#include "support/guard.h"

namespace qkv {
namespace {

using test::Edge;
using test::GuardedBuffer;

class Round : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { ForceIsa(GetParam()); }
  void TearDown() override { ForceIsa(before_); }

 private:
  Isa before_ = ChosenIsa();
};

// Every upper half with the lower halves around its ties: all exponents, subnormals, infinities, NaNs, carries.
TEST_P(Round, HasTheBitsOfTheScalarConversion) {
  std::vector<float> values;
  for (uint32_t high = 0; high < 65536; ++high) {
    for (uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  std::vector<BFloat16> rounded(values.size());
  RoundToBFloat16(values.data(), static_cast<int64_t>(values.size()), rounded.data());
  int64_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) wrong += rounded[i].bits != ToBFloat16(values[i]).bits;
  EXPECT_EQ(wrong, 0);
}

TEST_P(Round, AnyCountIsReadAndWrittenToItsEndAndNoFurther) {
  for (int64_t count = 0; count <= 70; ++count) {
    for (Edge edge : {Edge::kEnd, Edge::kBegin}) {
      GuardedBuffer<float> values(count, edge), widened(count, edge);
      GuardedBuffer<BFloat16> rounded(count, edge);
      for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
      RoundToBFloat16(values.data(), count, rounded.data());
      WidenToFloat(rounded.data(), count, widened.data());
      for (int64_t i = 0; i < count; ++i) EXPECT_EQ(widened[i], static_cast<float>(i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Round, testing::ValuesIn(SupportedIsas()),
                         [](const auto& isa) { return std::string(NameOf(isa.param)); });

}  // namespace
}  // namespace qkv
