// Matrices quantised in blocks, as GGUF files hold them: how the blocks lie, dequantising rows, and products
// with float vectors that never make a float copy of the matrix.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkv/tensor.h"
#include "runtime/cpu.h"

namespace qkv {

// The names are llama.cpp's. Element i of a block is
//   Q8_0  d * q                    32 elements, 34 bytes: d float16, q 32 x int8
//   Q4_0  d * (q - 8)              32, 18: d, then 16 bytes: low halves are elements 0 to 15, high ones 16 to
//   31 Q4_1  d * q + m                32, 20: d, m, then as Q4_0 Q5_0  d * (q - 16)             32, 22: d,
//   uint32 of fifth bits (bit i is element i's), then as Q4_0 Q5_1  d * q + m                32, 24: d, m,
//   fifth bits, then as Q4_0 Q4_K  d * s_j * q - m * t_j    256, 144: d, m, 12 bytes of eight 6-bit s_j and t_j
//   (one a 32 elements), 128
//                                  bytes: of each 32, low halves are 32 elements and high ones the next 32
//   Q5_K  the same                 256, 176: d, m, s_j and t_j, 32 bytes of fifth bits (bit j of byte i is
//   element
//                                  32 j + i's), then as Q4_K
//   Q6_K  d * s_j * (q - 32)       256, 210: 128 bytes of low 4 bits, 64 of high 2 bits, s_j 16 x int8 (one a
//   16
//                                  elements), d
enum class QuantisedType { kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K };

const char* NameOf(QuantisedType type);  // "Q8_0", ...

struct QuantisedBlock {
  int64_t elements;
  int64_t bytes;
};
QuantisedBlock BlockOf(QuantisedType type);

// A view of a matrix (rows, cols), row after row without gaps, aligned to nothing.
// cols is a multiple of BlockOf(type).elements.
struct QuantisedMatrix {
  QuantisedType type = QuantisedType::kQ8_0;
  int64_t rows = 0, cols = 0;
  const std::byte* data = nullptr;

  int64_t row_bytes() const { return cols / BlockOf(type).elements * BlockOf(type).bytes; }
  const std::byte* row(int64_t i) const { return data + i * row_bytes(); }
};

// Rows first_row to first_row + rows - 1 as floats, exactly as the formulas above give them in float32, or
// rounded to bfloat16. out: (rows, cols), contiguous, all of it written; dtype is kF32 or kBF16. Several
// threads may dequantise parts of one matrix.
void DequantiseRows(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, DType dtype,
                    void* out) noexcept;

// A vector for products with quantised rows: each 32 elements as 16-bit integers with one scale. Sixteen bits
// and not eight: the processor multiplies the widened weights as fast, and the vector's own rounding error
// disappears beside that of the weights.
inline constexpr int64_t kVectorGroup = 32;
inline constexpr int kVectorMost = 127 * 256;  // the largest integer: its high byte is a signed one (SplitVector)
struct VectorScale {
  float scale;  // element = scale * q
  float sum;    // of the group's elements as rounded: scale * (sum of q)
};

// x: (cols), cols a multiple of kVectorGroup. q: (cols), scales: (cols / kVectorGroup), both all written. A
// group with a NaN or an infinity makes all sums over it non-finite.
void QuantiseVector(const float* x, int64_t cols, int16_t* q, VectorScale* scales) noexcept;

// out[i] = sum over c of matrix[first_row + i][c] * x[c], for x as QuantiseVector left it: exact integer
// products within a group, float32 sums over the groups. Each element's bits depend on its row and on x alone.
// out: (rows), all written.
void MultiplyQuantisedRows(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, const int16_t* q,
                           const VectorScale* scales, float* out) noexcept;

// The same on processors that multiply bytes, for the formats that MultipliesBytes says; the other two are called only
// where it says so. Each integer is 256 * high + low. split: of each 64 elements 64 high bytes, then 64 low ones;
// SplitBytes(cols) of them, all written.
inline constexpr int64_t SplitBytes(int64_t cols) { return (cols + 63) / 64 * 128; }
bool MultipliesBytes(QuantisedType type);
void SplitVector(const int16_t* q, int64_t cols, int8_t* split) noexcept;
void MultiplyQuantisedBytes(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, const int8_t* split,
                            const VectorScale* scales, float* out) noexcept;

}  // namespace qkv
