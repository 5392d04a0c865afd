// Small steps on one row of floats that kernels share: its base, its sums, its elements.

#if defined(QKV_KERNELS_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ROW_INL_H_
#undef QKV_KERNELS_ROW_INL_H_
#else
#define QKV_KERNELS_ROW_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/math-inl.h"
#include "kernels/multiply-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// exp(s - s) as RowExp has it for a row whose base is s: 1, but for the rounding of the base.
inline float ExpOfBase(float s) {
  if (!(std::abs(s) <= kLargestBase)) return 1.0f;
  return hn::GetLane(RowExp(s)(F32(), hn::Set(F32(), s)));
}

// exp(from - to), for sums of RowExp under the base `from` to count under `to`: with the roundings that RowExp
// had, so that keys of different tiles and splits weigh alike.
inline float Rescale(float from, float to) {
  if (from == to) return 1.0f;
  return hn::GetLane(Exp2(F32(), hn::Set(F32(), static_cast<float>(LogOfBase(from) - LogOfBase(to)))));
}

// width: whole vectors.
HWY_INLINE void ScaleRow(float factor, float* row, int64_t width) {
  const F32 tag;
  const VecF32 f = hn::Set(tag, factor);
  for (int64_t c = 0; c < width; c += Lanes()) hn::StoreU(hn::Mul(hn::LoadU(tag, row + c), f), tag, row + c);
}

// count: whole vectors.
inline bool AllFinite(const float* values, int64_t count) {
  const F32 tag;
  VecF32 lost = hn::Zero(tag);
  for (int64_t i = 0; i < count; i += Lanes()) {
    const VecF32 value = hn::LoadU(tag, values + i);
    lost = hn::Or(lost, hn::Sub(value, value));  // NaN for NaN and infinities, else zero
  }
  return hn::AllTrue(tag, hn::Eq(lost, hn::Zero(tag)));
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
