// A vector of float32 stored as bfloat16.

#if defined(QKV_KERNELS_ROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ROUND_INL_H_
#undef QKV_KERNELS_ROUND_INL_H_
#else
#define QKV_KERNELS_ROUND_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "qkv/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// To nearest, ties to even. A NaN keeps its sign and top bits, and is made quiet: the carry of rounding could turn
// its payload into infinity.
HWY_INLINE void StoreRounded(hn::Vec<hn::ScalableTag<float>> value, BFloat16* to) {
  const hn::ScalableTag<float> tag;
  const hn::RebindToUnsigned<decltype(tag)> bits32;
  const hn::Rebind<uint16_t, decltype(tag)> bits16;
  const auto bits = hn::BitCast(bits32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(bits32, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(bits32, 0x400000));
  const auto nan = hn::RebindMask(bits32, hn::IsNaN(value));
  const auto top = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
  hn::StoreU(hn::TruncateTo(bits16, top), bits16, reinterpret_cast<uint16_t*>(to));
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
