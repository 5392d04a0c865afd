// A row of sums to its place in the output.

#if defined(QKV_KERNELS_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_STORE_INL_H_
#undef QKV_KERNELS_STORE_INL_H_
#else
#define QKV_KERNELS_STORE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/load.h"
#include "kernels/multiply-inl.h"
#include "kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// out = factor * from, in the layout's type; uses `from` up.
inline void StoreRow(float factor, float* from, const Layout& layout, void* to) {
  const F32 tag;
  const int64_t dv = layout.dv;
  if (layout.q_dtype == DType::kF32 && layout.out_channel == 1) {
    const VecF32 f = hn::Set(tag, factor);
    float* out = static_cast<float*>(to);
    int64_t c = 0;
    for (; c + Lanes() <= dv; c += Lanes()) hn::StoreU(hn::Mul(hn::LoadU(tag, from + c), f), tag, out + c);
    for (; c < dv; ++c) out[c] = from[c] * factor;
    return;
  }
  ScaleRow(factor, from, ValueWidth(dv));
  if (layout.q_dtype == DType::kF16 && layout.out_channel == 1) {
    ConvertFromFloat(from, dv, static_cast<Float16*>(to));
  } else if (layout.q_dtype == DType::kBF16 && layout.out_channel == 1) {
    ConvertFromFloat(from, dv, static_cast<BFloat16*>(to));
  } else {
    for (int64_t c = 0; c < dv; ++c) StoreDouble(from[c], to, layout.q_dtype, c * layout.out_channel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
