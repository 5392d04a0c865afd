#include "kernels/round.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/round.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Round(const float* from, int64_t count, BFloat16* to) {
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) StoreRounded(hn::LoadU(tag, from + i), to + i);
  for (; i < count; ++i) to[i] = ToBFloat16(from[i]);
}

void Widen(const BFloat16* from, int64_t count, float* to) { ConvertToFloat(from, count, to); }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

void (*PickRound(Isa isa))(const float*, int64_t, BFloat16*) { QKV_PICK_TABLE(isa, Round) }
void (*PickWiden(Isa isa))(const BFloat16*, int64_t, float*) { QKV_PICK_TABLE(isa, Widen) }

}  // namespace

void RoundToBFloat16(const float* from, int64_t count, BFloat16* to) noexcept {
  PickRound(ChosenIsa())(from, count, to);
}

void WidenToFloat(const BFloat16* from, int64_t count, float* to) noexcept {
  PickWiden(ChosenIsa())(from, count, to);
}

}  // namespace qkv
#endif  // HWY_ONCE
