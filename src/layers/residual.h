// What stands between the layers of a decoder: activations, dropout and residual sums, over whole arrays.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/gelu.h"
#include "kernels/dropout.h"
#include "qkv/tensor.h"

namespace qkv {

// (rows, width), contiguous. T is float or BFloat16.
struct RowsShape {
  int64_t rows = 0, width = 0;
};

// out = gelu(x); the backward gives dx = gelu'(x) dx, and out = gelu(x) again.
template <class T>
void Gelus(Gelu kind, const T* x, RowsShape shape, T* out);
template <class T>
void GelusBackward(Gelu kind, const T* x, RowsShape shape, T* dx, T* out);

// dgate_up of SwiGLU; gate_up, dgate_up (rows, 2 width), dout (rows, width).
void SwiGluBackward(const float* gate_up, const float* dout, RowsShape shape, float* dgate_up);

// to = from.
void CopyRows(const float* from, RowsShape shape, float* to);
// out = residual + dropout(branch); out may be either.
void AddDropped(const DropoutRows& dropout, const float* branch, const float* residual, RowsShape shape,
                float* out);
// The gradient that passes by a dropout, or by none: out = dropout(dout), rounded to T.
template <class T>
void DropGradient(const std::optional<DropoutRows>& dropout, const float* dout, RowsShape shape, T* out);

}  // namespace qkv
