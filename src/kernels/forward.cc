// The fused forward: for each tile of keys S = Q K^T, an online softmax, O += P V (Dao et al. 2022, algorithm 1;
// Milakov & Gimelshein 2018). Loops: block of rows > split of keys > tile of keys > panel > group of rows.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/block.h"
#include "kernels/load.h"
#include "kernels/phase.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/math-inl.h"
#include "kernels/multiply-inl.h"
#include "kernels/row-inl.h"
#include "kernels/score-inl.h"
#include "kernels/softmax-inl.h"
#include "kernels/store-inl.h"
#include "kernels/stream-inl.h"
#include "kernels/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

void DropTile(const Block& block, int64_t tile_first, const GroupRanges& ranges, float* weights) {
  for (int64_t r = 0; r < block.count; ++r) {
    const Range span = WholeSteps(ranges.group[r / kTileRows]);
    if (!span.empty()) DropWeights(*block.rules, block.rows[r], tile_first, span, weights + r * kScoreStride);
  }
}

// A total whose maximum is -inf is empty, and its `out` means nothing.
Values Begin(const Block& block, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  LoadQueries(block, scratch.queries());
  const Sums total = scratch.total();
  for (int64_t r = 0; r < block.count; ++r) {
    const float* sink = block.rows[r].sink;
    total.max[r] = sink == nullptr ? kBlocked : *sink;
    total.sum[r] = 0;
    if (total.max[r] == kBlocked) continue;
    total.sum[r] = ExpOfBase(total.max[r]);
    std::fill_n(total.out + r * scratch.out_stride(), scratch.out_stride(), 0.0f);
  }
  return Values::kFinite;
}

void BeginSplit(const Block& block, Scratch& scratch) noexcept {
  const Sums split = scratch.split();
  std::fill_n(split.max, block.count, kBlocked);
  std::fill_n(split.sum, block.count, 0.0f);
  std::fill_n(split.out, block.count * scratch.out_stride(), 0.0f);
}

// Rows of a block, and what is theirs of the scratch memory.
struct TilePart {
  Block block;
  GroupRanges ranges;
  const float* queries;
  float* scores;
  Sums sums;
};

TilePart PartOf(const Block& block, const GroupRanges& ranges, int64_t group, int64_t groups, Scratch& scratch) {
  const int64_t first = group * kTileRows;
  TilePart part{block, ranges.Part(group, groups), scratch.queries() + first * block.layout->d,
                 scratch.scores() + first * kScoreStride, scratch.split()};
  part.block.rows += first;
  part.block.count = std::min(groups * kTileRows, block.count - first);
  part.sums.max += first, part.sums.sum += first, part.sums.out += first * scratch.out_stride();
  return part;
}

// The tile's scores become weights under the rows' new maxima, and the sums so far are brought up to those.
void WeighTile(const TilePart& part, int64_t tile_first, int64_t out_stride) {
  SoftmaxTile(part.block, part.ranges, part.scores, part.sums, out_stride, ValueWidth(part.block.layout->dv));
  if (part.block.rules->dropout) DropTile(part.block, tile_first, part.ranges, part.scores);
}

// Groups of rows whose scores become weights before the next ones are made: 12 rows of scores are 25 KiB, and find
// themselves in the nearest cache.
constexpr int64_t kPartGroups = 2;

void AddTile(const Block& block, const KeyTile& tile, Scratch& scratch) noexcept {
  const GroupRanges ranges(block, tile.first);
  if (ranges.all.empty()) return;
  float* out = scratch.split().out;
  for (int64_t group = 0; group < ranges.count; group += kPartGroups) {
    const TilePart part = PartOf(block, ranges, group, kPartGroups, scratch);
    if (part.ranges.all.empty()) continue;
    PhaseTimer timer(Phase::kScores);
    ScoreTile(part.block, tile, part.ranges, part.queries, part.scores);
    timer.Next(Phase::kSoftmax);
    WeighTile(part, tile.first, scratch.out_stride());
  }
  const PhaseTimer timer(Phase::kValues);
  MultiplyValues(block.count, ranges, block.layout->dv, scratch.scores(), kScoreStride, tile.values, out,
                 scratch.out_stride());
  if (tile.finite == Values::kSomeNotFinite) {
    const Range keys = {0, std::min(kKeyTile, block.key_values->length - tile.first)};
    AddNotFinite({block, 0, block.count}, tile.first, keys, out, scratch.out_stride(), [&](int64_t r, int64_t j) {
      return scratch.scores()[r * kScoreStride + j];
    });
  }
}

