// Normalisation of rows.
#pragma once

#include <cstdint>

namespace qkv {

// Layer normalisation (Ba et al. 2016, https://arxiv.org/abs/1607.06450) with the biased variance:
//   out = (x - mean(x)) / sqrt(var(x) + epsilon) * gain + shift, row by row.
// x, out: (rows, width), contiguous, may be the same; gain, shift: (width). Any alignment. width > 0.
struct LayerNormParameters {
  const float* gain = nullptr;
  const float* shift = nullptr;
  int64_t width = 0;
  float epsilon = 0;
};
void LayerNormRows(const float* x, int64_t rows, const LayerNormParameters& parameters, float* out) noexcept;

}  // namespace qkv
