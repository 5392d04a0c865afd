// 2^f for the weights of attention on tiles. Times 2^floor(x) by vscalefps it is 2^x, and zero where that
// underflows.

#if defined(QKV_KERNELS_PAIR_POWER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PAIR_POWER_INL_H_
#undef QKV_KERNELS_PAIR_POWER_INL_H_
#else
#define QKV_KERNELS_PAIR_POWER_INL_H_
#endif

#include "hwy/highway.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {

inline constexpr int kFloor = 9;  // vreduceps' rounding: down, to whole numbers, without exceptions

// 2^f on [0, 1), by least maximum relative error: 7.5e-5, an eighth of a weight's rounding to bfloat16.
HWY_INLINE __m512 PowerForWeight(__m512 f) {
  __m512 p = _mm512_set1_ps(7.802452264e-2f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.260671558e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.958335405e-1f));
  return _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.999252186e-1f));
}

// The same within 7.5e-8, for sums that become a log-sum-exp.
HWY_INLINE __m512 PowerForSum(__m512 f) {
  __m512 p = _mm512_set1_ps(1.877576675e-3f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(8.989340091e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.582631805e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.401536170e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931530732e-1f));
  return _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.999999251e-1f));
}

// The same within 1.9e-9 and times kTripleOne, for weights in float32.
inline constexpr float kTripleOne = 0x1p24f;
HWY_INLINE __m512 PowerForTriple(__m512 f) {
  __m512 p = _mm512_set1_ps(2.17022556842e-4f * kTripleOne);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.24396877005e-3f * kTripleOne));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.67884101831e-3f * kTripleOne));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.54833419683e-2f * kTripleOne));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40229836279e-1f * kTripleOne));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93146983840e-1f * kTripleOne));
  return _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.00000000186f * kTripleOne));
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES

#endif  // include guard
