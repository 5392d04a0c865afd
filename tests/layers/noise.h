// The numbers of tests/golden/layers/make.py: parameters and inputs that files need not hold.
#pragma once

#include <cstdint>
#include <vector>

namespace qkv::test {

// Uniform in [-1/2, 1/2), times `scale`: `noise` of make.py, the same bits.
inline std::vector<float> Noise(uint32_t seed, int64_t count, float scale = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t x = static_cast<uint32_t>(i) + seed * 0x9E3779B9u;
    for (const uint32_t factor : {0x85EBCA6Bu, 0xC2B2AE35u}) x = (x ^ (x >> 16)) * factor;
    x ^= x >> 16;
    values[i] = (static_cast<float>(x >> 8) / 16777216.0f - 0.5f) * scale;
  }
  return values;
}

}  // namespace qkv::test
