#include "bench/measure.h"

#include <gmock/gmock.h>

#include <numeric>

#include "qkv/error.h"
#include "runtime/threads.h"

namespace qkv::bench {
namespace {

class CountedWorkload : public Workload {
 public:
  void Run() override { ++runs; }
  double operations() const override { return 0; }
  std::vector<float> Result() const override { return {}; }
  int64_t runs = 0;
};

TEST(MeasureTest, MedianIsTheMiddle) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(Median({7}), 7);
}

TEST(MeasureTest, TakesAsManySamplesAsAsked) {
  CountedWorkload workload;
  EXPECT_THAT(TimeRounds(workload, 3), testing::Each(testing::Ge(0)));
  const int64_t before = workload.runs;
  EXPECT_EQ(TimeCalls(workload, 5).size(), 5u);
  EXPECT_EQ(workload.runs, before + 5);
}

TEST(MeasureTest, CanBeCancelled) {
  CountedWorkload workload;
  EXPECT_THROW(TimeRounds(workload, 3, [](int64_t, int64_t) { return false; }), Error);
}

TEST(MeasureTest, PhasesAndTheRestAreAllOfTheTime) {
  Case one;
  one.q_heads = one.kv_heads = 2, one.queries = one.keys = 200;  // in float32 everywhere
  const auto workload = MakeWorkload(one, DescribeMachine());
  const PhaseTimes times = TimePhases(*workload, Threads());
  for (const Phase phase : {Phase::kPack, Phase::kScores, Phase::kSoftmax, Phase::kValues, Phase::kRows}) {
    EXPECT_GT(times.ms[static_cast<size_t>(phase)], 0) << NameOf(phase);
  }
  EXPECT_EQ(times.ms[static_cast<size_t>(Phase::kLook)], 0);
  const double all = std::accumulate(times.ms.begin(), times.ms.end(), times.other_ms);
  EXPECT_NEAR(all, times.wall_ms * Threads(), 1e-6 * all);
  EXPECT_EQ(phase_ticks.load(), nullptr);
}

}  // namespace
}  // namespace qkv::bench
