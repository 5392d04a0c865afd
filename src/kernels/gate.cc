#include "kernels/gate.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gate.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x / (1 + exp(-x)); through exp(-|x|), which never overflows.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Silu(D tag, V x) {
  const V e = Exp2(tag, hn::Mul(hn::Abs(x), hn::Set(tag, -kLog2E)));
  const V one = hn::Set(tag, 1.0f);
  const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(tag)), hn::Mul(x, e), x);
  return hn::Div(numerator, hn::Add(one, e));
}

void SwiGlu(const float* gate_up, int64_t rows, int64_t width, float* out) {
  const hn::ScalableTag<float> tag;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, out += width) {
    const float* up = gate_up + width;
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      hn::StoreU(hn::Mul(Silu(tag, hn::LoadU(tag, gate_up + i)), hn::LoadU(tag, up + i)), tag, out + i);
    }
    for (; i < width; ++i) {
      hn::StoreU(hn::Mul(Silu(one, hn::LoadU(one, gate_up + i)), hn::LoadU(one, up + i)), one, out + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

using SwiGluKernel = void (*)(const float*, int64_t, int64_t, float*);

SwiGluKernel PickSwiGlu(Isa isa) { QKV_PICK_TABLE(isa, SwiGlu) }

}  // namespace

void SwiGluRows(const float* gate_up, int64_t rows, int64_t width, float* out) noexcept {
  PickSwiGlu(ChosenIsa())(gate_up, rows, width, out);
}

}  // namespace qkv
#endif  // HWY_ONCE