void StreamTile(const Block& block, int64_t tile_first, Scratch& scratch) noexcept {
  const GroupRanges ranges(block, tile_first);
  if (ranges.all.empty()) return;
  WithType(block.key_values->k.dtype, [&](auto type) {
    PhaseTimer timer(Phase::kScores);
    StreamedTile<decltype(type)> tile(block, ranges, tile_first);
    tile.Scores(scratch.queries(), scratch.scores());
    ApplyRulesToTile(block, tile_first, ranges, scratch.scores());
    timer.Next(Phase::kSoftmax);
    WeighTile(PartOf(block, ranges, 0, ranges.count, scratch), tile_first, scratch.out_stride());
    timer.Next(Phase::kValues);
    tile.Values(scratch.scores(), scratch.split().out, scratch.out_stride());
  });
}

void Merge(const Block& block, const Sums& from, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kMerge);
  const F32 tag;
  const Sums total = scratch.total();
  const int64_t stride = scratch.out_stride(), width = ValueWidth(block.layout->dv);
  for (int64_t r = 0; r < block.count; ++r) {
    if (from.max[r] == kBlocked) continue;
    if (total.max[r] == kBlocked) {
      total.max[r] = from.max[r], total.sum[r] = from.sum[r];
      std::copy_n(from.out + r * stride, width, total.out + r * stride);
      continue;
    }
    const float max = !(from.max[r] <= total.max[r]) ? from.max[r] : total.max[r];
    const float keep = Rescale(total.max[r], max), add = Rescale(from.max[r], max);
    total.sum[r] = total.sum[r] * keep + from.sum[r] * add;
    total.max[r] = max;
    const VecF32 keeps = hn::Set(tag, keep), adds = hn::Set(tag, add);
    for (int64_t c = r * stride; c < r * stride + width; c += Lanes()) {
      const VecF32 kept = hn::Mul(hn::LoadU(tag, total.out + c), keeps);
      hn::StoreU(hn::MulAdd(hn::LoadU(tag, from.out + c), adds, kept), tag, total.out + c);
    }
  }
}

void Finish(const Block& block, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  const Sums total = scratch.total();
  const int64_t stride = scratch.out_stride(), width = ValueWidth(block.layout->dv);
  for (int64_t r = 0; r < block.count; ++r) {
    const Row& row = block.rows[r];
    float* out = total.out + r * stride;
    const bool blocked = total.max[r] == kBlocked;
    if (blocked) std::fill_n(out, width, 0.0f);
    StoreRow(blocked ? 1.0f : 1.0f / total.sum[r], out, *block.layout, row.out);
    if (row.lse == nullptr) continue;
    // The base's rounding, common to all terms of the sum, is taken out: one visible key gives its score exactly.
    *row.lse = blocked ? kBlocked : total.max[r] + std::log(total.sum[r] / ExpOfBase(total.max[r]));
  }
}

ScratchSizes SizesOf(int64_t rows, const Layout& layout) noexcept {
  return {rows, rows * layout.d, rows * kScoreStride, PaddedWidth(layout.dv, PanelWidth()), 0};
}

}  // namespace

ForwardKernels ForwardTable() { return {&SizesOf, &Begin, &BeginSplit, &AddTile, &StreamTile, &Merge, &Finish, kTileRows}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
namespace qkv {

ForwardKernels ForwardKernelsFor(Isa isa) { QKV_PICK_TABLE(isa, ForwardTable()) }

Scratch::Scratch(const ScratchSizes& sizes)
    : rows_(sizes.rows),
      out_stride_(sizes.out_stride),
      queries_(sizes.queries),
      scores_(sizes.scores),
      split_stats_(2 * rows_),
      split_out_(rows_ * out_stride_),
      total_stats_(2 * rows_),
      total_out_(rows_ * out_stride_),
      streamed_(sizes.streamed) {}

}  // namespace qkv
#endif
