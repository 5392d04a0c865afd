// What stands between the layers of a decoder: activations, dropout and residual sums. T is float or BFloat16.
#pragma once

#include <cstdint>

#include "kernels/dropout.h"
#include "kernels/gelu.h"
#include "layers/row_tasks.h"
#include "qkv/tensor.h"

namespace qkv {

// A part of out = gelu(x), arrays of `width` columns, on the calling thread, as what follows a product's part; the
// backward gives dx = gelu'(x) dx, and out = gelu(x) again.
template <class T>
void Gelus(Gelu kind, const T* x, int64_t width, const RowsPart& part, T* out);
template <class T>
void GelusBackward(Gelu kind, const T* x, int64_t width, const RowsPart& part, T* dx, T* out);

// dgate_up of SwiGLU; gate_up, dgate_up (rows, 2 width), dout (rows, width).
void SwiGluBackward(const float* gate_up, const float* dout, RowsShape shape, float* dgate_up);

// to = from.
void CopyRows(const float* from, RowsShape shape, float* to);
// out = residual + dropout(branch); out may be either.
void AddDropped(const DropoutRows& dropout, const float* branch, const float* residual, RowsShape shape,
                float* out);
// The gradient that passes by a dropout: out = dropout(dout), rounded to T.
template <class T>
void DropGradient(const DropoutRows& dropout, const float* dout, RowsShape shape, T* out);

}  // namespace qkv
