// How a matrix product is cut into blocks for the kernels that multiply them (kernels/pair_matmul.h,
// triple_matmul.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/matmul_block.h"
#include "layers/matmul.h"
#include "qkv/tensor.h"
#include "runtime/threads.h"

namespace qkv {

constexpr int64_t BlocksOf(int64_t size, int64_t block) { return (size + block - 1) / block; }

// A matrix of (rows, columns) from an element on.
template <class T>
Factor<T> FactorAt(const Matrix& matrix, int64_t rows, int64_t columns, int64_t row, int64_t column) {
  const auto* data = static_cast<const T*>(matrix.data);
  if (matrix.layout == Layout::kRows) return {data + row * columns + column, columns, FactorOrder::kRows};
  return {data + column * rows + row, rows, FactorOrder::kColumns};
}

// Where a part of c goes.
inline BlockResult ResultAt(const Product& c, const RowsPart& part) {
  const int64_t at = part.row * c.n + part.column;
  BlockResult result{.rows = part.rows, .columns = part.columns, .out_stride = c.n, .out_dtype = c.dtype};
  if (c.bias != nullptr) result.bias = c.bias + part.column;
  result.out = static_cast<std::byte*>(c.data) + at * static_cast<int64_t>(SizeOf(c.dtype));
  if (c.into == Into::kAdd) result.added = result.out;
  if (c.residual != nullptr) result.added = c.residual + at;
  return result;
}

}  // namespace qkv
