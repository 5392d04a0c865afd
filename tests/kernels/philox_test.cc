// Philox4x32-10 against the vectors that its authors publish with Random123, and what dropout makes of it.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/random.h"

namespace qkv {
namespace {

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, KeepsItsShareAlongEveryAxis) {
  for (float p : {0.01f, 0.1f, 0.5f, 0.9f}) {
    const DropoutBits bits(12345, p);
    for (int axis = 0; axis < 4; ++axis) {
      int64_t kept = 0;
      constexpr int64_t kDraws = 40000;
      for (int64_t n = 0; n < kDraws; ++n) {
        int64_t at[4] = {1, 2, 3, 5};
        at[axis] = n;
        kept += bits.Kept(at[0], at[1], at[2], at[3]);
      }
      const double deviation = std::sqrt(kDraws * p * (1.0 - p));
      EXPECT_NEAR(static_cast<double>(kept), kDraws * (1.0 - p), 5 * deviation)
          << "p " << p << " axis " << axis;
    }
  }
}

TEST(Dropout, NeighboursAreIndependent) {
  const DropoutBits bits(7, 0.5f);
  int64_t both = 0;
  constexpr int64_t kDraws = 40000;
  for (int64_t j = 0; j < kDraws; ++j) both += bits.Kept(0, 0, 0, j) && bits.Kept(0, 0, 0, j + 1);
  EXPECT_NEAR(static_cast<double>(both), kDraws / 4.0, 5 * std::sqrt(kDraws * 3 / 16.0));
}

TEST(Dropout, FourAtOnceAreTheSingleOnes) {
  const DropoutBits bits(99, 0.3f);
  for (int64_t j = 0; j < 400; ++j)
    EXPECT_EQ((bits.KeptOfFour(1, 2, -3, j / 4) >> (j % 4)) & 1, bits.Kept(1, 2, -3, j));
}

TEST(Dropout, EitherEndOfTheRange) {
  const DropoutBits nothing(1, 0.0f), nearly_all(1, 0.99999994f);
  int64_t kept = 0;
  for (int64_t j = 0; j < 10000; ++j) {
    EXPECT_TRUE(nothing.Kept(0, 0, 0, j));
    kept += nearly_all.Kept(0, 0, 0, j);
  }
  EXPECT_LE(kept, 1);
}

}  // namespace
}  // namespace qkv
