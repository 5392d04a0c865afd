// x W^T on the project's own tiles, for machines where oneDNN cannot run.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

inline constexpr int64_t kProjectRows = 96;  // rows of one task: 16 tiles of 6, so a panel is read from L2
inline constexpr int64_t kProjectMaxColumns = 64;  // the widest panel of any instruction set

// W^T is packed in panels of `columns` outputs each: for every input k in turn, W[first ... first +
// columns)[k].
struct PanelKernel {
  int64_t columns;
  // sums (rows, columns, contiguous) = x * panel^T. x: (rows, inputs), row-major; rows <= kProjectRows.
  void (*multiply)(const float* x, int64_t rows, int64_t inputs, const float* panel, float* sums);
  // The same with a panel of bfloat16, widened a piece at a time.
  void (*multiply_bf16)(const float* x, int64_t rows, int64_t inputs, const BFloat16* panel, float* sums);
};

PanelKernel ChosenPanelKernel();  // of ChosenIsa()

// One panel: weight (outputs, inputs), row-major, outputs <= columns; the missing outputs are packed as zeros.
void PackPanel(const float* weight, int64_t outputs, int64_t inputs, int64_t columns, float* panel) noexcept;
void PackPanel(const float* weight, int64_t outputs, int64_t inputs, int64_t columns, BFloat16* panel) noexcept;

}  // namespace qkv
