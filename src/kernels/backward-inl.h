// What kernels of the backward pass share, whatever multiplies: a row's way from S and dP to P and dS, and how
// rows are read, added to and stored.

#if defined(QKV_KERNELS_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_BACKWARD_INL_H_
#undef QKV_KERNELS_BACKWARD_INL_H_
#else
#define QKV_KERNELS_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/backward.h"
#include "kernels/convert-inl.h"
#include "kernels/dropout-inl.h"
#include "kernels/load.h"
#include "kernels/math-inl.h"
#include "kernels/multiply-inl.h"
#include "kernels/phase.h"
#include "kernels/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

inline float Dot(const float* a, const float* b, int64_t count) {
  const F32 tag;
  VecF32 sum = hn::Zero(tag);
  int64_t c = 0;
  for (; c + Lanes() <= count; c += Lanes())
    sum = hn::MulAdd(hn::LoadU(tag, a + c), hn::LoadU(tag, b + c), sum);
  float total = hn::GetLane(hn::SumOfLanes(tag, sum));
  for (; c < count; ++c) total += a[c] * b[c];
  return total;
}

inline RowStatistic Statistic(const Layout& layout, const Row& row, const void* dout, int64_t dout_channel,
                              float dlse) noexcept {
  constexpr int64_t kStep = 256;
  HWY_ALIGN float a[kStep], b[kStep];
  const int64_t size = layout.q_dtype == DType::kF32 ? 4 : 2;
  float delta = 0;
  for (int64_t c = 0; c < layout.dv; c += kStep) {
    const int64_t count = std::min(kStep, layout.dv - c);
    LoadRow(layout, static_cast<const std::byte*>(dout) + c * dout_channel * size, dout_channel, count, 1, a);
    LoadRow(layout, static_cast<const std::byte*>(row.out) + c * layout.out_channel * size, layout.out_channel,
            count, 1, b);
    delta += Dot(a, b, count);
  }
  const float base = *row.lse == kBlocked ? 0.0f : *row.lse;
  return {base, delta - dlse, static_cast<float>(std::exp2(LogOfBase(base) - double{base} * kLog2E))};
}

inline bool IsLargeBase(float base) { return !(std::abs(base) <= kLargestBase); }

// The derivative of cap * tanh(s / cap): with e = exp(-2 |s / cap|) it is 4 e / (1 + e)^2.
inline void SoftcapSlopes(float cap, Range range, const float* s, float* slopes) {
  const F32 tag;
  const VecF32 size = hn::Set(tag, cap), one = hn::Set(tag, 1.0f);
  for (int64_t j = range.first / Lanes() * Lanes(); j < range.last; j += Lanes()) {
    const VecF32 x = hn::Abs(hn::Div(hn::LoadU(tag, s + j), size));
    const VecF32 e = Exp2(tag, hn::Mul(x, hn::Set(tag, -2.0f * kLog2E))), sum = hn::Add(one, e);
    hn::StoreU(hn::Div(hn::Mul(hn::Set(tag, 4.0f), e), hn::Mul(sum, sum)), tag, slopes + j);
  }
}

// Where the slope is zero and the key infinite, nothing is passed on.
inline void MultiplySlopes(const float* slopes, Range range, float* ds) {
  const F32 tag;
  for (int64_t j = range.first / Lanes() * Lanes(); j < range.last; j += Lanes()) {
    const VecF32 value = hn::LoadU(tag, ds + j);
    const auto none = hn::Eq(value, hn::Zero(tag));
    hn::StoreU(hn::IfThenZeroElse(none, hn::Mul(value, hn::LoadU(tag, slopes + j))), tag, ds + j);
  }
}

// s: from scores to weights; dp: from the weights' gradients to the scores'.
inline void WeightsAndGradients(RowStatistic statistic, Range span, float* s, float* dp) {
  const F32 tag;
  const RowExp exp(statistic.base);
  const VecF32 delta = hn::Set(tag, statistic.delta), blocked = hn::Set(tag, kBlocked);
  for (int64_t j = span.first; j < span.last; j += Lanes()) {
    const VecF32 score = hn::LoadU(tag, s + j);
    const auto none = hn::Eq(score, blocked);
    const VecF32 weight = hn::IfThenZeroElse(none, exp(tag, score));
    const VecF32 dscore = hn::Mul(weight, hn::Sub(hn::LoadU(tag, dp + j), delta));
    hn::StoreU(weight, tag, s + j);
    hn::StoreU(hn::IfThenZeroElse(none, dscore), tag, dp + j);
  }
}

inline void AddBiasGradient(Range range, const float* ds, int64_t stride, float* to) {
  if (stride == 1) {
    for (int64_t j = range.first; j < range.last; ++j) to[j] += ds[j];
  } else {
    for (int64_t j = range.first; j < range.last; ++j) to[j * stride] += ds[j];
  }
}

inline float SumOf(Range range, const float* ds) {
  float sum = 0;
  for (int64_t j = range.first; j < range.last; ++j) sum += ds[j];
  return sum;
}

// Scores are brought down to base 0.
inline void SubtractBase(float& base, Range span, float* s) {
  for (int64_t j = span.first; j < span.last; ++j) s[j] = s[j] == kBlocked ? kBlocked : s[j] - base;
  base = 0;
}

