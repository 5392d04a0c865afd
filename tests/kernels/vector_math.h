// The per-target functions of src/kernels' -inl.h files, made callable on arrays for the tests.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"
#include "runtime/cpu.h"

namespace qkv::test {

struct VectorMath {
  void (*exp2)(const float* x, int64_t count, float* y);
  void (*tanh)(const float* x, int64_t count, float* y);
  void (*row_exp)(const float* x, int64_t count, float base, float* y);  // exp(x - base)
  void (*from_bfloat16)(const BFloat16* x, int64_t count, float* y);
  void (*from_float16)(const Float16* x, int64_t count, float* y);
  // c (rows, columns up to whole vectors) = a (rows, depth) * b (depth, panel), all at once or in calls of the
  // given rows and depth.
  void (*multiply)(int64_t rows, int64_t columns, int64_t depth, const float* a, const float* b, float* c,
                   int64_t ldc, int64_t rows_step, int64_t depth_step);
  int64_t lanes, panel, tile_rows;
};

VectorMath VectorMathFor(Isa isa);

}  // namespace qkv::test
