// Turning pairs of channels: (a, b) -> (a cos - b sin, a sin + b cos).
#pragma once

#include <cstdint>

#include "qkv/tensor.h"
#include "runtime/cpu.h"

namespace qkv {

// One vector of `width` channels. Pair i is channels i * step and i * step + partner: (1, pairs) for halves,
// (2, 1) for neighbours.
struct Rotation {
  int64_t pairs = 0, step = 1, partner = 0;
  int64_t width = 0;
  DType dtype = DType::kF32;               // of x and out: float32, bfloat16 or float16
  int64_t x_channel = 1, out_channel = 1;  // strides in elements
};

// x, out: `width` elements with those strides, aligned for their type; out may be x, else they do not overlap.
// cos, sin: (pairs), contiguous. buffer: `width` floats. All of out is written.
using RotateKernel = void (*)(const Rotation& rotation, const void* x, const float* cos, const float* sin,
                              void* out, float* buffer) noexcept;
RotateKernel RotateKernelFor(Isa isa);

}  // namespace qkv
