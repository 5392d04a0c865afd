// Gated feed-forward layers: what stands between their multiplies.
#pragma once

#include <cstdint>

namespace qkv {

// out = silu(gate) * up, silu(x) = x / (1 + exp(-x)), row by row (SwiGLU: Shazeer 2020,
// https://arxiv.org/abs/2002.05202). gate_up: (rows, 2 width), each row its gates and then its ups, contiguous;
// out: (rows, width), contiguous, apart from it. Any alignment.
void SwiGluRows(const float* gate_up, int64_t rows, int64_t width, float* out) noexcept;

}  // namespace qkv
