// Turning bfloat16 elements about, for pair tiles (kernels/pairs.h).

#if defined(QKV_KERNELS_PAIR_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PAIR_TRANSPOSE_INL_H_
#undef QKV_KERNELS_PAIR_TRANSPOSE_INL_H_
#else
#define QKV_KERNELS_PAIR_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/multiply-inl.h"
#include "kernels/pairs.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// Elements of two vectors in turn, as pairs: of their lower 16 elements, and of their upper 16.
HWY_ALIGN inline constexpr uint16_t kPairOrder[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
HWY_INLINE __m512i PairLower(__m512i even, __m512i odd) {
  return _mm512_permutex2var_epi16(even, _mm512_load_si512(kPairOrder), odd);
}
HWY_INLINE __m512i PairUpper(__m512i even, __m512i odd) {
  const __m512i upper = _mm512_add_epi16(_mm512_load_si512(kPairOrder), _mm512_set1_epi16(16));
  return _mm512_permutex2var_epi16(even, upper, odd);
}

// to: row i at to + i * stride.
HWY_INLINE void TransposeQuarters(const __m512i (&a)[16], int i, BFloat16* to, int64_t stride) {
  const __m512i even01 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88), odd01 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
  const __m512i even23 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
  const __m512i odd23 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xdd);
  _mm512_store_si512(to + (i + 0) * stride, _mm512_shuffle_i32x4(even01, even23, 0x88));
  _mm512_store_si512(to + (i + 4) * stride, _mm512_shuffle_i32x4(odd01, odd23, 0x88));
  _mm512_store_si512(to + (i + 8) * stride, _mm512_shuffle_i32x4(even01, even23, 0xdd));
  _mm512_store_si512(to + (i + 12) * stride, _mm512_shuffle_i32x4(odd01, odd23, 0xdd));
}

// Rows of 16 pairs become columns: the 4 x 4 squares within 128-bit blocks are turned, then the blocks.
HWY_INLINE void TransposePairs(__m512i (&a)[16], BFloat16* to, int64_t stride) {
  __m512i b[16];
  QKV_UNROLL for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  QKV_UNROLL for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  QKV_UNROLL for (int i = 0; i < 4; ++i) TransposeQuarters(a, i, to, stride);
}

// With what is not finite replaced by zero, and noted.
HWY_INLINE __m512i KeepFinite(__m512i value, __mmask32& lost) {
  const __m512i magnitude = _mm512_and_si512(value, _mm512_set1_epi16(0x7fff));
  const __mmask32 not_finite = _mm512_cmpge_epu16_mask(magnitude, _mm512_set1_epi16(0x7f80));
  lost |= not_finite;
  return _mm512_maskz_mov_epi16(~not_finite, value);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
