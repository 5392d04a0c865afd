// Transposing squares of floats in registers.

#if defined(QKV_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_TRANSPOSE_INL_H_
#undef QKV_KERNELS_TRANSPOSE_INL_H_
#else
#define QKV_KERNELS_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/multiply-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// A square of lanes x lanes elements of any type as floats, turned: vector i of the result holds element i of every row.
// First the 4 x 4 squares within 128-bit blocks, then the blocks themselves.
#if HWY_TARGET == HWY_SCALAR
template <class T> HWY_INLINE void TurnSquare(const T* const* rows, int64_t channel, VecF32 (&turned)[1]) {
  turned[0] = LoadAsFloat(rows[0] + channel);
}
#else
template <int kLanes> HWY_INLINE void TurnBlocks(const VecF32 (&from)[kLanes], VecF32 (&to)[kLanes]) {
  if constexpr (kLanes == 4) {
    QKV_UNROLL for (int i = 0; i < 4; ++i) to[i] = from[i];
  } else if constexpr (kLanes == 8) {
    const F32 tag;
    QKV_UNROLL for (int i = 0; i < 4; ++i) {
      to[i] = hn::ConcatLowerLower(tag, from[i + 4], from[i]);
      to[i + 4] = hn::ConcatUpperUpper(tag, from[i + 4], from[i]);
    }
  }
#if HWY_TARGET == HWY_AVX3
  if constexpr (kLanes == 16) {
    QKV_UNROLL for (int i = 0; i < 4; ++i) {
      const __m512 r0 = from[i].raw, r1 = from[i + 4].raw, r2 = from[i + 8].raw, r3 = from[i + 12].raw;
      const __m512 even01 = _mm512_shuffle_f32x4(r0, r1, 0x88), odd01 = _mm512_shuffle_f32x4(r0, r1, 0xdd);
      const __m512 even23 = _mm512_shuffle_f32x4(r2, r3, 0x88), odd23 = _mm512_shuffle_f32x4(r2, r3, 0xdd);
      to[i] = VecF32{_mm512_shuffle_f32x4(even01, even23, 0x88)};
      to[i + 4] = VecF32{_mm512_shuffle_f32x4(odd01, odd23, 0x88)};
      to[i + 8] = VecF32{_mm512_shuffle_f32x4(even01, even23, 0xdd)};
      to[i + 12] = VecF32{_mm512_shuffle_f32x4(odd01, odd23, 0xdd)};
    }
  }
#endif
}

template <class T, int kLanes>
HWY_INLINE void TurnSquare(const T* const* rows, int64_t channel, VecF32 (&turned)[kLanes]) {
  const F32 tag;
  const hn::Repartition<uint64_t, F32> tag64;
  VecF32 a[kLanes], b[kLanes];
  QKV_UNROLL for (int i = 0; i < kLanes; ++i) a[i] = LoadAsFloat(rows[i] + channel);
  QKV_UNROLL for (int i = 0; i < kLanes; i += 2) {
    b[i] = hn::InterleaveLower(tag, a[i], a[i + 1]);
    b[i + 1] = hn::InterleaveUpper(tag, a[i], a[i + 1]);
  }
  QKV_UNROLL for (int i = 0; i < kLanes; i += 4) {
    QKV_UNROLL for (int half = 0; half < 2; ++half) {
      const auto low = hn::BitCast(tag64, b[i + half]), high = hn::BitCast(tag64, b[i + half + 2]);
      a[i + 2 * half] = hn::BitCast(tag, hn::InterleaveLower(tag64, low, high));
      a[i + 2 * half + 1] = hn::BitCast(tag, hn::InterleaveUpper(tag64, low, high));
    }
  }
  TurnBlocks(a, turned);
}
#endif

// The same into memory: row i of the result at to + i * to_stride.
HWY_INLINE void TransposeSquare(const float* const* rows, int64_t channel, float* to, int64_t to_stride) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
  VecF32 turned[kLanes];
  TurnSquare(rows, channel, turned);
  QKV_UNROLL for (int i = 0; i < kLanes; ++i) hn::StoreU(turned[i], F32(), to + i * to_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
