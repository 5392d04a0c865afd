// Activations in training, apart from their input since that is kept, and their gradients. T is float or
// BFloat16; the mathematics is float32.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// x times the normal distribution's share below x, by the error function, or by the approximation with tanh
// that GPT-2 was trained with (Hendrycks & Gimpel 2016, https://arxiv.org/abs/1606.08415).
enum class Gelu { kErf, kTanh };

// out = gelu(x). `count` elements, contiguous, any alignment; out may be x.
template <class T>
void GeluForward(Gelu kind, const T* x, int64_t count, T* out) noexcept;

// dx = gelu'(x) dout, and out = gelu(x) again. dx may be dout, and out may be x.
template <class T>
void GeluBackward(Gelu kind, const T* x, const T* dout, int64_t count, T* dx, T* out) noexcept;

// Gradients of SwiGLU, out = silu(gate) * up, silu(x) = x / (1 + exp(-x)) (Shazeer 2020,
// https://arxiv.org/abs/2002.05202). gate_up, dgate_up: (rows, 2 width), each row its gates and then its ups;
// dout: (rows, width). Contiguous, any alignment; dgate_up may be gate_up.
void SwiGluBackwardRows(const float* gate_up, const float* dout, int64_t rows, int64_t width,
                        float* dgate_up) noexcept;

}  // namespace qkv
