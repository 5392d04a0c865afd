// Dropout of activations. Channel c of row r is kept by the bits of counter (c div 4, r, 0, 0): those of the
// attention weight (0, 0, r, c) of runtime/random.h, so threads and pieces do not matter.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"
#include "runtime/random.h"

namespace qkv {

struct DropoutRows {
  DropoutBits bits;
  float scale = 1;  // of what is kept: 1 / (1 - p)
};

// out = dropout(x), or residual + dropout(x) where there is a residual: rows first_row, first_row + 1, ... of
// the whole. x, residual, out: (rows, width), contiguous, any alignment; out may be x or the residual. To is
// float or BFloat16.
template <class To>
void Drop(const DropoutRows& dropout, int64_t first_row, const float* x, const float* residual, int64_t rows,
          int64_t width, To* out) noexcept;

}  // namespace qkv
