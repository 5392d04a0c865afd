// Runs of float32 to bfloat16 and back. Any alignment.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// To nearest, ties to even; infinities stay, NaN stays NaN: the bits of ToBFloat16 (runtime/half.h).
void RoundToBFloat16(const float* from, int64_t count, BFloat16* to) noexcept;
void WidenToFloat(const BFloat16* from, int64_t count, float* to) noexcept;  // exact

}  // namespace qkv
