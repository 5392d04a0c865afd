// One element of any floating type as float or double, and back.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/problem.h"
#include "runtime/half.h"

namespace qkv {

inline double LoadDouble(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF64: return static_cast<const double*>(data)[index];
    case DType::kBF16: return ToFloat(static_cast<const BFloat16*>(data)[index]);
    case DType::kF16: return ToFloat(static_cast<const Float16*>(data)[index]);
    default: return static_cast<const float*>(data)[index];
  }
}

inline float LoadFloat(const void* data, DType dtype, int64_t index) {
  return static_cast<float>(LoadDouble(data, dtype, index));
}

// Channel c of key j, dequantised.
inline double LoadDouble(const Strided& from, int64_t j, int64_t c) {
  switch (from.dtype) {
    case DType::kF64: return from.Key<double>(j)[c * from.channel];
    case DType::kBF16: return ToFloat(from.Key<BFloat16>(j)[c * from.channel]);
    case DType::kF16: return ToFloat(from.Key<Float16>(j)[c * from.channel]);
    case DType::kI8: return static_cast<float>(from.Key<int8_t>(j)[c * from.channel]) * from.Scale(j);
    default: return from.Key<float>(j)[c * from.channel];
  }
}

inline void StoreDouble(double value, void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF64: static_cast<double*>(data)[index] = value; return;
    case DType::kBF16: static_cast<BFloat16*>(data)[index] = ToBFloat16(static_cast<float>(value)); return;
    case DType::kF16: static_cast<Float16*>(data)[index] = ToFloat16(static_cast<float>(value)); return;
    default: static_cast<float*>(data)[index] = static_cast<float>(value); return;
  }
}

// Packing reads rows of a key's channels strip by strip, which the processor's own prefetching does not follow; this
// asks for what lies so many keys on from `count` channels at `data`. Only a hint: past the end it does nothing.
inline constexpr int64_t kPrefetchKeys = 32;  // 16 KiB of 128 float32 channels: what comes while 32 keys are packed
template <class T> inline void PrefetchAhead(const Strided& from, const T* data, int64_t count) {
  if (from.channel != 1) return;
  constexpr uintptr_t kLine = 64;
  const uintptr_t at = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(kPrefetchKeys * from.key) * sizeof(T);
  const uintptr_t end = at + static_cast<uintptr_t>(count) * sizeof(T);
  for (uintptr_t line = at; line < end; line += kLine) __builtin_prefetch(reinterpret_cast<const void*>(line));
}

// Whether key j may be attended to by the row: range, mask and bias agree.
inline bool IsVisible(const ScoreRules& rules, const Row& row, int64_t j) {
  if (j < row.first || j >= row.last) return false;
  if (rules.has_mask && row.mask[j * rules.mask_key] == 0) return false;
  return !rules.has_bias || LoadFloat(row.bias, rules.bias_dtype, j * rules.bias_key) != -HUGE_VALF;
}

}  // namespace qkv
