#include "kernels/gelu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gelu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// 1 / (1 + exp(-z)), and what is missing to 1. The exponential is of -|z|, so it never overflows, and both keep
// their relative precision.
struct Sigmoid {
  FloatVec share, rest;

  // 1 / x for x in [1, 2]. AVX-512's first guess is good to 14 bits: a step of Newton rounds it as a division does to
  // within a unit, in a third of the time.
  static HWY_INLINE FloatVec Reciprocal(FloatVec x) {
    const FloatVec one = hn::Set(FloatTag(), 1.0f);
#if HWY_TARGET == HWY_AVX3
    const FloatVec near = hn::ApproximateReciprocal(x);
    return hn::MulAdd(near, hn::NegMulAdd(x, near, one), near);
#else
    return hn::Div(one, x);
#endif
  }

  explicit HWY_INLINE Sigmoid(FloatVec z) {
    const FloatTag tag;
    const FloatVec one = hn::Set(tag, 1.0f);
    const FloatVec e = Exp2(tag, hn::Mul(hn::Abs(z), hn::Set(tag, -kLog2E)));
    const FloatVec large = Reciprocal(hn::Add(one, e)), small = hn::Mul(e, large);
    const auto below = hn::Lt(z, hn::Zero(tag));
    share = hn::IfThenElse(below, small, large);
    rest = hn::IfThenElse(below, large, small);
  }
};

struct ValueAndSlope {
  FloatVec value, slope;
};

// (1 + tanh u) / 2 is the sigmoid of 2 u.
struct GeluTanh {
  static constexpr float kTwice = 1.5957691216057308f;   // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.07135481282723337f;  // that times 0.044715

  static HWY_INLINE Sigmoid Share(FloatVec x) {
    const FloatTag tag;
    const FloatVec square = hn::Mul(x, x);
    return Sigmoid(hn::Mul(x, hn::MulAdd(square, hn::Set(tag, kCubic), hn::Set(tag, kTwice))));
  }
  static HWY_INLINE FloatVec Value(FloatVec x) { return hn::Mul(x, Share(x).share); }
  static HWY_INLINE ValueAndSlope Both(FloatVec x) {
    const FloatTag tag;
    const Sigmoid s = Share(x);
    const FloatVec value = hn::Mul(x, s.share);
    const FloatVec inner = hn::MulAdd(hn::Mul(x, x), hn::Set(tag, 3 * kCubic), hn::Set(tag, kTwice));
    const FloatVec both = hn::Mul(value, s.rest);
    // Far out this is zero, but inner may be infinite.
    const FloatVec bent = hn::IfThenElse(hn::Eq(both, hn::Zero(tag)), both, hn::Mul(both, inner));
    return {value, hn::Add(s.share, bent)};
  }
};

// The normal distribution's share through erfc(z) = (a1 t + ... + a5 t^5) exp(-z^2), t = 1 / (1 + p z), z >= 0
// (Abramowitz & Stegun 1964, 7.1.26; absolute error below 1.5e-7).
struct GeluErf {
  struct Normal {
    FloatVec share, density;
  };
  static HWY_INLINE Normal At(FloatVec x) {
    const FloatTag tag;
    const FloatVec z = hn::Mul(hn::Abs(x), hn::Set(tag, 0.70710678f)), one = hn::Set(tag, 1.0f);
    const FloatVec e = Exp2(tag, hn::Mul(hn::Mul(x, x), hn::Set(tag, -0.5f * kLog2E)));
    const FloatVec t = hn::Div(one, hn::MulAdd(z, hn::Set(tag, 0.3275911f), one));
    FloatVec p = hn::Set(tag, 1.061405429f);
    p = hn::MulAdd(p, t, hn::Set(tag, -1.453152027f));
    p = hn::MulAdd(p, t, hn::Set(tag, 1.421413741f));
    p = hn::MulAdd(p, t, hn::Set(tag, -0.284496736f));
    p = hn::MulAdd(p, t, hn::Set(tag, 0.254829592f));
    const FloatVec above = hn::Mul(hn::Mul(hn::Mul(p, t), e), hn::Set(tag, 0.5f));
    const FloatVec share = hn::IfThenElse(hn::Lt(x, hn::Zero(tag)), above, hn::Sub(one, above));
    return {share, hn::Mul(e, hn::Set(tag, 0.3989422804f))};
  }
  static HWY_INLINE FloatVec Value(FloatVec x) { return hn::Mul(x, At(x).share); }
  static HWY_INLINE ValueAndSlope Both(FloatVec x) {
    const Normal normal = At(x);
    const FloatVec bent = hn::Mul(x, normal.density);
    return {hn::Mul(x, normal.share), hn::Add(normal.share, bent)};
  }
};

