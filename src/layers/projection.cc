#include "layers/projection.h"

#include <algorithm>

#include "kernels/optimizer.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// Columns of one task: two cache lines of bfloat16, four of float32.
constexpr int64_t kColumns = 64;

template <class T>
void AddBiasGradient(const T* dy, int64_t rows, int64_t outputs, float* dbias) {
  ParallelFor((outputs + kColumns - 1) / kColumns, [&](int64_t task, int) {
    const int64_t first = task * kColumns;
    AddColumnSums(dy + first, rows, std::min(kColumns, outputs - first), outputs, dbias + first);
  });
}

}  // namespace

template <class T>
void AddProjectionGradients(const Projection<T>& p, const T* x, const T* dy, int64_t rows, float* dweight,
                            float* dbias) {
  if (p.order == WeightOrder::kInOut) {
    MatMul({x, Layout::kColumns}, dy, Product(p.inputs, p.outputs, rows, dweight, Into::kAdd));
  } else {
    MatMul({dy, Layout::kColumns}, x, Product(p.outputs, p.inputs, rows, dweight, Into::kAdd));
  }
  if (dbias != nullptr) AddBiasGradient(dy, rows, p.outputs, dbias);
}

template void AddProjectionGradients(const Projection<float>&, const float*, const float*, int64_t, float*,
                                     float*);
template void AddProjectionGradients(const Projection<BFloat16>&, const BFloat16*, const BFloat16*, int64_t,
                                     float*, float*);

}  // namespace qkv
