// y = x W^T + b on the project's own tiles, over a weight packed in panels (kernels/project.h and
// project_pairs.h).
#pragma once

#include <cstdint>

#include "kernels/project.h"
#include "kernels/project_pairs.h"
#include "layers/linear_backend.h"

namespace qkv {

// Views of what a backend owns. T: float, or BFloat16, which is multiplied as float32.
template <class T>
struct Panels {
  const T* packed = nullptr;    // one panel after the other, the last one padded with zeros
  const float* bias = nullptr;  // (outputs), or null
  int64_t inputs = 0, outputs = 0;
  PanelKernel kernel;
};

// x (rows, inputs) -> y (rows, outputs). x is widened to float32 first where it is not. The same bits for any
// number of threads.
template <class T>
void MultiplyPanels(const Panels<T>& weight, ConstRows x, int64_t rows, Rows y, Into into);
extern template void MultiplyPanels(const Panels<float>&, ConstRows, int64_t, Rows, Into);
extern template void MultiplyPanels(const Panels<BFloat16>&, ConstRows, int64_t, Rows, Into);

// The same for panels of 64 columns and y of float32, in triples of bfloat16 (kernels/triple_matmul.h). Needs
// HasTripleMatMul(ChosenIsa()).
void MultiplySplitPanels(const Panels<float>& weight, ConstRows x, int64_t rows, Rows y, Into into);

// A weight in panels of pairs, multiplied in bfloat16.
struct PairPanels {
  const BFloat16* packed = nullptr;  // one panel after the other, inputs and outputs padded with zeros
  const float* bias = nullptr;       // (outputs), or null
  int64_t inputs = 0, outputs = 0;
  PairPanelKernel kernel{};
};

// The same for rows <= kPairPanelRows; x is rounded to bfloat16 first where it is not. A row's bits do not
// depend on the rows beside it either.
void MultiplyPanels(const PairPanels& weight, ConstRows x, int64_t rows, Rows y, Into into);

}  // namespace qkv
