#include "kernels/capture.h"

#include <algorithm>
#include <cstdint>

#include "kernels/phase.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/capture.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/math-inl.h"
#include "kernels/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

// s = exp(s - max) / sum; returns the row's part of the entropy, -sum w ln w.
float WeightRow(const RowCapture& row, Range span, float* s) {
  const F32 tag;
  const VecF32 max = hn::Set(tag, row.max), inverse = hn::Set(tag, row.inverse_sum);
  const VecF32 log_sum = hn::Set(tag, -std::log(row.inverse_sum));
  const bool lowered = !(std::abs(row.max) <= kLargestBase);
  const RowExp exp(lowered ? 0.0f : row.max);
  VecF32 entropy = hn::Zero(tag);
  for (int64_t j = span.first; j < span.last; j += Lanes()) {
    const VecF32 score = hn::LoadU(tag, s + j), relative = hn::Sub(score, max);
    const VecF32 weight = hn::Mul(exp(tag, lowered ? relative : score), inverse);
    hn::StoreU(weight, tag, s + j);
    // A weight of zero adds nothing, though its logarithm is -inf.
    const VecF32 part = hn::Mul(weight, hn::Sub(log_sum, relative));
    entropy = hn::Add(entropy, hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(tag)), part));
  }
  return hn::GetLane(hn::SumOfLanes(tag, entropy));
}

void AddReceived(const float* weights, Range range, float* received) {
  const F32 tag;
  int64_t j = range.first;
  for (; j + Lanes() <= range.last; j += Lanes()) {
    hn::StoreU(hn::Add(hn::LoadU(tag, received + j), hn::LoadU(tag, weights + j)), tag, received + j);
  }
  for (; j < range.last; ++j) received[j] += weights[j];
}

// Keeps the row's top_k sorted: weight descending, and keys come in ascending order, so ties keep the lower one.
void Insert(const RowCapture& row, int64_t top_k, int32_t key, float weight) {
  int64_t at = top_k - 1;
  for (; at > 0 && row.top_weights[at - 1] < weight; --at) {
    row.top_weights[at] = row.top_weights[at - 1];
    row.top_keys[at] = row.top_keys[at - 1];
  }
  row.top_weights[at] = weight;
  row.top_keys[at] = key;
}

void KeepTop(const RowCapture& row, int64_t top_k, int64_t tile_first, Range span, const float* weights) {
  const F32 tag;
  for (int64_t j = span.first; j < span.last; j += Lanes()) {
    const VecF32 least = hn::Set(tag, row.top_weights[top_k - 1]);
    if (hn::AllFalse(tag, hn::Gt(hn::LoadU(tag, weights + j), least))) continue;
    for (int64_t l = j; l < j + Lanes(); ++l) {
      if (weights[l] > row.top_weights[top_k - 1]) {
        Insert(row, top_k, static_cast<int32_t>(tile_first + l), weights[l]);
      }
    }
  }
}

void Begin(const Block& block, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  LoadQueries(block, scratch.queries());
}

void AddRow(const Row& row, const KeyTile& tile, Range span, const RowCapture& capture, int64_t top_k,
            RowValues values, float* s) {
  const Range range = VisibleInTile(row, tile.first);
  if (range.empty()) return;
  if (values == RowValues::kWeights) {
    const float entropy = WeightRow(capture, span, s);
    if (capture.entropy != nullptr) *capture.entropy += entropy;
    if (capture.received != nullptr) AddReceived(s, range, capture.received + tile.first);
    if (top_k > 0) KeepTop(capture, top_k, tile.first, span, s);
  }
  if (capture.values != nullptr) {
    std::copy(s + range.first, s + range.last, capture.values + tile.first + range.first);
  }
}

void AddTile(const Block& block, const KeyTile& tile, RowCapture* captures, int64_t top_k, RowValues values,
             Scratch& scratch) noexcept {
  const GroupRanges ranges(block, tile.first);
  PhaseTimer timer(Phase::kScores);
  if (ScoreTile(block, tile, ranges, scratch.queries(), scratch.scores()).empty()) return;
  timer.Next(Phase::kLook);
  for (int64_t r = 0; r < block.count; ++r) {
    AddRow(block.rows[r], tile, WholeSteps(ranges.group[r / kTileRows]), captures[r], top_k, values,
           scratch.scores() + r * kScoreStride);
  }
}

}  // namespace

CaptureKernels CaptureTable() { return {&Begin, &AddTile}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
namespace qkv {
CaptureKernels CaptureKernelsFor(Isa isa) { QKV_PICK_TABLE(isa, CaptureTable()) }
}  // namespace qkv
#endif
