#include "view/color.h"

#include <algorithm>
#include <cmath>

namespace qkv::view {

float Shade(float weight) { return std::sqrt(std::clamp(weight, 0.0f, 1.0f)); }

Rgb ColorAt(const Ramp& ramp, float shade) {
  const float at = std::clamp(shade, 0.0f, 1.0f) * static_cast<float>(ramp.size() - 1);
  const size_t low = std::min(static_cast<size_t>(at), ramp.size() - 2);
  const float part = at - static_cast<float>(low);
  const auto mix = [&](uint8_t a, uint8_t b) {
    return static_cast<uint8_t>(std::lround(static_cast<float>(a) + part * static_cast<float>(b - a)));
  };
  const Rgb &a = ramp[low], &b = ramp[low + 1];
  return {mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b)};
}

bool IsDark(Rgb color) {
  // Relative luminance of sRGB (IEC 61966-2-1); 0.179 is where black and white text have equal contrast.
  const auto linear = [](uint8_t channel) {
    const double value = channel / 255.0;
    return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(color.r) + 0.7152 * linear(color.g) + 0.0722 * linear(color.b) < 0.179;
}

}  // namespace qkv::view
