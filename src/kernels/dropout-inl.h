// Dropout of a row's weights, a vector of counters at a time.

#if defined(QKV_KERNELS_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_DROPOUT_INL_H_
#undef QKV_KERNELS_DROPOUT_INL_H_
#else
#define QKV_KERNELS_DROPOUT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/philox-inl.h"
#include "kernels/problem.h"
#include "kernels/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// factors[j] = 1 / (1 - p) where key tile_first + j is kept for the row, else 0, for j in `span`, which is whole steps.
inline void DropoutFactors(const ScoreRules& rules, const Row& row, int64_t tile_first, Range span, float* factors) {
  const F32 tag;
  const hn::ScalableTag<uint32_t> bits;
  const auto word = [&](int64_t value) HWY_ATTR { return hn::Set(bits, static_cast<uint32_t>(value)); };
  const auto threshold = hn::Set(bits, rules.dropout->threshold());
  const VecF32 scale = hn::Set(tag, static_cast<float>(rules.dropout_scale));
  for (int64_t j = span.first; j < span.last; j += SumStep()) {
    PhiloxVectors words{hn::Iota(bits, static_cast<uint32_t>((tile_first + j) / 4)), word(row.position),
                        word(row.head), word(row.batch)};
    Philox(words, rules.dropout->key());
    const auto factor = [&](hn::Vec<hn::ScalableTag<uint32_t>> drawn) HWY_ATTR {
      return hn::IfThenZeroElse(hn::RebindMask(tag, hn::Lt(drawn, threshold)), scale);
    };
    hn::StoreInterleaved4(factor(words.a), factor(words.b), factor(words.c), factor(words.d), tag, factors + j);
  }
}

// values * factors, where what is dropped is zero whatever it was.
inline void Drop(const float* factors, Range span, float* values) {
  const F32 tag;
  for (int64_t j = span.first; j < span.last; j += Lanes()) {
    const VecF32 factor = hn::LoadU(tag, factors + j);
    const auto dropped = hn::Eq(factor, hn::Zero(tag));
    hn::StoreU(hn::IfThenZeroElse(dropped, hn::Mul(hn::LoadU(tag, values + j), factor)), tag, values + j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
