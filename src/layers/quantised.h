// Products with matrices that stay quantised in memory (kernels/quantised.h), over all threads.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/quantised.h"
#include "qkv/tensor.h"

namespace qkv {

// out (m, total rows) = x (m, cols) * matrices^T: for decoding, where m is 1 or small and the time is that of
// reading the matrices. Several matrices that share x (q, k and v; gate and up) go in one call, their outputs
// side by side, as with Linear; they have the same cols. x, out: contiguous, apart from each other. The same
// bits for any number of threads, any m and any grouping of matrices. Error{kOutOfMemory}.
void MultiplyQuantised(std::span<const QuantisedMatrix> matrices, const float* x, int64_t m, float* out);
void MultiplyQuantised(const QuantisedMatrix& matrix, const float* x, int64_t m, float* out);

// Rows [first_row, first_row + rows) as float32 or bfloat16, contiguous: to look tokens up in an embedding, and
// to pack whole matrices for the large multiplies of prompts. Error{kInvalidArgument} for another dtype or rows
// that the matrix does not have.
void Dequantise(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, DType dtype, void* out);

}  // namespace qkv
