// x W^T on the project's own tiles, for machines where oneDNN cannot run, and for weights that are read from memory.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

inline constexpr int64_t kProjectRows = 96;  // rows of one task: 16 tiles of 6, so a panel is read from L2
inline constexpr int64_t kProjectMaxColumns = 64;  // the widest panel of any instruction set
// Panels of one task: each piece of x is read for all of them, and their sums (96 KiB) stay in L2.
inline constexpr int64_t kProjectPanels = 4;

// W^T is packed in panels of `columns` outputs each: for every input k in turn, W[first ... first +
// columns)[k]. Panels follow each other.
struct PanelKernel {
  int64_t columns;
  // sums (panels, rows, columns), contiguous, = x * panel^T for `panels` panels from `packed` on. x: (rows, inputs),
  // row-major; rows <= kProjectRows, panels <= kProjectPanels.
  void (*multiply)(const float* x, int64_t rows, int64_t inputs, const float* packed, int64_t panels, float* sums);
  // The same with panels of bfloat16, widened a piece at a time.
  void (*multiply_bf16)(const float* x, int64_t rows, int64_t inputs, const BFloat16* packed, int64_t panels,
                        float* sums);
};

PanelKernel ChosenPanelKernel();  // of ChosenIsa()

// One panel of outputs <= columns rows of W, each of `inputs` floats; the missing outputs are packed as zeros.
void PackPanel(const float* const* rows, int64_t outputs, int64_t inputs, int64_t columns, float* panel) noexcept;
void PackPanel(const float* const* rows, int64_t outputs, int64_t inputs, int64_t columns, BFloat16* panel) noexcept;

}  // namespace qkv
