// Matrix products whose operands all change, as training has them: nothing is packed ahead. In bfloat16 on AMX, on the
// project's own tiles; else on oneDNN; on portable tiles where oneDNN cannot run, or has no instructions for the type.
#pragma once

#include <cstdint>
#include <functional>

#include "layers/linear_backend.h"
#include "layers/row_tasks.h"
#include "qkv/tensor.h"

namespace qkv {

enum class Layout {
  kRows,
  kColumns
};  // row after row, or column after column (the transpose lies row after row)

struct Matrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;  // or kBF16; both factors have the same
  Layout layout = Layout::kRows;

  template <class T>
  Matrix(const T* first, Layout order = Layout::kRows) : data(first), dtype(DTypeOf<T>::value), layout(order) {}
};

using PartWork = std::function<void(const RowsPart&)>;

struct Product {
  int64_t m = 0, n = 0, k = 0;  // (m, k) times (k, n)
  void* data = nullptr;         // (m, n), row after row
  DType dtype = DType::kF32;    // kF32, or kBF16 where the factors are
  Into into = Into::kOverwrite;
  const float* bias = nullptr;      // (n), added to every row; or null
  const float* residual = nullptr;  // (m, n), added where into is kOverwrite and c is float, may be c; or null
  float* column_sums = nullptr;     // (n): += the sums of b's columns; or null
  PartWork then;                    // called by some thread for each part when it is finished, and in its cache

  template <class T>
  Product(int64_t rows, int64_t columns, int64_t depth, T* first, Into how = Into::kOverwrite)
      : m(rows), n(columns), k(depth), data(first), dtype(DTypeOf<T>::value), into(how) {}
};

// c = or += a b + bias + residual, the sums in float32. Contiguous, apart from each other. Sizes of zero are allowed.
// The same bits for the same sizes, threads and machine. Error{kInternal} for a failure of oneDNN,
// Error{kOutOfMemory}.
void MatMul(const Matrix& a, const Matrix& b, const Product& c);

// sums (columns) += the rows of a matrix (rows, columns), which lies row after row.
void AddMatrixColumnSums(const Matrix& b, int64_t rows, int64_t columns, float* sums);

// The ways; the second alone knows residual, column_sums and then.
bool OneDnnMultiplies(DType dtype);  // whether it runs here, with instructions for the type
void OneDnnMatMul(const Matrix& a, const Matrix& b, const Product& c);
void PairMatMul(const Matrix& a, const Matrix& b, const Product& c);    // of bfloat16, where HasPairMatMul
void TripleMatMul(const Matrix& a, const Matrix& b, const Product& c);  // of float32, where HasTripleMatMul
void TileMatMul(const Matrix& a, const Matrix& b, const Product& c);

}  // namespace qkv