template <class Kind, class T>
void Forward(const T* x, int64_t count, T* out) {
  for (int64_t i = 0; i < count; i += FloatLanes()) {
    StoreFirst(Kind::Value(LoadFirst(x + i, count - i)), out + i, count - i);
  }
}

template <class Kind, class T>
void Backward(const T* x, const T* dout, int64_t count, T* dx, T* out) {
  for (int64_t i = 0; i < count; i += FloatLanes()) {
    const ValueAndSlope both = Kind::Both(LoadFirst(x + i, count - i));
    StoreFirst(hn::Mul(both.slope, LoadFirst(dout + i, count - i)), dx + i, count - i);
    StoreFirst(both.value, out + i, count - i);
  }
}

// d silu(g) = sigmoid(g) (1 + g (1 - sigmoid(g))).
void SwiGluBackward(const float* gate_up, const float* dout, int64_t rows, int64_t width, float* dgate_up) {
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * width, dgate_up += 2 * width, dout += width) {
    for (int64_t c = 0; c < width; c += FloatLanes()) {
      const FloatVec gate = LoadFirst(gate_up + c, width - c), up = LoadFirst(gate_up + width + c, width - c);
      const FloatVec d = LoadFirst(dout + c, width - c);
      const Sigmoid s(gate);
      const FloatVec silu = hn::Mul(gate, s.share), slope = hn::MulAdd(silu, s.rest, s.share);
      StoreFirst(hn::Mul(hn::Mul(d, up), slope), dgate_up + c, width - c);
      StoreFirst(hn::Mul(d, silu), dgate_up + width + c, width - c);
    }
  }
}

template <class T>
void ForwardOf(Gelu kind, const T* x, int64_t count, T* out) {
  kind == Gelu::kErf ? Forward<GeluErf>(x, count, out) : Forward<GeluTanh>(x, count, out);
}
template <class T>
void BackwardOf(Gelu kind, const T* x, const T* dout, int64_t count, T* dx, T* out) {
  kind == Gelu::kErf ? Backward<GeluErf>(x, dout, count, dx, out) : Backward<GeluTanh>(x, dout, count, dx, out);
}

// Here, so that they are compiled for this set.
template void ForwardOf(Gelu, const float*, int64_t, float*);
template void ForwardOf(Gelu, const BFloat16*, int64_t, BFloat16*);
template void BackwardOf(Gelu, const float*, const float*, int64_t, float*, float*);
template void BackwardOf(Gelu, const BFloat16*, const BFloat16*, int64_t, BFloat16*, BFloat16*);

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

template <class T>
auto PickForward(Isa isa) -> void (*)(Gelu, const T*, int64_t, T*) {
  QKV_PICK_TABLE(isa, ForwardOf<T>)
}
template <class T>
auto PickBackward(Isa isa) -> void (*)(Gelu, const T*, const T*, int64_t, T*, T*) {
  QKV_PICK_TABLE(isa, BackwardOf<T>)
}
auto PickSwiGlu(Isa isa) -> void (*)(const float*, const float*, int64_t, int64_t, float*) {
  QKV_PICK_TABLE(isa, SwiGluBackward)
}

}  // namespace

template <class T>
void GeluForward(Gelu kind, const T* x, int64_t count, T* out) noexcept {
  PickForward<T>(ChosenIsa())(kind, x, count, out);
}
template <class T>
void GeluBackward(Gelu kind, const T* x, const T* dout, int64_t count, T* dx, T* out) noexcept {
  PickBackward<T>(ChosenIsa())(kind, x, dout, count, dx, out);
}
template void GeluForward(Gelu, const float*, int64_t, float*) noexcept;
template void GeluForward(Gelu, const BFloat16*, int64_t, BFloat16*) noexcept;
template void GeluBackward(Gelu, const float*, const float*, int64_t, float*, float*) noexcept;
template void GeluBackward(Gelu, const BFloat16*, const BFloat16*, int64_t, BFloat16*, BFloat16*) noexcept;

void SwiGluBackwardRows(const float* gate_up, const float* dout, int64_t rows, int64_t width,
                        float* dgate_up) noexcept {
  PickSwiGlu(ChosenIsa())(gate_up, dout, rows, width, dgate_up);
}

}  // namespace qkv
#endif  // HWY_ONCE
