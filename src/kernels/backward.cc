// The fused backward pass (Dao et al. 2022, algorithm 4): five products for each block of rows and tile of
// keys, of which nothing is kept but sums. Blocked pairs are selected away, never multiplied by zero: NaN stays
// where it is seen.
#include "kernels/backward.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/load.h"
#include "kernels/phase.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/dropout-inl.h"
#include "kernels/math-inl.h"
#include "kernels/multiply-inl.h"
#include "kernels/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

float Dot(const float* a, const float* b, int64_t count) {
  const F32 tag;
  VecF32 sum = hn::Zero(tag);
  int64_t c = 0;
  for (; c + Lanes() <= count; c += Lanes())
    sum = hn::MulAdd(hn::LoadU(tag, a + c), hn::LoadU(tag, b + c), sum);
  float total = hn::GetLane(hn::SumOfLanes(tag, sum));
  for (; c < count; ++c) total += a[c] * b[c];
  return total;
}

RowStatistic Statistic(const Layout& layout, const Row& row, const void* dout, int64_t dout_channel,
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
  return {*row.lse == kBlocked ? 0.0f : *row.lse, delta - dlse};
}

void BeginTile(const BackwardTile& tile, const Layout& layout, const PackKernels& pack,
               BackwardScratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kPack);
  const KeyValues& from = *tile.key_values;
  pack.keys(from.k, tile.first, tile.count, layout.d, scratch.keys());
  pack.values(from.k, tile.first, tile.count, layout.d, scratch.key_rows());
  pack.keys(from.v, tile.first, tile.count, layout.dv, scratch.values());
  std::fill_n(scratch.dk(), tile.held * scratch.d_stride(), 0.0f);
  std::fill_n(scratch.dv(), tile.held * scratch.dv_stride(), 0.0f);
}

bool AllFinite(const float* values, int64_t count) {
  const F32 tag;
  VecF32 lost = hn::Zero(tag);
  for (int64_t i = 0; i < count; i += Lanes()) {
    const VecF32 value = hn::LoadU(tag, values + i);
    lost = hn::Or(lost, hn::Sub(value, value));  // NaN for NaN and infinities, else zero
  }
  return hn::AllTrue(tag, hn::Eq(lost, hn::Zero(tag)));
}

void KeepFinite(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = std::isfinite(values[i]) ? values[i] : 0.0f;
}

// What RowExp's weights of a row must be multiplied by to be exp(s - base) for the base that was meant.
float LostToRounding(float base) {
  return static_cast<float>(std::exp2(LogOfBase(base) - double{base} * kLog2E));
}

bool IsLargeBase(float base) { return !(std::abs(base) <= kLargestBase); }

// All that follows from dO is linear in it, so the rows' roundings are made good there.
void LoadRows(const BackwardBlock& block, BackwardScratch& scratch) {
  const PhaseTimer timer(Phase::kRows);
  const Layout& layout = *block.block.layout;
  const int64_t d_stride = scratch.d_stride(), dv_stride = scratch.dv_stride();
  for (int64_t r = 0; r < block.block.count; ++r) {
    float* query = scratch.queries() + r * d_stride;
    float* dout = scratch.douts() + r * dv_stride;
    LoadRow(layout, block.block.rows[r].q, layout.q_channel, layout.d, static_cast<float>(layout.scale), query);
    LoadRow(layout, block.rows[r].dout, block.dout_channel, layout.dv,
            LostToRounding(block.rows[r].statistic.base), dout);
    std::fill(query + layout.d, query + d_stride, 0.0f);
    std::fill(dout + layout.dv, dout + dv_stride, 0.0f);
  }
}

// The derivative of cap * tanh(s / cap): with e = exp(-2 |s / cap|) it is 4 e / (1 + e)^2.
void SoftcapSlopes(float cap, Range range, const float* s, float* slopes) {
  const F32 tag;
  const VecF32 size = hn::Set(tag, cap), one = hn::Set(tag, 1.0f);
  for (int64_t j = range.first / Lanes() * Lanes(); j < range.last; j += Lanes()) {
    const VecF32 x = hn::Abs(hn::Div(hn::LoadU(tag, s + j), size));
    const VecF32 e = Exp2(tag, hn::Mul(x, hn::Set(tag, -2.0f * kLog2E))), sum = hn::Add(one, e);
    hn::StoreU(hn::Div(hn::Mul(hn::Set(tag, 4.0f), e), hn::Mul(sum, sum)), tag, slopes + j);
  }
}

