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

// Root-mean-square normalisation (Zhang & Sennrich 2019, https://arxiv.org/abs/1910.07467):
//   out = x / sqrt(mean(x^2) + epsilon) * gain, row by row.
// x and out: rows of `width` elements whose beginnings are x_stride and out_stride apart; may be the same.
struct RmsNormParameters {
  const float* gain = nullptr;
  int64_t width = 0;
  float epsilon = 0;
};
void RmsNormRows(const float* x, int64_t x_stride, int64_t rows, const RmsNormParameters& parameters, float* out,
                 int64_t out_stride) noexcept;

}  // namespace qkv
