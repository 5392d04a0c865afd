// A linear layer in training, y = x W + b, with a weight that changes from step to step and is used where it
// lies.
#pragma once

#include <cstdint>

#include "layers/matmul.h"

namespace qkv {

enum class WeightOrder {
  kInOut,  // (inputs, outputs), as GPT-2's files hold it
  kOutIn,  // (outputs, inputs), as PyTorch's nn.Linear holds it
};

// T is float or BFloat16.
template <class T>
struct Projection {
  const T* weight = nullptr;
  const float* bias = nullptr;  // (outputs), or null for zero
  int64_t inputs = 0, outputs = 0;
  WeightOrder order = WeightOrder::kInOut;
};

// y (rows, outputs) = or += x W + b; x (rows, inputs). Y is float, or T.
template <class T, class Y>
void ProjectForward(const Projection<T>& p, const T* x, int64_t rows, Y* y, Into into = Into::kOverwrite) {
  Product product(rows, p.outputs, p.inputs, y, into);
  product.bias = p.bias;
  MatMul(x, {p.weight, p.order == WeightOrder::kInOut ? Layout::kRows : Layout::kColumns}, product);
}

// dx (rows, inputs) = or += dy W^T.
template <class T, class X>
void ProjectBackward(const Projection<T>& p, const T* dy, int64_t rows, X* dx, Into into = Into::kOverwrite) {
  const Layout transposed = p.order == WeightOrder::kInOut ? Layout::kColumns : Layout::kRows;
  MatMul(dy, {p.weight, transposed}, Product(rows, p.inputs, p.outputs, dx, into));
}

// dweight += x^T dy in the weight's order, and dbias (outputs) += the sum of dy's rows, where it is not null.
template <class T>
void AddProjectionGradients(const Projection<T>& p, const T* x, const T* dy, int64_t rows, float* dweight,
                            float* dbias);

}  // namespace qkv
