// exp and tanh on vectors.

#if defined(QKV_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_MATH_INL_H_
#undef QKV_KERNELS_MATH_INL_H_
#else
#define QKV_KERNELS_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kLog2E = 1.4426950408889634f;

// The larger of x and a number; NaN stays NaN.
template <class D, class V = hn::Vec<D>> HWY_INLINE V AtLeast(D tag, V x, float least) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(hn::Set(tag, least), x);  // x86 gives the second where one is NaN
#else
  return hn::IfThenElse(hn::Lt(x, hn::Set(tag, least)), hn::Set(tag, least), x);
#endif
}

// 2^f for f in [-1/2, 1/2], by a polynomial of degree 6 whose relative error is 1.9e-9 (a least-maximum fit).
template <class D, class V = hn::Vec<D>> HWY_INLINE V PowerOfFraction(D tag, V f) {
  V p = hn::Set(tag, 1.5345811848010703e-4f);
  p = hn::MulAdd(p, f, hn::Set(tag, 1.3399931219280172e-3f));
  p = hn::MulAdd(p, f, hn::Set(tag, 9.6184889577175612e-3f));
  p = hn::MulAdd(p, f, hn::Set(tag, 5.5503287769659480e-2f));
  p = hn::MulAdd(p, f, hn::Set(tag, 2.4022646890628324e-1f));
  p = hn::MulAdd(p, f, hn::Set(tag, 6.9314720573726651e-1f));
  p = hn::MulAdd(p, f, hn::Set(tag, 1.0f));
  return p;
}

// 2^x for x <= 0, or NaN; below about -126 the result is zero. The integer part goes to the exponent's bits, the
// rest through the polynomial (tests/kernels holds the error in ULP). 2^0 is exactly 1.
template <class D, class V = hn::Vec<D>> HWY_INLINE V Exp2(D tag, V x) {
  x = AtLeast(tag, x, -127.0f);  // 2^-127 has the exponent bits of zero
  // Adding 1.5 * 2^23 rounds to a whole number, which then stands in the low bits; 127 is the exponent's bias.
  const V magic = hn::Set(tag, 12582912.0f + 127.0f);
  const V rounded = hn::Add(x, magic);
  const V f = hn::Sub(x, hn::Sub(rounded, magic));
  const hn::RebindToUnsigned<D> bits;
  const V power = hn::BitCast(tag, hn::ShiftLeft<23>(hn::BitCast(bits, rounded)));
  return hn::Mul(PowerOfFraction(tag, f), power);
}

#if HWY_TARGET == HWY_AVX3
// The same with AVX-512's own steps: what is left of x beside a whole number takes one instruction, multiplying by 2 to
// that number another, and -inf needs no clamp. Below -126 the result is zero: a denormal weight would slow every
// product that it meets.
HWY_INLINE hn::Vec<hn::ScalableTag<float>> Exp2(hn::ScalableTag<float> tag, hn::Vec<hn::ScalableTag<float>> x) {
  constexpr int kNearest = 8;  // whole number, without exceptions
  const hn::Vec<hn::ScalableTag<float>> f{_mm512_reduce_ps(x.raw, kNearest)};
  const __mmask16 normal = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);  // or NaN
  return {_mm512_maskz_scalef_ps(normal, PowerOfFraction(tag, f).raw, hn::Sub(x, f).raw)};
}
#endif

// exp(s - base) for a row of scores s <= base. Where multiply and subtraction are one instruction they are one rounding,
// and the rounding of base * log2 e is common to the whole row, so it cancels when weights are divided by their sum.
// Elsewhere the product of a large score would be rounded first: there the subtraction, exact near the base, is.
struct RowExp {
#if HWY_NATIVE_FMA
  explicit RowExp(float base) : shift(base * kLog2E) {}
  template <class D, class V = hn::Vec<D>> HWY_INLINE V operator()(D tag, V s) const {
    return Exp2(tag, hn::MulSub(s, hn::Set(tag, kLog2E), hn::Set(tag, shift)));
  }
#else
  explicit RowExp(float base) : shift(base) {}
  template <class D, class V = hn::Vec<D>> HWY_INLINE V operator()(D tag, V s) const {
    return Exp2(tag, hn::Mul(hn::Sub(s, hn::Set(tag, shift)), hn::Set(tag, kLog2E)));
  }
#endif
  float shift;
};

// exp(from - to) for sums under the base `from` to count under `to`, with the roundings that RowExp had.
template <class D, class V = hn::Vec<D>> HWY_INLINE V RescaleFactor(D tag, V from, V to) {
  const V log2e = hn::Set(tag, kLog2E);
#if HWY_NATIVE_FMA
  return Exp2(tag, hn::Sub(hn::Mul(from, log2e), hn::Mul(to, log2e)));
#else
  return Exp2(tag, hn::Mul(hn::Sub(from, to), log2e));
#endif
}

// Beyond it, the rounding of base * log2 e would be no small number: such rows are brought down to base 0 first.
inline constexpr float kLargestBase = 65536.0f;

// log2 of what the exponentials of a row were divided by, with the rounding that it had.
HWY_INLINE double LogOfBase(float base) {
  const bool rounded = HWY_NATIVE_FMA && base >= -kLargestBase && base <= kLargestBase;
  return rounded ? static_cast<double>(base * kLog2E) : static_cast<double>(base) * kLog2E;
}

// tanh: an odd polynomial below 0.625 (relative error 1.3e-7 of its correction term), through exp above.
template <class D, class V = hn::Vec<D>> HWY_INLINE V Tanh(D tag, V x) {
  const V size = hn::Abs(x), square = hn::Mul(x, x);
  V p = hn::Set(tag, -0.006096941368123916f);
  p = hn::MulAdd(p, square, hn::Set(tag, 0.020997357394385914f));
  p = hn::MulAdd(p, square, hn::Set(tag, -0.053850953440659675f));
  p = hn::MulAdd(p, square, hn::Set(tag, 0.13332770083328482f));
  p = hn::MulAdd(p, square, hn::Set(tag, -0.33333328948439594f));
  const V small = hn::MulAdd(hn::Mul(p, square), x, x);
  const V one = hn::Set(tag, 1.0f);
  // With e = exp(-2 |x|): tanh |x| = 1 - 2 e / (1 + e), where the error of e counts the less the nearer the result is 1.
  const V e = Exp2(tag, hn::Mul(size, hn::Set(tag, -2.0f * kLog2E)));
  const V large = hn::CopySign(hn::Sub(one, hn::Div(hn::Add(e, e), hn::Add(one, e))), x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(tag, 0.625f)), small, large);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
