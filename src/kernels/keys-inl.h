// Keys and values of any type as rows of floats, and keys turned into panels: a row of a panel is one channel of
// consecutive keys.

#if defined(QKV_KERNELS_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_KEYS_INL_H_
#undef QKV_KERNELS_KEYS_INL_H_
#else
#define QKV_KERNELS_KEYS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/load.h"
#include "kernels/multiply-inl.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// Channels are read in strips, so that the buffer for converted keys is small whatever the head size.
inline constexpr int64_t kStrip = 256;

// Calls body(T()) with the type in which elements lie.
template <class Body> HWY_INLINE auto WithType(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kBF16: return body(BFloat16());
    case DType::kF16: return body(Float16());
    case DType::kI8: return body(int8_t());
    default: return body(float());
  }
}

// Channels c ... c + d - 1 of a key as contiguous floats: where they lie, or in `buffer` after conversion.
template <class T>
const float* KeyAsFloats(const Strided& from, int64_t key, int64_t c, int64_t d, float* buffer) {
  const T* data = from.Key<T>(key) + c * from.channel;
  PrefetchAhead(from, data, d);
  if constexpr (std::is_same_v<T, int8_t>) {
    const float scale = from.Scale(key);
    for (int64_t i = 0; i < d; ++i) buffer[i] = static_cast<float>(data[i * from.channel]) * scale;
    return buffer;
  } else {
    if (from.channel != 1) {
      for (int64_t i = 0; i < d; ++i) buffer[i] = LoadFloat(data, DTypeOf<T>::value, i * from.channel);
      return buffer;
    }
    if constexpr (std::is_same_v<T, float>) return data;
    ConvertToFloat(data, d, buffer);
    return buffer;
  }
}

// `lanes` keys (rows of d channels) into a column of a panel whose rows are `width` apart.
HWY_INLINE void TurnKeys(const float* const* rows, int64_t d, float* panel, int64_t width) {
  const int64_t lanes = Lanes();
  int64_t c = 0;
  for (; c + lanes <= d; c += lanes) TransposeSquare(rows, c, panel + c * width, width);
  for (; c < d; ++c) {
    for (int64_t r = 0; r < lanes; ++r) panel[c * width + r] = rows[r][c];
  }
}

// Channels c ... c + strip - 1 (at most kStrip) of a vector of keys; the first `count` are real, the rest zeros.
template <class T>
HWY_INLINE void PackKeyStrip(const Strided& k, int64_t first, int64_t count, int64_t c, int64_t strip, float* panel,
                             int64_t width) {
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)][kStrip];
  HWY_ALIGN static constexpr float kZeros[kStrip] = {};
  const float* rows[HWY_MAX_BYTES / sizeof(float)];
  for (int64_t r = 0; r < Lanes(); ++r) {
    rows[r] = r < count ? KeyAsFloats<T>(k, first + r, c, strip, buffer[r]) : kZeros;
  }
  TurnKeys(rows, strip, panel, width);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