// Where the slope is zero and the key infinite, nothing is passed on.
void MultiplySlopes(const float* slopes, Range range, float* ds) {
  const F32 tag;
  for (int64_t j = range.first / Lanes() * Lanes(); j < range.last; j += Lanes()) {
    const VecF32 value = hn::LoadU(tag, ds + j);
    const auto none = hn::Eq(value, hn::Zero(tag));
    hn::StoreU(hn::IfThenZeroElse(none, hn::Mul(value, hn::LoadU(tag, slopes + j))), tag, ds + j);
  }
}

// s: from scores to weights; dp: from the weights' gradients to the scores'.
void WeightsAndGradients(RowStatistic statistic, float lost, Range span, float* s, float* dp) {
  const F32 tag;
  if (IsLargeBase(statistic.base)) {
    for (int64_t j = span.first; j < span.last; ++j) s[j] = s[j] == kBlocked ? kBlocked : s[j] - statistic.base;
    statistic.base = 0;
  }
  const RowExp exp(statistic.base);
  const VecF32 delta = hn::Set(tag, statistic.delta * lost), blocked = hn::Set(tag, kBlocked);
  for (int64_t j = span.first; j < span.last; j += Lanes()) {
    const VecF32 score = hn::LoadU(tag, s + j);
    const auto none = hn::Eq(score, blocked);
    const VecF32 weight = hn::IfThenZeroElse(none, exp(tag, score));
    const VecF32 dscore = hn::Mul(weight, hn::Sub(hn::LoadU(tag, dp + j), delta));
    hn::StoreU(weight, tag, s + j);
    hn::StoreU(hn::IfThenZeroElse(none, dscore), tag, dp + j);
  }
}

void AddBiasGradient(Range range, const float* ds, int64_t stride, float* to) {
  if (stride == 1) {
    for (int64_t j = range.first; j < range.last; ++j) to[j] += ds[j];
  } else {
    for (int64_t j = range.first; j < range.last; ++j) to[j * stride] += ds[j];
  }
}

float SumOf(Range range, const float* ds) {
  float sum = 0;
  for (int64_t j = range.first; j < range.last; ++j) sum += ds[j];
  return sum;
}

// Row r of a block: S and dP become P, with dropout's factors, and dS.
void DifferentiateRow(const BackwardBlock& block, int64_t r, const BackwardTile& tile, Range group,
                      BackwardScratch& scratch) {
  const ScoreRules& rules = *block.block.rules;
  const Row& row = block.block.rows[r];
  const BackwardRow& own = block.rows[r];
  const Range range = VisibleInTile(row, tile.first, kBackwardKeys), span = WholeSteps(group);
  float* s = scratch.weights() + r * kBackwardStride;
  float* ds = scratch.dscores() + r * kBackwardStride;
  float* slopes = scratch.slopes() + (rules.softcap ? r * kBackwardStride : 0);
  HWY_ALIGN float factors[kBackwardKeys];
  if (rules.softcap) SoftcapSlopes(*rules.softcap, range, s, slopes);
  ApplyRulesWithin(rules, row, tile.first, range, span, s);
  if (rules.dropout) {
    DropoutFactors(rules, row, tile.first, span, factors);
    Drop(factors, span, ds);
  }
  WeightsAndGradients(own.statistic, LostToRounding(own.statistic.base), span, s, ds);
  if (rules.dropout) Drop(factors, span, s);
  if (own.dbias != nullptr)
    AddBiasGradient(range, ds, block.dbias_key, own.dbias + tile.first * block.dbias_key);
  if (own.bias_sum != nullptr) scratch.bias_sums()[r] = SumOf(range, ds);
  if (rules.softcap) MultiplySlopes(slopes, range, ds);
}

