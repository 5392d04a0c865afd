// Contiguous elements of any type to float32 and back, a vector at a time.

#if defined(QKV_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CONVERT_INL_H_
#undef QKV_KERNELS_CONVERT_INL_H_
#else
#define QKV_KERNELS_CONVERT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/load.h"
#include "kernels/round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

HWY_INLINE int64_t FloatLanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

// Highway's own float16 conversion is wrong at the edges without F16C, so sets without it use the scalar one.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON
inline constexpr bool kVectorFloat16 = true;
#else
inline constexpr bool kVectorFloat16 = false;
#endif
using Half = hn::Rebind<hwy::float16_t, FloatTag>;

HWY_INLINE FloatVec LoadAsFloat(const float* from) { return hn::LoadU(FloatTag(), from); }

HWY_INLINE FloatVec LoadAsFloat(const BFloat16* from) {
  const hn::Rebind<uint16_t, FloatTag> bits16;
  const hn::Rebind<uint32_t, FloatTag> bits32;
  const auto bits = hn::LoadU(bits16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(bits32, bits)));
}

HWY_INLINE FloatVec LoadAsFloat(const Float16* from) {
  const FloatTag tag;
  if constexpr (kVectorFloat16) {
    return hn::PromoteTo(tag, hn::LoadU(Half(), reinterpret_cast<const hwy::float16_t*>(from)));
  } else {
    HWY_ALIGN float values[hn::MaxLanes(tag)];
    for (size_t i = 0; i < hn::Lanes(tag); ++i) values[i] = ToFloat(from[i]);
    return hn::Load(tag, values);
  }
}

// A vector as elements of any type, rounded to nearest even.
HWY_INLINE void StoreAs(FloatVec values, float* to) { hn::StoreU(values, FloatTag(), to); }

HWY_INLINE void StoreAs(FloatVec values, BFloat16* to) { StoreRounded(values, to); }

HWY_INLINE void StoreAs(FloatVec values, Float16* to) {
  const FloatTag tag;
  if constexpr (kVectorFloat16) {
    hn::StoreU(hn::DemoteTo(Half(), values), Half(), reinterpret_cast<hwy::float16_t*>(to));
  } else {
    HWY_ALIGN float buffer[hn::MaxLanes(tag)];
    hn::Store(values, tag, buffer);
    for (size_t i = 0; i < hn::Lanes(tag); ++i) to[i] = ToFloat16(buffer[i]);
  }
}

// The first `count` elements, then zeros; nothing past them is read.
template <class T>
HWY_INLINE FloatVec LoadFirst(const T* from, int64_t count) {
  if (count >= FloatLanes()) return LoadAsFloat(from);
  T padded[hn::MaxLanes(FloatTag())] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return LoadAsFloat(padded);
}

// The first `count` lanes; nothing past them is written.
template <class T>
HWY_INLINE void StoreFirst(FloatVec value, T* to, int64_t count) {
  if (count >= FloatLanes()) return StoreAs(value, to);
  T all[hn::MaxLanes(FloatTag())];
  StoreAs(value, all);
  for (int64_t i = 0; i < count; ++i) to[i] = all[i];
}

inline float ElementAsFloat(float x) { return x; }
inline float ElementAsFloat(BFloat16 x) { return ToFloat(x); }
inline float ElementAsFloat(Float16 x) { return ToFloat(x); }

// count elements from `from` (any type) to `to`, without reading past the end.
template <class T> HWY_INLINE void ConvertToFloat(const T* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + FloatLanes() <= count; i += FloatLanes()) StoreAs(LoadAsFloat(from + i), to + i);
  for (; i < count; ++i) to[i] = ElementAsFloat(from[i]);
}

// factor * from, count elements, to `to` (any type), rounded to nearest even.
template <class T> HWY_INLINE void StoreScaled(float factor, const float* from, int64_t count, T* to) {
  const FloatVec factors = hn::Set(FloatTag(), factor);
  int64_t i = 0;
  for (; i + FloatLanes() <= count; i += FloatLanes()) StoreAs(hn::Mul(LoadAsFloat(from + i), factors), to + i);
  if (i < count) StoreFirst(hn::Mul(LoadFirst(from + i, count - i), factors), to + i, count - i);
}

// count floats from `from` to `to` (any type), rounded to nearest even.
template <class T> HWY_INLINE void ConvertFromFloat(const float* from, int64_t count, T* to) {
  StoreScaled(1.0f, from, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
