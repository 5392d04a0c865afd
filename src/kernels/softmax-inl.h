// The online softmax of a tile's scores (Milakov & Gimelshein 2018). Rows go in batches of as many as a vector has
// lanes: what is one number a row (its maximum, its factor, its sum) is then one vector a batch, and no row waits for
// the end of the row before it.

#if defined(QKV_KERNELS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_SOFTMAX_INL_H_
#undef QKV_KERNELS_SOFTMAX_INL_H_
#else
#define QKV_KERNELS_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/block.h"
#include "kernels/math-inl.h"
#include "kernels/row-inl.h"
#include "kernels/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

inline constexpr int64_t kMaxLanes = hn::MaxLanes(F32());

// What a row's reduction leaves: one vector of partial results a row of the batch.
struct Partials {
  HWY_ALIGN float row[kMaxLanes * kMaxLanes];
  float* at(int64_t i) { return row + i * Lanes(); }
};

#if HWY_TARGET == HWY_SCALAR
template <class Combine> HWY_INLINE VecF32 ReduceRows(VecF32 (&rows)[1], const Combine&) { return rows[0]; }
#else
// Four vectors with a row's four lanes in each 128-bit block: the block's lane i of the result is vector i's.
template <class Combine> HWY_INLINE VecF32 ReduceRows(VecF32 (&rows)[4], const Combine& combine) {
  const F32 tag;
  const hn::Repartition<uint64_t, F32> tag64;
  const auto fold = [&](VecF32 a, VecF32 b) HWY_ATTR {
    return hn::BitCast(tag64, combine(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b)));
  };
  const auto first = fold(rows[0], rows[1]), second = fold(rows[2], rows[3]);
  return combine(hn::BitCast(tag, hn::InterleaveLower(tag64, first, second)),
                 hn::BitCast(tag, hn::InterleaveUpper(tag64, first, second)));
}

// Twice as many lanes: the halves of two rows are folded into one vector.
template <class Combine> HWY_INLINE VecF32 ReduceRows(VecF32 (&rows)[8], const Combine& combine) {
  const F32 tag;
  VecF32 folded[4];
  QKV_UNROLL for (int i = 0; i < 4; ++i) {
    folded[i] = combine(hn::ConcatLowerLower(tag, rows[i + 4], rows[i]), hn::ConcatUpperUpper(tag, rows[i + 4], rows[i]));
  }
  return ReduceRows(folded, combine);
}

#if HWY_TARGET == HWY_AVX3
// And again: halves of rows four apart, then quarters of rows eight apart.
template <class Combine> HWY_INLINE VecF32 ReduceRows(VecF32 (&rows)[16], const Combine& combine) {
  VecF32 halves[16], folded[4];
  QKV_UNROLL for (int i = 0; i < 16; ++i) {
    if (i % 8 >= 4) continue;
    const __m512 a = rows[i].raw, b = rows[i + 4].raw;
    halves[i] = combine(VecF32{_mm512_shuffle_f32x4(a, b, 0x44)}, VecF32{_mm512_shuffle_f32x4(a, b, 0xee)});
  }
  QKV_UNROLL for (int i = 0; i < 4; ++i) {
    const __m512 a = halves[i].raw, b = halves[i + 8].raw;
    folded[i] = combine(VecF32{_mm512_shuffle_f32x4(a, b, 0x88)}, VecF32{_mm512_shuffle_f32x4(a, b, 0xdd)});
  }
  return ReduceRows(folded, combine);
}
#endif
#endif

// Combines the partial results of every row of the batch: lane i is row i's. Lanes half a vector apart are combined,
// then a quarter, and so on, of all rows alike: a row's bits do not depend on its place in the batch.
template <class Combine> HWY_INLINE VecF32 ReduceBatch(Partials& partials, const Combine& combine) {
  VecF32 rows[kMaxLanes];
  QKV_UNROLL for (int64_t i = 0; i < kMaxLanes; ++i) rows[i] = hn::Load(F32(), partials.at(i));
  return ReduceRows(rows, combine);
}

