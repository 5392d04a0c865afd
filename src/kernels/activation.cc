#include "kernels/activation.h"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VecF32 = hn::Vec<F32>;

struct Relu {
  HWY_INLINE VecF32 operator()(VecF32 x) const { return AtLeast(F32(), x, 0.0f); }
};

// A polynomial by its coefficients, the highest first.
template <size_t kCount> HWY_INLINE VecF32 Polynomial(const float (&coefficients)[kCount], VecF32 x) {
  const F32 tag;
  VecF32 sum = hn::Set(tag, coefficients[0]);
  HWY_UNROLL(11) for (size_t i = 1; i < kCount; ++i) sum = hn::MulAdd(sum, x, hn::Set(tag, coefficients[i]));
  return sum;
}

// With a = |x| and Q the upper tail of the normal distribution, gelu(x) = max(x, 0) - a Q(a). The second term is
// exp(-a^2 / 2) times a smooth function of a, here a polynomial fitted for the least largest error of the product on
// [0, 6]; beyond, the term is below 1e-8. No division, unlike the usual ways to erf, and half the time of oneDNN's.
constexpr float kGeluTailFloat32[] = {  // 1.8e-7
    -4.369961516204057e-06f, 9.319996024714783e-05f, -0.0008841744856908917f, 0.00500911520794034f,
    -0.019367456436157227f,  0.0559135340154171f,    -0.12913070619106293f,   0.24867214262485504f,
    -0.39870697259902954f,   0.4999837875366211f,    1.8455730810273963e-07f};
constexpr float kGeluTailBFloat16[] = {  // 9.6e-6
    0.00038340859464369714f, -0.005161959677934647f, 0.02993050217628479f, -0.10133049637079239f,
    0.2322198897600174f,     -0.39392393827438354f,  0.49945828318595886f, 9.579111974744592e-06f};

template <class T> struct GeluErf {
  HWY_INLINE VecF32 operator()(VecF32 x) const {
    const F32 tag;
    const VecF32 size = hn::Abs(x), a = hn::Min(size, hn::Set(tag, 6.0f));
    const VecF32 decay = Exp2(tag, hn::Mul(hn::Mul(a, a), hn::Set(tag, -0.5f * kLog2E)));
    VecF32 tail;
    if constexpr (std::is_same_v<T, float>) tail = Polynomial(kGeluTailFloat32, a);
    else tail = Polynomial(kGeluTailBFloat16, a);
    // max(x, 0) as (x + |x|) / 2, which keeps NaN.
    return hn::MulSub(hn::Add(x, size), hn::Set(tag, 0.5f), hn::Mul(decay, tail));
  }
};

struct GeluTanh {
  HWY_INLINE VecF32 operator()(VecF32 x) const {
    const F32 tag;
    const VecF32 cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(tag, 0.79788456f * 0.044715f), hn::Set(tag, 0.79788456f));
    const VecF32 half = hn::Mul(x, hn::Set(tag, 0.5f));
    return hn::MulAdd(half, Tanh(tag, hn::Mul(cubic, x)), half);
  }
};

template <class T, class F> HWY_INLINE void Apply(const F& f, T* x, int64_t count) {
  int64_t i = 0;
  for (; i + FloatLanes() <= count; i += FloatLanes()) StoreAs(f(LoadAsFloat(x + i)), x + i);
  if (i < count) StoreFirst(f(LoadFirst(x + i, count - i)), x + i, count - i);
}

template <class T> void Run(Activation activation, T* x, int64_t count) {
  switch (activation) {
    case Activation::kNone: return;
    case Activation::kRelu: return Apply(Relu(), x, count);
    case Activation::kGeluErf: return Apply(GeluErf<T>(), x, count);
    case Activation::kGeluTanh: return Apply(GeluTanh(), x, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

template <class T> using ActivationKernel = void (*)(Activation, T*, int64_t);

ActivationKernel<float> PickFloat32(Isa isa) { QKV_PICK_TABLE(isa, Run<float>) }
ActivationKernel<BFloat16> PickBFloat16(Isa isa) { QKV_PICK_TABLE(isa, Run<BFloat16>) }

}  // namespace

void Activate(Activation activation, float* x, int64_t count) noexcept {
  PickFloat32(ChosenIsa())(activation, x, count);
}

void Activate(Activation activation, BFloat16* x, int64_t count) noexcept {
  PickBFloat16(ChosenIsa())(activation, x, count);
}

}  // namespace qkv
#endif  // HWY_ONCE