// A group of keys at a time reads up to kTileRows - 1 keys beside what its rows have: they are zeros.
void ClearBeside(Range span, float* row) {
  std::fill(row + std::max<int64_t>(0, span.first - kTileRows), row + span.first, 0.0f);
  std::fill(row + span.last, row + std::min(kBackwardKeys, span.last + kTileRows), 0.0f);
}

void Differentiate(const BackwardBlock& block, const BackwardTile& tile, const GroupRanges& ranges,
                   BackwardScratch& scratch) {
  for (int64_t r = 0; r < block.block.count; ++r) {
    const Range group = ranges.group[r / kTileRows];
    scratch.bias_sums()[r] = 0;
    if (group.empty()) continue;
    DifferentiateRow(block, r, tile, group, scratch);
    ClearBeside(WholeSteps(group), scratch.weights() + r * kBackwardStride);
    ClearBeside(WholeSteps(group), scratch.dscores() + r * kBackwardStride);
  }
}

bool Meet(Range range, int64_t first, int64_t last) { return range.first < last && first < range.last; }

// out (keys, channels) += weights^T rows, over the groups of rows that see each group of keys only.
void MultiplyRowsInto(int64_t count, const GroupRanges& ranges, const BackwardTile& tile, const float* weights,
                      const float* rows, int64_t stride, int64_t channels, float* out) {
  const int64_t end = std::min(tile.count, ranges.all.last);
  for (int64_t channel = 0; channel < channels; channel += PanelWidth()) {
    const int64_t columns = std::min(PanelWidth(), channels - channel);
    for (int64_t j = ranges.all.first / kTileRows * kTileRows; j < end; j += kTileRows) {
      const int64_t keys = std::min<int64_t>(kTileRows, tile.count - j);
      for (int64_t g = 0; g < ranges.count;) {
        const int64_t first = g * kTileRows;
        while (g < ranges.count && Meet(ranges.group[g], j, j + keys)) ++g;
        const int64_t depth = std::min(g * kTileRows, count) - first;
        if (depth > 0) {
          MultiplyPanel<Left::kColumns>(keys, columns, depth, weights + first * kBackwardStride + j,
                                        kBackwardStride, rows + first * stride + channel, stride,
                                        out + j * stride + channel, stride, Start::kAdd);
        }
        ++g;
      }
    }
  }
}

// dO's elements that are not finite, of which the product knows nothing, for the keys that their rows see. A
// weight that underflowed to zero is still positive: infinity stays infinity.
void AddNotFinite(const BackwardBlock& block, const BackwardTile& tile, BackwardScratch& scratch) {
  const ScoreRules& rules = *block.block.rules;
  const int64_t stride = scratch.dv_stride();
  for (int64_t r = 0; r < block.block.count; ++r) {
    const Row& row = block.block.rows[r];
    for (int64_t c = 0; c < block.block.layout->dv; ++c) {
      const float dout = scratch.douts()[r * stride + c];
      if (std::isfinite(dout)) continue;
      for (int64_t j = 0; j < tile.count; ++j) {
        const int64_t key = tile.first + j;
        if (!IsVisible(rules, row, key)) continue;
        if (rules.dropout && !rules.dropout->Kept(row.batch, row.head, row.position, key)) continue;
        const float weight = scratch.weights()[r * kBackwardStride + j];
        scratch.dv()[j * stride + c] += (weight == 0.0f ? FLT_MIN : weight) * dout;
      }
    }
  }
}