// Runs step(vector number modulo four, elements) over a row: sums go through four vectors at absolute places, so that
// their order is fixed. span: from a multiple of four vectors to whole vectors.
template <class Step> HWY_INLINE void ForEachVector(float* s, Range span, const Step& step) {
  const int64_t lanes = Lanes();
  int64_t j = span.first;
  for (; j + SumStep() <= span.last; j += SumStep()) {
    step(0, s + j), step(1, s + j + lanes), step(2, s + j + 2 * lanes), step(3, s + j + 3 * lanes);
  }
  if (j < span.last) step(0, s + j);
  if (j + lanes < span.last) step(1, s + j + lanes);
  if (j + 2 * lanes < span.last) step(2, s + j + 2 * lanes);
}

HWY_INLINE VecF32 MaxOfRow(float* s, Range span) {
  const F32 tag;
  VecF32 max[4] = {hn::Set(tag, kBlocked), hn::Set(tag, kBlocked), hn::Set(tag, kBlocked), hn::Set(tag, kBlocked)};
  // The score comes first: where it is NaN, x86's maximum gives the second, and the sums carry the NaN on.
  ForEachVector(s, span, [&](int n, float* at) HWY_ATTR { max[n] = hn::Max(hn::LoadU(tag, at), max[n]); });
  return hn::Max(hn::Max(max[0], max[1]), hn::Max(max[2], max[3]));
}

// s = exp(s - base), and its sum.
HWY_INLINE VecF32 ExpOfRow(float* s, Range span, float base) {
  const F32 tag;
  const RowExp exp(base);
  VecF32 sum[4] = {hn::Zero(tag), hn::Zero(tag), hn::Zero(tag), hn::Zero(tag)};
  ForEachVector(s, span, [&](int n, float* at) HWY_ATTR {
    const VecF32 p = exp(tag, hn::LoadU(tag, at));
    hn::StoreU(p, tag, at);
    sum[n] = hn::Add(sum[n], p);
  });
  return hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
}

// A row whose maximum, old or new, is too large for RowExp, or infinite or NaN, alone; its scores are brought down to
// base 0 first where the new one is.
HWY_NOINLINE void SoftmaxOfOddRow(float* s, Range span, float tile_max, float* max, float* sum, float* out,
                                  int64_t width) {
  if (!(tile_max <= *max)) {
    const float factor = Rescale(*max, tile_max);
    ScaleRow(factor, out, width);
    *sum *= factor;
    *max = tile_max;
  }
  float base = *max;
  if (!(std::abs(base) <= kLargestBase)) {
    for (int64_t j = span.first; j < span.last; ++j) s[j] -= base;
    base = 0;
  }
  *sum += hn::GetLane(hn::SumOfLanes(F32(), ExpOfRow(s, span, base)));
}

// A row that sees nothing but NaN has no maximum: the NaN must come out.
HWY_INLINE float MaxOrNaN(const float* s, Range span) {
  for (int64_t j = span.first; j < span.last; ++j) {
    if (std::isnan(s[j])) return s[j];
  }
  return kBlocked;
}

// Rows [first, first + count) of a block, at most a vector of them.
class SoftmaxBatch {
 public:
  SoftmaxBatch(const GroupRanges& ranges, float* scores, const Sums& sums, int64_t out_stride, int64_t width,
               int64_t first, int64_t count)
      : ranges_(ranges), scores_(scores), sums_(sums), out_stride_(out_stride), width_(width), first_(first),
        count_(count) {}

