// Conversions between float and the 16-bit floating-point types, one value at a time and exact: to nearest,
// ties to even; infinities stay, NaN stays NaN (quiet, its sign kept), subnormals are not flushed. Kernels have
// vector versions; these are what they are tested against.
#pragma once

#include <bit>
#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// value / 2^shift, to nearest, ties to even; 1 <= shift <= 31, and value + 2^shift fits in 32 bits.
constexpr uint32_t ShiftRoundingToEven(uint32_t value, uint32_t shift) {
  const uint32_t just_below_half = (uint32_t{1} << (shift - 1)) - 1;
  return (value + just_below_half + ((value >> shift) & 1)) >> shift;
}

constexpr float ToFloat(BFloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

constexpr BFloat16 ToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  // Rounding could carry a NaN's payload into infinity, so its top bits are kept and the quiet bit is set.
  return {static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : ShiftRoundingToEven(bits, 16))};
}

constexpr float ToFloat(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  const uint32_t magnitude = value.bits & 0x7fff;
  uint32_t bits = 0;
  if (magnitude >= 0x7c00) {  // infinity, NaN
    const uint32_t quiet = magnitude > 0x7c00 ? 0x00400000 : 0;
    bits = 0x7f800000 | ((magnitude & 0x3ff) << 13) | quiet;
  } else if (magnitude >= 0x0400) {  // normal: only the exponent's bias differs, 127 against 15
    bits = (magnitude << 13) + ((127 - 15) << 23);
  } else {  // zero and subnormal: units of 2^-24
    bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | bits);
}

constexpr Float16 ToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t exponent = magnitude >> 23;
  uint32_t half = 0;
  if (magnitude > 0x7f800000) {  // NaN
    half = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  } else if (magnitude >= 0x477ff000) {  // 65520, halfway past the largest (65504), and all above: infinity
    half = 0x7c00;
  } else if (exponent >= 113) {  // normal: 2^-14 and above; a carry may raise the exponent, as it should
    half = ShiftRoundingToEven(magnitude - ((127 - 15) << 23), 13);
  } else if (exponent >= 102) {  // subnormal: units of 2^-24
    half = ShiftRoundingToEven((magnitude & 0x7fffff) | 0x800000, 126 - exponent);
  }  // else less than half a unit: zero
  return {static_cast<uint16_t>(sign | half)};
}

}  // namespace qkv
