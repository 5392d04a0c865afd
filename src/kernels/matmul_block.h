// What blocks of matrix products on AMX's tiles have in common (kernels/pair_matmul.h, triple_matmul.h).
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

enum class FactorOrder { kRows, kColumns };  // row after row, or column after column

// From its first element on; `stride` elements from a row, or column, to the next.
template <class T>
struct Factor {
  const T* data = nullptr;
  int64_t stride = 0;
  FactorOrder order = FactorOrder::kRows;
};

// Where a block's product goes: out (rows, columns) = product + bias + added.
struct BlockResult {
  int64_t rows = 0, columns = 0;
  const float* bias = nullptr;  // (columns), or null for zero
  const void* added =
      nullptr;  // rows `out_stride` apart, of out's type where it is out, else float; or null for zero
  void* out = nullptr;
  int64_t out_stride = 0;
  DType out_dtype = DType::kF32;  // or kBF16
};

}  // namespace qkv
