// What an optimizer does to long arrays.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// One step of Adam with decoupled decay (Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101):
//   g' = gradient_scale g;  m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2;
//   p = (1 - shrink) p - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
struct AdamWStep {
  float gradient_scale = 1, beta1 = 0, beta2 = 0, epsilon = 0, rate = 0;
  float shrink = 0;                        // rate times weight decay
  float correction1 = 1, correction2 = 1;  // 1 - beta1^t, 1 - beta2^t
};
// gradient, parameter, m, v: `count` floats, apart from each other, any alignment.
void AdamWUpdate(const AdamWStep& step, const float* gradient, int64_t count, float* parameter, float* m,
                 float* v) noexcept;

// The sum of the squares, in double: no number of floats makes it overflow.
double SumOfSquares(const float* x, int64_t count) noexcept;

// sums[c] += x[0][c] + ... + x[rows - 1][c]: rows of `columns` elements whose beginnings are `stride` apart.
// T is float or BFloat16. The same bits whatever the number of columns.
template <class T>
void AddColumnSums(const T* x, int64_t rows, int64_t columns, int64_t stride, float* sums) noexcept;

}  // namespace qkv
