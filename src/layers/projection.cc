#include "layers/projection.h"

namespace qkv {
template <class T>
void AddProjectionGradients(const Projection<T>& p, const T* x, const T* dy, int64_t rows, float* dweight,
                            float* dbias) {
  if (p.order == WeightOrder::kInOut) {
    Product product(p.inputs, p.outputs, rows, dweight, Into::kAdd);
    product.column_sums = dbias;
    return MatMul({x, Layout::kColumns}, dy, product);
  }
  MatMul({dy, Layout::kColumns}, x, Product(p.outputs, p.inputs, rows, dweight, Into::kAdd));
  if (dbias != nullptr) AddMatrixColumnSums(dy, rows, p.outputs, dbias);
}

template void AddProjectionGradients(const Projection<float>&, const float*, const float*, int64_t, float*,
                                     float*);
template void AddProjectionGradients(const Projection<BFloat16>&, const BFloat16*, const BFloat16*, int64_t,
                                     float*, float*);

}  // namespace qkv
