// y = x W^T + b on the project's own tiles, over a weight packed in panels (kernels/project.h and
// project_pairs.h).
#pragma once

#include <cstdint>

#include "kernels/project.h"
#include "kernels/project_pairs.h"
#include "kernels/triple_matmul.h"
#include "layers/linear_backend.h"
#include "runtime/aligned.h"

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

// A weight in panels of 64 columns once more, as triples of bfloat16 (kernels/triple_matmul.h): half as much memory again.
// Needs HasTripleMatMul(ChosenIsa()).
class SplitPanels {
 public:
  explicit SplitPanels(const Panels<float>& weight);
  // y of float32.
  void Multiply(ConstRows x, int64_t rows, Rows y, Into into) const;

 private:
  Panels<float> weight_;
  AlignedBuffer<BFloat16> tiles_;
  AlignedBuffer<uint8_t> odd_;
  TripleColumns columns_;
};

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
