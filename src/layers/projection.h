// A linear layer in training, y = x W + b, with a weight that changes from step to step and is used where it
// lies.
#pragma once

#include <cstdint>
#include <utility>

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

// y (rows, outputs) = x W + b; x (rows, inputs). Y is float, or T. `then`, where given, is called for parts of y.
template <class T, class Y>
void ProjectForward(const Projection<T>& p, const T* x, int64_t rows, Y* y, PartWork then = {},
                    const float* residual = nullptr) {
  Product product(rows, p.outputs, p.inputs, y);
  product.bias = p.bias;
  product.residual = residual;
  product.then = std::move(then);
  MatMul(x, {p.weight, p.order == WeightOrder::kInOut ? Layout::kRows : Layout::kColumns}, product);
}

// y = residual + x W + b; residual may be y.
template <class T>
void ProjectOnto(const Projection<T>& p, const T* x, int64_t rows, const float* residual, float* y) {
  ProjectForward(p, x, rows, y, {}, residual);
}

// dx (rows, inputs) = or += dy W^T. `then`, where given, is called for parts of dx.
template <class T, class X>
void ProjectBackward(const Projection<T>& p, const T* dy, int64_t rows, X* dx, Into into = Into::kOverwrite,
                     PartWork then = {}) {
  const Layout transposed = p.order == WeightOrder::kInOut ? Layout::kColumns : Layout::kRows;
  Product product(rows, p.inputs, p.outputs, dx, into);
  product.then = std::move(then);
  MatMul(dy, {p.weight, transposed}, product);
}

// dweight += x^T dy in the weight's order, and dbias (outputs) += the sum of dy's rows, where it is not null.
template <class T>
void AddProjectionGradients(const Projection<T>& p, const T* x, const T* dy, int64_t rows, float* dweight,
                            float* dbias);

}  // namespace qkv
