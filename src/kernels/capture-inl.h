// What a tile's scores become in the second pass: weights, and what is kept of them.

#if defined(QKV_KERNELS_CAPTURE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CAPTURE_INL_H_
#undef QKV_KERNELS_CAPTURE_INL_H_
#else
#define QKV_KERNELS_CAPTURE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/capture.h"
#include "kernels/math-inl.h"
#include "kernels/phase.h"
#include "kernels/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

inline constexpr float kLeastRelative = -200.0f;  // exp of it is zero, and zero times it is zero, unlike that of -inf

// s = exp(s - max) / sum; returns the row's part of the entropy: -sum w ln w, where ln w = s - max - ln sum.
inline float WeightRow(const RowCapture& row, Range span, float* s) {
  const F32 tag;
  const VecF32 max = hn::Set(tag, row.max), inverse = hn::Set(tag, row.inverse_sum);
  const bool lowered = !(std::abs(row.max) <= kLargestBase);
  const RowExp exp(lowered ? 0.0f : row.max);
  VecF32 below[2] = {hn::Zero(tag), hn::Zero(tag)}, mass[2] = {hn::Zero(tag), hn::Zero(tag)};
  const auto step = [&](int n, float* at) HWY_ATTR {
    const VecF32 score = hn::LoadU(tag, at), relative = hn::Sub(score, max);
    const VecF32 weight = hn::Mul(exp(tag, lowered ? relative : score), inverse);
    hn::StoreU(weight, tag, at);
    below[n] = hn::NegMulAdd(weight, AtLeast(tag, relative, kLeastRelative), below[n]);
    mass[n] = hn::Add(mass[n], weight);
  };
  for (int64_t j = span.first; j < span.last; j += 2 * Lanes()) {  // steps are four vectors
    step(0, s + j);
    step(1, s + j + Lanes());
  }
  const VecF32 log_sum = hn::Set(tag, -std::log(row.inverse_sum));
  const VecF32 all = hn::MulAdd(log_sum, hn::Add(mass[0], mass[1]), hn::Add(below[0], below[1]));
  return hn::GetLane(hn::SumOfLanes(tag, all));
}

inline void AddReceived(const float* weights, Range range, float* received) {
  const F32 tag;
  int64_t j = range.first;
  for (; j + Lanes() <= range.last; j += Lanes()) {
    hn::StoreU(hn::Add(hn::LoadU(tag, received + j), hn::LoadU(tag, weights + j)), tag, received + j);
  }
  for (; j < range.last; ++j) received[j] += weights[j];
}

// Puts a key where it belongs: weight descending, and keys come in ascending order, so ties keep the lower one. Every
// place becomes the middle one of what it holds, what the place before it holds, and the new weight.
inline void Insert(TopList& top, int32_t key, float weight) {
  const F32 tag;
  const hn::RebindToSigned<F32> ints;
  const VecF32 added = hn::Set(tag, weight);
  for (int64_t c = (top.size() - 1) / Lanes() * Lanes(); c >= 0; c -= Lanes()) {
    float* weights = top.weights() + c;
    int32_t* keys = top.keys() + c;
    const bool last = weights[-1] >= weight;
    const VecF32 here = hn::Load(tag, weights), before = hn::LoadU(tag, weights - 1);
    const auto stays = hn::RebindMask(ints, hn::Ge(here, added)), comes = hn::RebindMask(ints, hn::Ge(before, added));
    const auto moved = hn::IfThenElse(comes, hn::Set(ints, key), hn::LoadU(ints, keys - 1));
    hn::Store(hn::IfThenElse(stays, hn::Load(ints, keys), moved), ints, keys);
    hn::Store(hn::Max(here, hn::Min(added, before)), tag, weights);
    if (last) return;
  }
}

inline void KeepTop(const RowCapture& row, int64_t tile_first, Range span, const float* weights, TopList& top) {
  const F32 tag;
  const int64_t size = top.size();
  VecF32 least = hn::Set(tag, row.top_weights[size - 1]);
  bool loaded = false;
  for (int64_t j = span.first; j < span.last; j += Lanes()) {
    const auto greater = hn::Gt(hn::LoadU(tag, weights + j), least);
    if (hn::AllFalse(tag, greater)) continue;
    if (!loaded) {
      std::copy_n(row.top_weights, size, top.weights());
      std::copy_n(row.top_keys, size, top.keys());
      loaded = true;
    }
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(tag, greater, bytes);
    for (unsigned bits = bytes[0] | bytes[1] << 8; bits != 0; bits &= bits - 1) {
      const int64_t key = j + std::countr_zero(bits);
      if (weights[key] > top.weights()[size - 1]) Insert(top, static_cast<int32_t>(tile_first + key), weights[key]);
    }
    least = hn::Set(tag, top.weights()[size - 1]);
  }
  if (!loaded) return;
  std::copy_n(top.weights(), size, row.top_weights);
  std::copy_n(top.keys(), size, row.top_keys);
}

inline void AddRow(const Row& row, const KeyTile& tile, Range span, const RowCapture& capture, TopList& top,
                   RowValues values, float* s) {
  const Range range = VisibleInTile(row, tile.first);
  if (range.empty()) return;
  if (values == RowValues::kWeights) {
    const float entropy = WeightRow(capture, span, s);
    if (capture.entropy != nullptr) *capture.entropy += entropy;
    if (capture.received != nullptr) AddReceived(s, range, capture.received + tile.first);
    if (top.size() > 0) KeepTop(capture, tile.first, span, s, top);
  }
  if (capture.values != nullptr) {
    std::copy(s + range.first, s + range.last, capture.values + tile.first + range.first);
  }
}

// score(ranges) makes the tile's scores in the scratch memory, rows kScoreStride apart, with the rules applied.
template <class Score>
void CaptureTile(const Block& block, const KeyTile& tile, RowCapture* captures, TopList& top, RowValues values,
                 Scratch& scratch, const Score& score) {
  const GroupRanges ranges(block, tile.first);
  if (ranges.all.empty()) return;
  PhaseTimer timer(Phase::kScores);
  score(ranges);
  timer.Next(Phase::kLook);
  for (int64_t r = 0; r < block.count; ++r) {
    AddRow(block.rows[r], tile, WholeSteps(ranges.group[r / kTileRows]), captures[r], top, values,
           scratch.scores() + r * kScoreStride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
