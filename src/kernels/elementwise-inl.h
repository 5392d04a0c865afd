// Loads and stores of up to a vector of elements of either type, as kernels that walk along arrays use them.

#if defined(QKV_KERNELS_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ELEMENTWISE_INL_H_
#undef QKV_KERNELS_ELEMENTWISE_INL_H_
#else
#define QKV_KERNELS_ELEMENTWISE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

HWY_INLINE int64_t FloatLanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

HWY_INLINE void StoreAs(FloatVec value, float* to) { hn::StoreU(value, FloatTag(), to); }
HWY_INLINE void StoreAs(FloatVec value, BFloat16* to) { StoreRounded(value, to); }

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

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