// How exp(s - base) is taken: in one multiplication by log2 e, where the caller has made good in dO what it
// loses (RowStatistic::lost); or with the base subtracted first.
enum class Exponent { kOneMultiplication, kSubtraction };

// Row r of a block, of which s and ds hold `span`: S and dP become P, with dropout's factors, and dS. s and ds
// are at the tile's first key.
inline void DifferentiateRow(const BackwardBlock& block, int64_t r, const BackwardTile& tile, Range span,
                             Exponent exponent, float* s, float* ds, float* bias_sum) {
  const ScoreRules& rules = *block.block.rules;
  const Row& row = block.block.rows[r];
  const BackwardRow& own = block.rows[r];
  const Range seen = VisibleInTile(row, tile.first, kBackwardKeys);
  const Range range = {std::clamp(seen.first, span.first, span.last),
                       std::clamp(seen.last, span.first, span.last)};
  HWY_ALIGN float factors[kBackwardKeys];
  HWY_ALIGN float slopes[kBackwardKeys];
  if (rules.softcap) SoftcapSlopes(*rules.softcap, range, s, slopes);
  ApplyRulesWithin(rules, row, tile.first, range, span, s);
  if (rules.dropout) {
    DropoutFactors(rules, row, tile.first, WholeSteps(span), factors);
    Drop(factors, span, ds);
  }
  RowStatistic statistic = own.statistic;
  if (exponent == Exponent::kOneMultiplication) statistic.delta *= statistic.lost;
  if (exponent == Exponent::kSubtraction || IsLargeBase(statistic.base)) SubtractBase(statistic.base, span, s);
  WeightsAndGradients(statistic, span, s, ds);
  if (rules.dropout) Drop(factors, span, s);
  if (own.dbias != nullptr)
    AddBiasGradient(range, ds, block.dbias_key, own.dbias + tile.first * block.dbias_key);
  if (own.bias_sum != nullptr) *bias_sum += SumOf(range, ds);
  if (rules.softcap) MultiplySlopes(slopes, range, ds);
}

// dO's elements that are not finite, of which the product knows nothing, for the keys that their rows see. A
// weight that underflowed to zero is still positive: infinity stays infinity. dout(r, c), weight(r, j), dv(j,
// c): j is relative to the tile.
template <class DoutOf, class WeightOf, class DvOf>
inline void AddNotFinite(const BackwardBlock& block, const BackwardTile& tile, const DoutOf& dout_of,
                         const WeightOf& weight_of, const DvOf& dv_of) {
  const ScoreRules& rules = *block.block.rules;
  for (int64_t r = 0; r < block.block.count; ++r) {
    const Row& row = block.block.rows[r];
    for (int64_t c = 0; c < block.block.layout->dv; ++c) {
      const float dout = dout_of(r, c);
      if (std::isfinite(dout)) continue;
      for (int64_t j = 0; j < tile.count; ++j) {
        const int64_t key = tile.first + j;
        if (!IsVisible(rules, row, key)) continue;
        if (rules.dropout && !rules.dropout->Kept(row.batch, row.head, row.position, key)) continue;
        const float weight = weight_of(r, j);
        dv_of(j, c) += (weight == 0.0f ? FLT_MIN : weight) * dout;
      }
    }
  }
}

// Adds a block's parts to the rows': of dQ, without the scale, rows `stride` apart, and of the sums of dS.
inline void AddParts(const BackwardBlock& block, const float* dq, int64_t stride, const float* bias_sums) {
  const PhaseTimer timer(Phase::kMerge);
  const F32 tag;
  const int64_t d = block.block.layout->d;
  const float scale = static_cast<float>(block.block.layout->scale);
  for (int64_t r = 0; r < block.block.count; ++r) {
    const float* from = dq + r * stride;
    float* to = block.rows[r].dq;
    int64_t c = 0;
    for (; c + Lanes() <= d; c += Lanes()) {
      hn::StoreU(hn::MulAdd(hn::LoadU(tag, from + c), hn::Set(tag, scale), hn::LoadU(tag, to + c)), tag,
                 to + c);
    }
    for (; c < d; ++c) to[c] += from[c] * scale;
    if (block.rows[r].bias_sum != nullptr) *block.rows[r].bias_sum += bias_sums[r];
  }
}

template <class T>
inline void StoreRows(const float* from, int64_t stride, int64_t count, int64_t channels,
                      const GradientRows& to) {
  for (int64_t n = 0; n < count; ++n, from += stride) {
    T* row = static_cast<T*>(to.data) + n * to.row;
    if (to.channel == 1) {
      ConvertFromFloat(from, channels, row);
    } else {
      for (int64_t c = 0; c < channels; ++c) StoreDouble(from[c], row, to.dtype, c * to.channel);
    }
  }
}

inline void Store(const float* from, int64_t stride, int64_t count, int64_t channels,
                  const GradientRows& to) noexcept {
  switch (to.dtype) {
    case DType::kBF16: return StoreRows<BFloat16>(from, stride, count, channels, to);
    case DType::kF16: return StoreRows<Float16>(from, stride, count, channels, to);
    default: return StoreRows<float>(from, stride, count, channels, to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
