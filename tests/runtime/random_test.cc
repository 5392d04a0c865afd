#include "runtime/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qkv {
namespace {

// The known answers of the generator's authors (Random123, kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(DropoutBits, OneAndFourAtATimeAgree) {
  const DropoutBits bits(42, 0.3f);
  for (int64_t j = 0; j < 64; ++j) {
    EXPECT_EQ(bits.Kept(1, 2, 3, j), (bits.KeptOfFour(1, 2, 3, j / 4) >> (j % 4) & 1) == 1) << j;
  }
}

TEST(DropoutBits, NothingIsDroppedAtZero) {
  const DropoutBits bits(7, 0.0f);
  for (int64_t j = 0; j < 1000; ++j) EXPECT_EQ(bits.KeptOfFour(0, 0, 0, j), 15u);
}

TEST(DropoutBits, KeepsTheRightShare) {
  for (float p : {0.1f, 0.5f, 0.9f}) {
    const DropoutBits bits(1, p);
    constexpr int kCount = 100'000;
    int kept = 0;
    for (int64_t j = 0; j < kCount; ++j) kept += bits.Kept(0, 1, 2, j);
    const double sigma = std::sqrt(kCount * p * (1.0 - p));
    EXPECT_NEAR(kept, kCount * (1.0 - p), 5 * sigma) << p;
  }
}

TEST(DropoutBits, EveryCoordinateAndSeedMatters) {
  const auto word = [](uint64_t seed, int64_t b, int64_t h, int64_t p, int64_t first) {
    const DropoutBits bits(seed, 0.5f);
    uint64_t all = 0;
    for (int64_t j = 0; j < 16; ++j) all = all << 4 | bits.KeptOfFour(b, h, p, first + j);
    return all;
  };
  const uint64_t base = word(9, 1, 1, 1, 0);
  EXPECT_EQ(word(9, 1, 1, 1, 0), base);
  EXPECT_NE(word(10, 1, 1, 1, 0), base);
  EXPECT_NE(word(9 + (uint64_t{1} << 32), 1, 1, 1, 0), base);
  EXPECT_NE(word(9, 2, 1, 1, 0), base);
  EXPECT_NE(word(9, 1, 2, 1, 0), base);
  EXPECT_NE(word(9, 1, 1, 2, 0), base);
  EXPECT_NE(word(9, 1, 1, 1, 16), base);
}

}  // namespace
}  // namespace qkv
