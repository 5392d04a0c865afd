// Norms in training: over many rows at once, to and from float or BFloat16 activations, beside a float residual
// stream.
#pragma once

#include <cstdint>

#include "kernels/norm_backward.h"
#include "qkv/tensor.h"

namespace qkv {

// out = layer normalisation of x, both (rows, width).
template <class T>
void LayerNormForward(const float* x, int64_t rows, const LayerNormParameters& parameters, T* out);

// T is float or BFloat16.
template <class T>
struct NormBackward {
  const float* x = nullptr;  // (rows, width): what went in
  const T* dout = nullptr;   // (rows, width)
  float* dx = nullptr;       // (rows, width): added to
  float* dgain = nullptr;    // (width): added to
  float* dshift = nullptr;   // (width): added to; of layer normalisation only
  T* out = nullptr;          // (rows, width), apart from the rest: what came out, again
  T* rounded_dx = nullptr;   // (rows, width), apart from the rest: dx as bfloat16; null for float, or where not wanted
};

// The same bits for any number of threads.
template <class T>
void LayerNormBackward(const NormBackward<T>& arrays, int64_t rows, const LayerNormParameters& parameters);
template <class T>
void RmsNormBackward(const NormBackward<T>& arrays, int64_t rows, const LayerNormParameters& parameters);

}  // namespace qkv
