// What feed-forward layers do between their two multiplies.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

enum class Activation {
  kNone,
  kRelu,
  kGeluErf,   // x / 2 * (1 + erf(x / sqrt(2))) (Hendrycks & Gimpel 2016, https://arxiv.org/abs/1606.08415)
  kGeluTanh,  // the same paper's approximation: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
};

// x[i] = f(x[i]), any alignment. NaN stays NaN. Absolute errors: 5e-7 (float32), 2e-5 and the type's rounding (bfloat16).
void Activate(Activation activation, float* x, int64_t count) noexcept;
void Activate(Activation activation, BFloat16* x, int64_t count) noexcept;

}  // namespace qkv
