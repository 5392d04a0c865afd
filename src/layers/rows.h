// Rows of activations between layers: float32 or bfloat16, one row after the other.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

struct ConstRows {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  ConstRows(const float* rows) : data(rows) {}
  ConstRows(const BFloat16* rows) : data(rows), dtype(DType::kBF16) {}
};

struct Rows {
  void* data = nullptr;
  DType dtype = DType::kF32;

  Rows(float* rows) : data(rows) {}
  Rows(BFloat16* rows) : data(rows), dtype(DType::kBF16) {}
};

// `count` elements as the other type (to nearest, ties to even), or x itself where it is of that type already.
// The memory is the calling thread's, valid until its next call.
ConstRows Convert(ConstRows x, int64_t count, DType dtype);

}  // namespace qkv
