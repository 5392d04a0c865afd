#include "bench/machine.h"

#include <gtest/gtest.h>

#include "bench/peak_loops.h"
#include "runtime/aligned.h"

namespace qkv::bench {
namespace {

TEST(MachineTest, IsDescribed) {
  const Machine machine = DescribeMachine();
  EXPECT_FALSE(machine.processor.empty());
  EXPECT_FALSE(machine.isa.empty());
  EXPECT_GE(machine.threads, 1);
  EXPECT_GT(machine.beyond_caches, machine.last_level_cache);
}

TEST(MachineTest, ReadsEveryWordOnce) {
  AlignedBuffer<uint64_t> words(2 * 4096 / 8);
  uint64_t sum = 0;
  for (int64_t i = 0; i < words.size(); ++i) sum += words[i] = static_cast<uint64_t>(i * i);
  EXPECT_EQ(WidestReadLoop()(words.data(), 2 * 4096), sum);
}

TEST(MachineTest, CountsOperations) {
  for (const MultiplyLoop loop : {Float32Loop(), BFloat16DotLoop(), BFloat16TileLoop()}) {
    if (loop == nullptr) continue;  // a machine without such instructions
    EXPECT_GT(loop(1), 0);
    EXPECT_EQ(loop(100), 100 * loop(1));
  }
}

TEST(MachineTest, BFloat16sPeakIsTheBestOfThree) {
  Peaks peaks;
  peaks.f32 = 2;
  EXPECT_EQ(peaks.bf16(), 2);
  peaks.bf16_dot = 1;
  EXPECT_EQ(peaks.bf16(), 2);
  peaks.bf16_tiles = 3;
  EXPECT_EQ(peaks.bf16(), 3);
}

}  // namespace
}  // namespace qkv::bench
