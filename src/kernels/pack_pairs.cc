// Packing bfloat16 keys and values into pair tiles (kernels/pairs.h).
#include <cstdint>

#include "kernels/pairs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pack_pairs.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/pack_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

Values PackKeys(const Strided& k, int64_t first, int64_t count, int64_t d, float* packed) noexcept {
  PackPairKeys(k, first, count, d, reinterpret_cast<BFloat16*>(packed));
  return Values::kFinite;
}

Values PackValues(const Strided& v, int64_t first, int64_t count, int64_t dv, float* packed) noexcept {
  constexpr int64_t kGroup = kKeyTile / kPairDepth * kPairTile;
  return PackPairValues(v, first, count, dv, reinterpret_cast<BFloat16*>(packed), kGroup);
}

}  // namespace

PackKernels PairPackTable() {
  return {2 * kPairColumns, kPairColumns, &PackKeys, &PackValues, kPairDepth, sizeof(BFloat16)};
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
#if HWY_TARGETS & HWY_AVX3
PackKernels PairPackKernels() { return N_AVX3::PairPackTable(); }
#else
PackKernels PairPackKernels() { return {}; }
#endif
}  // namespace qkv
#endif