bool AddBlock(const BackwardBlock& block, const BackwardTile& tile, BackwardScratch& scratch) noexcept {
  const GroupRanges ranges(block.block, tile.first, kBackwardKeys);
  if (ranges.all.empty()) return false;
  const Layout& layout = *block.block.layout;
  const int64_t count = block.block.count, d_stride = scratch.d_stride(), dv_stride = scratch.dv_stride();
  LoadRows(block, scratch);
  PhaseTimer timer(Phase::kScores);
  MultiplyKeys(count, ranges, layout.d, scratch.queries(), d_stride, scratch.keys(), scratch.weights(),
               kBackwardStride);
  MultiplyKeys(count, ranges, layout.dv, scratch.douts(), dv_stride, scratch.values(), scratch.dscores(),
               kBackwardStride);
  timer.Next(Phase::kSoftmax);
  Differentiate(block, tile, ranges, scratch);
  if (!AllFinite(scratch.queries(), count * d_stride)) KeepFinite(scratch.queries(), count * d_stride);
  if (!AllFinite(scratch.douts(), count * dv_stride)) {
    AddNotFinite(block, tile, scratch);
    KeepFinite(scratch.douts(), count * dv_stride);
  }
  timer.Next(Phase::kGradients);
  MultiplyRowsInto(count, ranges, tile, scratch.weights(), scratch.douts(), dv_stride, layout.dv, scratch.dv());
  MultiplyRowsInto(count, ranges, tile, scratch.dscores(), scratch.queries(), d_stride, layout.d, scratch.dk());
  std::fill_n(scratch.dq(), count * d_stride, 0.0f);
  MultiplyValues(count, ranges, layout.d, scratch.dscores(), kBackwardStride, scratch.key_rows(), scratch.dq(),
                 d_stride);
  return true;
}

void AddRows(const BackwardBlock& block, BackwardScratch& scratch) noexcept {
  const F32 tag;
  const int64_t d = block.block.layout->d;
  const float scale = static_cast<float>(block.block.layout->scale);
  for (int64_t r = 0; r < block.block.count; ++r) {
    const float* from = scratch.dq() + r * scratch.d_stride();
    float* to = block.rows[r].dq;
    int64_t c = 0;
    for (; c + Lanes() <= d; c += Lanes()) {
      hn::StoreU(hn::MulAdd(hn::LoadU(tag, from + c), hn::Set(tag, scale), hn::LoadU(tag, to + c)), tag,
                 to + c);
    }
    for (; c < d; ++c) to[c] += from[c] * scale;
    if (block.rows[r].bias_sum != nullptr) *block.rows[r].bias_sum += scratch.bias_sums()[r];
  }
}

template <class T>
void StoreRows(const float* from, int64_t stride, int64_t count, int64_t channels, const GradientRows& to) {
  for (int64_t n = 0; n < count; ++n, from += stride) {
    T* row = static_cast<T*>(to.data) + n * to.row;
    if (to.channel == 1) {
      ConvertFromFloat(from, channels, row);
    } else {
      for (int64_t c = 0; c < channels; ++c) StoreDouble(from[c], row, to.dtype, c * to.channel);
    }
  }
}

void Store(const float* from, int64_t stride, int64_t count, int64_t channels,
           const GradientRows& to) noexcept {
  switch (to.dtype) {
    case DType::kBF16: return StoreRows<BFloat16>(from, stride, count, channels, to);
    case DType::kF16: return StoreRows<Float16>(from, stride, count, channels, to);
    default: return StoreRows<float>(from, stride, count, channels, to);
  }
}

}  // namespace

BackwardKernels BackwardTable() { return {PanelWidth(), &Statistic, &BeginTile, &AddBlock, &AddRows, &Store}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
namespace qkv {

BackwardKernels BackwardKernelsFor(Isa isa){QKV_PICK_TABLE(isa, BackwardTable())}

BackwardScratch::BackwardScratch(const Layout& layout, const ScoreRules& rules, int64_t panel)
    : d_stride_(PaddedWidth(layout.d, panel)),
      dv_stride_(PaddedWidth(layout.dv, panel)),
      queries_(kMaxBlockRows * d_stride_),
      douts_(kMaxBlockRows * dv_stride_),
      weights_(kMaxBlockRows * kBackwardStride),
      dscores_(kMaxBlockRows * kBackwardStride),
      slopes_(rules.softcap ? kMaxBlockRows * kBackwardStride : 0),
      dq_(kMaxBlockRows * d_stride_),
      keys_(kBackwardKeys * layout.d),
      key_rows_(kKeyTile * d_stride_),
      values_(kBackwardKeys * layout.dv),
      dk_(kBackwardKeys * d_stride_),
      dv_(kBackwardKeys * dv_stride_) {}

}  // namespace qkv
#endif
