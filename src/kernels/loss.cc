#include "kernels/loss.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/loss.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

HWY_INLINE float LargestOf(const float* logits, int64_t count) {
  const FloatTag tag;
  const int64_t lanes = FloatLanes();
  auto largest = hn::Set(tag, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) largest = hn::Max(largest, hn::LoadU(tag, logits + i));
  float most = hn::GetLane(hn::MaxOfLanes(tag, largest));
  for (; i < count; ++i) most = std::fmax(most, logits[i]);
  return most;
}

// exp(x - most), below 2^-126 zero; NaN where x is.
HWY_INLINE FloatVec ExpBelow(FloatVec x, FloatVec most) {
  return Exp2(FloatTag(), hn::Mul(hn::Sub(x, most), hn::Set(FloatTag(), kLog2E)));
}

// The sum of the exponentials, which are stored where `keep` says.
template <class Keep>
HWY_INLINE float SumOfExp(const float* logits, int64_t count, float most, const Keep& keep) {
  const FloatTag tag;
  const int64_t lanes = FloatLanes();
  const FloatVec base = hn::Set(tag, most);
  FloatVec even = hn::Zero(tag), odd = hn::Zero(tag);  // two, which hides the additions' latency
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const FloatVec e = ExpBelow(hn::LoadU(tag, logits + i), base);
    keep(e, i, lanes);
    const FloatVec sum = hn::Add(even, e);
    even = odd;
    odd = sum;
  }
  float sum = hn::GetLane(hn::SumOfLanes(tag, hn::Add(even, odd)));
  if (i < count) {
    const FloatVec e = ExpBelow(LoadFirst(logits + i, count - i), base);
    keep(e, i, count - i);
    HWY_ALIGN float last[hn::MaxLanes(tag)];
    hn::Store(e, tag, last);
    for (int64_t l = 0; l < count - i; ++l) sum += last[l];
  }
  return sum;
}

HWY_INLINE double Loss(float sum, float most, float answer) {
  return std::log(static_cast<double>(sum)) + (static_cast<double>(most) - static_cast<double>(answer));
}

template <class T>
double Row(float* logits, int64_t count, int64_t target, float scale, T* dlogits) {
  const FloatTag tag;
  const float most = LargestOf(logits, count), answer = logits[target];
  const auto keep = [logits](FloatVec e, int64_t i, int64_t some) HWY_ATTR { StoreFirst(e, logits + i, some); };
  const float sum = SumOfExp(logits, count, most, keep);
  const float answer_share = logits[target] / sum;
  const FloatVec factor = hn::Set(tag, scale / sum);
  for (int64_t i = 0; i < count; i += FloatLanes()) {
    StoreFirst(hn::Mul(LoadFirst(logits + i, count - i), factor), dlogits + i, count - i);
  }
  StoreFirst(hn::Set(tag, scale * (answer_share - 1.0f)), dlogits + target, 1);
  return Loss(sum, most, answer);
}

double LossOf(const float* logits, int64_t count, int64_t target) {
  const float most = LargestOf(logits, count);
  const auto keep_nothing = [](FloatVec, int64_t, int64_t) HWY_ATTR {};
  return Loss(SumOfExp(logits, count, most, keep_nothing), most, logits[target]);
}

// Here, so that they are compiled for this set.
template double Row(float*, int64_t, int64_t, float, float*);
template double Row(float*, int64_t, int64_t, float, BFloat16*);

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

template <class T>
auto PickRow(Isa isa) -> double (*)(float*, int64_t, int64_t, float, T*) {
  QKV_PICK_TABLE(isa, Row<T>)
}
auto PickLoss(Isa isa) -> double (*)(const float*, int64_t, int64_t) { QKV_PICK_TABLE(isa, LossOf) }

}  // namespace

template <class T>
double CrossEntropyRow(float* logits, int64_t count, int64_t target, float scale, T* dlogits) noexcept {
  return PickRow<T>(ChosenIsa())(logits, count, target, scale, dlogits);
}
template double CrossEntropyRow(float*, int64_t, int64_t, float, float*) noexcept;
template double CrossEntropyRow(float*, int64_t, int64_t, float, BFloat16*) noexcept;

double CrossEntropyOf(const float* logits, int64_t count, int64_t target) noexcept {
  return PickLoss(ChosenIsa())(logits, count, target);
}

}  // namespace qkv
#endif  // HWY_ONCE
