// x W^T of a few rows in products of bfloat16 pairs (kernels/pairs.h). So few take as long to multiply as their
// weight to read, so the tiles do both at once: each piece of a panel is asked for while the one before is
// multiplied. Every element is one chain in ascending inputs, whatever the rows beside it.
//
// W^T is packed in panels of 64 outputs: for every 32 inputs in turn, (16 pairs, 64 outputs, 2). Panels follow
// each other; inputs and outputs are padded with zeros.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"
#include "runtime/cpu.h"

namespace qkv {

inline constexpr int64_t kPairPanelColumns = 64;
// Of a call, at most: multiplying more takes longer than reading a weight.
inline constexpr int64_t kPairPanelRows = 96;

struct PairPanelKernel {
  // sums (panels, rows, 64) = x * panel^T for `panels` panels from `packed` on. x: (rows, 32 steps), row-major.
  void (*multiply)(const BFloat16* x, int64_t rows, int64_t steps, const BFloat16* packed, int64_t panels,
                   float* sums);
  // y = sums + bias, or sums where bias is null, by the processor's own rounding: subnormal numbers become
  // zero.
  void (*round)(const float* sums, const float* bias, int64_t count, BFloat16* y);
};
PairPanelKernel PairPanelKernelFor(Isa isa);  // needs HasPairKernels(isa)

}  // namespace qkv
