// The colours of the pictures. Both ramps are ordered by lightness alone, so they read without colour vision
// and in grey print; the mark is the complement that stays apart from either.
#pragma once

#include <array>
#include <cstdint>

namespace qkv::view {

struct Rgb {
  uint8_t r = 0, g = 0, b = 0;
};

using Ramp = std::array<Rgb, 5>;

inline constexpr Ramp kPaperRamp = {
    {{255, 255, 255}, {208, 224, 244}, {128, 173, 220}, {47, 110, 184}, {8, 42, 105}}};
inline constexpr Ramp kNightRamp = {
    {{32, 36, 46}, {84, 61, 40}, {158, 97, 24}, {232, 158, 28}, {255, 236, 150}}};
inline constexpr Rgb kPaperMark = {200, 80, 0}, kNightMark = {110, 215, 255};

// How strongly a weight in [0, 1] is shown. The square root keeps small weights visible and the order right.
float Shade(float weight);

Rgb ColorAt(const Ramp& ramp, float shade);
bool IsDark(Rgb color);  // white text reads better on it than black

}  // namespace qkv::view