  // Turns the tile's scores into exp(s - running maximum) and brings the split's sums up to it.
  void Run() {
    const F32 tag;
    for (int64_t i = 0; i < Lanes(); ++i) {
      hn::Store(i < count_ ? MaxOfRow(scores(i), Span(i)) : hn::Set(tag, kBlocked), tag, partials_.at(i));
    }
    hn::Store(ReduceBatch(partials_, [](VecF32 a, VecF32 b) HWY_ATTR { return hn::Max(a, b); }), tag, tile_max_);
    Rescale();
    for (int64_t i = 0; i < Lanes(); ++i) {
      const bool plain = i < count_ && !odd_[i];
      hn::Store(plain ? Exponentials(i) : hn::Zero(tag), tag, partials_.at(i));
    }
    hn::Store(ReduceBatch(partials_, [](VecF32 a, VecF32 b) HWY_ATTR { return hn::Add(a, b); }), tag, tile_sum_);
    for (int64_t i = 0; i < count_; ++i) {
      if (odd_[i]) Odd(i);
      else if (tile_max_[i] != kBlocked) Accept(i);
    }
  }

 private:
  static bool IsOdd(float max) { return max != kBlocked && !(std::abs(max) <= kLargestBase); }

  // Each row's new maximum, and the factor that brings its sums so far down to it.
  void Rescale() {
    const F32 tag;
    HWY_ALIGN float old[kMaxLanes] = {};
    for (int64_t i = 0; i < count_; ++i) {
      const float was = sums_.max[first_ + i];
      if (tile_max_[i] == kBlocked) tile_max_[i] = MaxOrNaN(scores(i), Span(i));
      // Greater, or NaN; a tile that shows the row nothing leaves an old NaN as it is.
      max_[i] = tile_max_[i] != kBlocked && !(tile_max_[i] <= was) ? tile_max_[i] : was;
      odd_[i] = tile_max_[i] != kBlocked && (IsOdd(was) || IsOdd(max_[i]));
      old[i] = was;
      // To a row that sees nothing here the weights are zeros, whatever came before.
      base_[i] = tile_max_[i] == kBlocked ? 0.0f : max_[i];
    }
    hn::Store(RescaleFactor(tag, hn::Load(tag, old), hn::Load(tag, base_)), tag, factor_);
  }

  VecF32 Exponentials(int64_t i) {
    const float was = sums_.max[first_ + i];
    if (was != kBlocked && max_[i] != was) ScaleRow(factor_[i], out(i), width_);
    return ExpOfRow(scores(i), Span(i), base_[i]);
  }

  void Accept(int64_t i) {
    float& sum = sums_.sum[first_ + i];
    sum = sum * factor_[i] + tile_sum_[i];
    sums_.max[first_ + i] = max_[i];
  }

  void Odd(int64_t i) {
    const int64_t r = first_ + i;
    SoftmaxOfOddRow(scores(i), Span(i), tile_max_[i], &sums_.max[r], &sums_.sum[r], out(i), width_);
  }

  float* scores(int64_t i) { return scores_ + (first_ + i) * kScoreStride; }
  float* out(int64_t i) { return sums_.out + (first_ + i) * out_stride_; }
  Range Span(int64_t i) const { return WholeVectors(ranges_.group[(first_ + i) / kTileRows]); }

  const GroupRanges& ranges_;
  float* scores_;
  const Sums& sums_;
  int64_t out_stride_, width_, first_, count_;
  Partials partials_;
  HWY_ALIGN float tile_max_[kMaxLanes];
  HWY_ALIGN float tile_sum_[kMaxLanes];
  HWY_ALIGN float factor_[kMaxLanes];
  HWY_ALIGN float base_[kMaxLanes] = {};
  float max_[kMaxLanes];
  bool odd_[kMaxLanes];
};

// width: channels of `out` to rescale, whole vectors.
inline void SoftmaxTile(const Block& block, const GroupRanges& ranges, float* scores, const Sums& sums,
                        int64_t out_stride, int64_t width) {
  for (int64_t r = 0; r < block.count; r += Lanes()) {
    SoftmaxBatch(ranges, scores, sums, out_stride, width, r, std::min(Lanes(), block.count - r)).Run();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
