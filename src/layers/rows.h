// Rows of activations between layers: float32 or bfloat16, one row after the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

struct ConstRows {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  ConstRows(const float* rows) : data(rows) {}
  ConstRows(const BFloat16* rows) : data(rows), dtype(DType::kBF16) {}
  ConstRows(const void* rows, DType type) : data(rows), dtype(type) {}
  ConstRows From(int64_t element) const {
    return {static_cast<const std::byte*>(data) + element * static_cast<int64_t>(SizeOf(dtype)), dtype};
  }
};

struct Rows {
  void* data = nullptr;
  DType dtype = DType::kF32;

  Rows(float* rows) : data(rows) {}
  Rows(BFloat16* rows) : data(rows), dtype(DType::kBF16) {}
  Rows(void* rows, DType type) : data(rows), dtype(type) {}
  Rows From(int64_t element) const {
    return {static_cast<std::byte*>(data) + element * static_cast<int64_t>(SizeOf(dtype)), dtype};
  }
  operator ConstRows() const { return {data, dtype}; }
};

// `count` elements as the other type (to nearest, ties to even), or x itself where it is of that type already.
// The memory is the calling thread's, valid until its next call.
ConstRows Convert(ConstRows x, int64_t count, DType dtype);

// The same into memory of the caller's.
void RoundRows(const float* x, int64_t count, BFloat16* to);

}  // namespace qkv
