// Contiguous elements of any type to float32 and back, a vector at a time.

#if defined(QKV_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CONVERT_INL_H_
#undef QKV_KERNELS_CONVERT_INL_H_
#else
#define QKV_KERNELS_CONVERT_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/load.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's own float16 conversion is wrong at the edges without F16C, so sets without it use the scalar one.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON
inline constexpr bool kVectorFloat16 = true;
#else
inline constexpr bool kVectorFloat16 = false;
#endif

HWY_INLINE hn::Vec<hn::ScalableTag<float>> LoadAsFloat(const float* from) {
  return hn::LoadU(hn::ScalableTag<float>(), from);
}

HWY_INLINE hn::Vec<hn::ScalableTag<float>> LoadAsFloat(const BFloat16* from) {
  const hn::ScalableTag<float> tag;
  const hn::Rebind<uint16_t, decltype(tag)> bits16;
  const hn::Rebind<uint32_t, decltype(tag)> bits32;
  const auto bits = hn::LoadU(bits16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(bits32, bits)));
}

HWY_INLINE hn::Vec<hn::ScalableTag<float>> LoadAsFloat(const Float16* from) {
  const hn::ScalableTag<float> tag;
  if constexpr (kVectorFloat16) {
    const hn::Rebind<hwy::float16_t, decltype(tag)> half;
    return hn::PromoteTo(tag, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
  } else {
    HWY_ALIGN float values[hn::MaxLanes(tag)];
    for (size_t i = 0; i < hn::Lanes(tag); ++i) values[i] = ToFloat(from[i]);
    return hn::Load(tag, values);
  }
}

inline float ElementAsFloat(float x) { return x; }
inline float ElementAsFloat(BFloat16 x) { return ToFloat(x); }
inline float ElementAsFloat(Float16 x) { return ToFloat(x); }

// count elements from `from` (any type) to `to`, without reading past the end.
template <class T> HWY_INLINE void ConvertToFloat(const T* from, int64_t count, float* to) {
  const hn::ScalableTag<float> tag;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(LoadAsFloat(from + i), tag, to + i);
  for (; i < count; ++i) to[i] = ElementAsFloat(from[i]);
}

// count floats from `from` to `to` (any type), rounded to nearest even.
template <class T> HWY_INLINE void ConvertFromFloat(const float* from, int64_t count, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    std::copy_n(from, count, to);
    return;
  }
  int64_t i = 0;
  if constexpr (kVectorFloat16 && std::is_same_v<T, Float16>) {
    const hn::ScalableTag<float> tag;
    const hn::Rebind<hwy::float16_t, decltype(tag)> half;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
    for (; i + lanes <= count; i += lanes) {
      hn::StoreU(hn::DemoteTo(half, hn::LoadU(tag, from + i)), half, reinterpret_cast<hwy::float16_t*>(to + i));
    }
  }
  for (; i < count; ++i) StoreDouble(from[i], to, DTypeOf<T>::value, i);  // bfloat16: the compiler's vectors do
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
