#include "runtime/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace qkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

static_assert(ToFloat16(1.0f).bits == 0x3c00 && ToFloat(Float16{0xc000}) == -2.0f);
static_assert(ToBFloat16(1.0f).bits == 0x3f80 && ToFloat(BFloat16{0xc000}) == -2.0f);

// What the formats' definitions say: sign, exponent, fraction. Finite values only.
double Decode(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double magnitude = exponent == 0
                               ? std::ldexp(fraction, 1 - bias - fraction_bits)
                               : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryFloat16MeansItsDefinition) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const float value = ToFloat(half);
    if ((bits & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isnan(value), (bits & 0x3ff) != 0) << bits;
      EXPECT_EQ(std::isinf(value), (bits & 0x3ff) == 0) << bits;
      EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(value), Decode(half.bits, 5, 10)) << bits;
    }
    const uint16_t quiet = std::isnan(value) ? 0x0200 : 0;
    EXPECT_EQ(ToFloat16(value).bits, bits | quiet) << bits;
  }
}

TEST(Half, EveryBFloat16MeansItsDefinition) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const BFloat16 half{static_cast<uint16_t>(bits)};
    const float value = ToFloat(half);
    if ((bits & 0x7f80) == 0x7f80) {
      EXPECT_EQ(std::isnan(value), (bits & 0x7f) != 0) << bits;
      EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(value), Decode(half.bits, 8, 7)) << bits;
    }
    const uint16_t quiet = std::isnan(value) ? 0x0040 : 0;
    EXPECT_EQ(ToBFloat16(value).bits, bits | quiet) << bits;
  }
}

// Between each two neighbours: just below the middle rounds down, just above it up, the middle to the even one.
TEST(Half, Float16RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const double low = Decode(bits, 5, 10);
    const double high = bits == 0x7bff ? 65536.0 : Decode(static_cast<uint16_t>(bits + 1), 5, 10);
    const float middle = static_cast<float>((low + high) / 2);  // exact: one more bit
    const uint16_t up = static_cast<uint16_t>(bits + 1);
    EXPECT_EQ(ToFloat16(middle).bits, bits % 2 == 0 ? bits : up) << bits;
    EXPECT_EQ(ToFloat16(std::nextafter(middle, 0.0f)).bits, bits) << bits;
    EXPECT_EQ(ToFloat16(std::nextafter(middle, kInfinity)).bits, up) << bits;
    EXPECT_EQ(ToFloat16(-middle).bits, ToFloat16(middle).bits | 0x8000) << bits;
  }
}

TEST(Half, BFloat16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const uint32_t middle = (bits << 16) | 0x8000;
    EXPECT_EQ(ToBFloat16(std::bit_cast<float>(middle)).bits, bits % 2 == 0 ? bits : bits + 1) << bits;
    EXPECT_EQ(ToBFloat16(std::bit_cast<float>(middle - 1)).bits, bits) << bits;
    EXPECT_EQ(ToBFloat16(std::bit_cast<float>(middle + 1)).bits, bits + 1) << bits;
    EXPECT_EQ(ToBFloat16(std::bit_cast<float>(middle | 0x80000000)).bits,
              ToBFloat16(std::bit_cast<float>(middle)).bits | 0x8000)
        << bits;
  }
}

TEST(Half, TheEdgesOfTheRange) {
  EXPECT_EQ(ToFloat16(0x1p-24f).bits, 1);  // smallest subnormal
  EXPECT_EQ(ToFloat16(0x1p-25f).bits, 0);  // half of it: to even
  EXPECT_EQ(ToFloat16(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
  EXPECT_EQ(ToFloat16(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
  EXPECT_EQ(ToFloat16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(ToFloat16(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
  EXPECT_EQ(ToFloat16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(ToFloat16(-std::numeric_limits<float>::max()).bits, 0xfc00);
  EXPECT_EQ(ToFloat16(-kInfinity).bits, 0xfc00);
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);  // nearer to 2^128 than to the largest
  EXPECT_EQ(ToBFloat16(-kInfinity).bits, 0xff80);
  EXPECT_EQ(ToBFloat16(-0.0f).bits, 0x8000);
}

TEST(Half, NanStaysNanWhateverItsPayload) {
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0xff800001u, 0xffffffffu, 0xff80ffffu}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(ToFloat(ToFloat16(nan)))) << bits;
    EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(nan)))) << bits;
    EXPECT_EQ(ToFloat16(nan).bits >> 15, bits >> 31);
    EXPECT_EQ(ToBFloat16(nan).bits >> 15, bits >> 31);
  }
}

}  // namespace
}  // namespace qkv
