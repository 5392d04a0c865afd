#include "kernels/phase.h"

#include <gtest/gtest.h>

namespace qkv {
namespace {

uint64_t Ticks(const PhaseTicks& total, Phase phase) { return total.ticks[static_cast<size_t>(phase)]; }

void Spend(uint64_t ticks) {
  for (const uint64_t begin = ReadTicks(); ReadTicks() - begin < ticks;) {
  }
}

// Installed for the test's time only.
class PhaseTest : public testing::Test {
 protected:
  void SetUp() override { phase_ticks = &total_; }
  void TearDown() override { phase_ticks = nullptr; }
  PhaseTicks total_;
};

TEST_F(PhaseTest, CountsEachPhaseApart) {
  {
    PhaseTimer timer(Phase::kScores);
    Spend(1000);
    timer.Next(Phase::kSoftmax);
    Spend(2000);
  }
  EXPECT_GE(Ticks(total_, Phase::kScores), 1000u);
  EXPECT_GE(Ticks(total_, Phase::kSoftmax), 2000u);
  EXPECT_EQ(Ticks(total_, Phase::kValues), 0u);
}

TEST_F(PhaseTest, AddsUp) {
  for (int i = 0; i < 3; ++i) {
    const PhaseTimer timer(Phase::kPack);
    Spend(500);
  }
  EXPECT_GE(Ticks(total_, Phase::kPack), 1500u);
}

TEST_F(PhaseTest, CountsNothingUnlessAsked) {
  phase_ticks = nullptr;
  {
    PhaseTimer timer(Phase::kScores);
    Spend(500);
    timer.Next(Phase::kSoftmax);
  }
  for (const auto& ticks : total_.ticks) EXPECT_EQ(ticks, 0u);
}

}  // namespace
}  // namespace qkv
