// What a gated feed-forward layer does between its multiplies.
#pragma once

#include <cstdint>

namespace qkv {

// out (rows, width) = silu(gate) * up; gate_up: (rows, 2 width), gates first. Contiguous, apart from each other.
void SwiGlu(const float* gate_up, int64_t rows, int64_t width, float* out);

}  // namespace qkv
