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

// out = factor * from, in the layout's type.
inline void StoreRow(float factor, const float* from, const Layout& layout, void* to) {
  const int64_t dv = layout.dv;
  if (layout.out_channel != 1) {
    for (int64_t c = 0; c < dv; ++c) StoreDouble(from[c] * factor, to, layout.q_dtype, c * layout.out_channel);
    return;
  }
  switch (layout.q_dtype) {
    case DType::kBF16: return StoreScaled(factor, from, dv, static_cast<BFloat16*>(to));
    case DType::kF16: return StoreScaled(factor, from, dv, static_cast<Float16*>(to));
    default: return StoreScaled(factor, from, dv, static_cast<float*>(to));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
