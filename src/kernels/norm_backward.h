// Gradients of the norms of kernels/norm.h. The statistics of a row are taken from x again: it is in the
// nearest cache.
#pragma once

#include <cstdint>

#include "kernels/norm.h"

namespace qkv {

struct NormGradients {
  float* dx = nullptr;      // (rows, width): added to, as where a residual stream passes by
  float* dgain = nullptr;   // (width): added to
  float* dshift = nullptr;  // (width): added to; of layer normalisation only
  float* out = nullptr;     // (rows, width), or null: what the norm gave, again
};

// x, dout: (rows, width), contiguous, any alignment. out may be dout; dx may be neither.
void LayerNormBackwardRows(const float* x, const float* dout, int64_t rows,
                           const LayerNormParameters& parameters, const NormGradients& gradients) noexcept;

// Of out = x / sqrt(mean(x^2) + epsilon) * gain; the parameters' shift is not read.
void RmsNormBackwardRows(const float* x, const float* dout, int64_t rows, const LayerNormParameters& parameters,
                         const NormGradients& gradients) noexcept;

}  // namespace qkv
