// Normalisation of rows.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// Layer normalisation (Ba et al. 2016, https://arxiv.org/abs/1607.06450) with the biased variance:
//   out = (x - mean(x)) / sqrt(var(x) + epsilon) * gain + shift, row by row.
// x, out: (rows, width), contiguous, may be the same; rounded, where given: out in bfloat16 too, (rows, width).
// gain, shift: (width). Any alignment. width > 0.
struct LayerNormParameters {
  const float* gain = nullptr;
  const float* shift = nullptr;
  int64_t width = 0;
  float epsilon = 0;
};
void LayerNormRows(const float* x, int64_t rows, const LayerNormParameters& parameters, float* out,
                   BFloat16* rounded = nullptr) noexcept;

}  // namespace qkv
