// The fused backward pass (Dao et al. 2022, algorithm 4): five products for each block of rows and tile of
// keys, of which nothing is kept but sums. Blocked pairs are selected away, never multiplied by zero: NaN stays
// where it is seen.
#include "kernels/backward.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/phase.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/backward-inl.h"
#include "kernels/multiply-inl.h"
#include "kernels/row-inl.h"
#include "kernels/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

// The scratch memory's parts.
struct Parts {
  int64_t d_stride, dv_stride;  // of rows of D and of Dv channels
  int64_t floats = 0;           // of all
  float* queries;               // (rows, D), scaled, made finite
  float* douts;                 // (rows, Dv), likewise
  float* weights;               // (rows, keys): S, then P; rows kBackwardStride apart
  float* dscores;               // (rows, keys): dP, then dS
  float* dq;                    // (rows, D)
  float* bias_sums;             // (rows)
  float* keys;                  // packed as keys
  float* key_rows;              // K packed as values
  float* values;                // V packed as keys
  float* dk;                    // (keys, D)
  float* dv;                    // (keys, Dv)

  explicit Parts(BackwardScratch& scratch) : Parts(scratch.layout, scratch.memory.data()) {}
  Parts(const Layout& layout, float* memory)
      : d_stride(PaddedWidth(layout.d, PanelWidth())), dv_stride(PaddedWidth(layout.dv, PanelWidth())) {
    const auto take = [&](int64_t count) {
      float* part = memory + floats;
      floats += PaddedWidth(count, kAlignment / sizeof(float));
      return part;
    };
    queries = take(kMaxBlockRows * d_stride), douts = take(kMaxBlockRows * dv_stride);
    weights = take(kMaxBlockRows * kBackwardStride), dscores = take(kMaxBlockRows * kBackwardStride);
    dq = take(kMaxBlockRows * d_stride), bias_sums = take(kMaxBlockRows);
    keys = take(kBackwardKeys * layout.d), key_rows = take(kKeyTile * d_stride);
    values = take(kBackwardKeys * layout.dv);
    dk = take(kBackwardKeys * d_stride), dv = take(kBackwardKeys * dv_stride);
  }
};

int64_t ScratchFloats(const Layout& layout) noexcept { return Parts(layout, nullptr).floats; }

void BeginTile(const BackwardTile& tile, const PackKernels& pack, BackwardScratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kPack);
  const Parts parts(scratch);
  const KeyValues& from = *tile.key_values;
  pack.keys(from.k, tile.first, tile.count, scratch.layout.d, parts.keys);
  pack.values(from.k, tile.first, tile.count, scratch.layout.d, parts.key_rows);
  pack.keys(from.v, tile.first, tile.count, scratch.layout.dv, parts.values);
  std::fill_n(parts.dk, tile.held * parts.d_stride, 0.0f);
  std::fill_n(parts.dv, tile.held * parts.dv_stride, 0.0f);
}

void KeepFinite(const float* values, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = std::isfinite(values[i]) ? values[i] : 0.0f;
}

// A block's prepared rows: queries, scaled, then dO, each padded with zeros to whole panels.
template <class T>
struct RowOperands {
  int64_t d_stride, dv_stride;
  T *queries, *douts;

  RowOperands(const Layout& layout, int64_t rows, T* memory)
      : d_stride(PaddedWidth(layout.d, PanelWidth())),
        dv_stride(PaddedWidth(layout.dv, PanelWidth())),
        queries(memory),
        douts(memory + rows * d_stride) {}
};

int64_t PreparedFloats(const Layout& layout, int64_t rows) noexcept {
  const int64_t floats = rows * (PaddedWidth(layout.d, PanelWidth()) + PaddedWidth(layout.dv, PanelWidth()));
  return PaddedWidth(floats, kAlignment / sizeof(float));
}

// All that follows from dO is linear in it, so the rows' roundings are made good there.
Values PrepareRows(const BackwardBlock& block, float* prepared) noexcept {
  const PhaseTimer timer(Phase::kRows);
  const Layout& layout = *block.block.layout;
  const RowOperands to(layout, block.block.count, prepared);
  for (int64_t r = 0; r < block.block.count; ++r) {
    float* query = to.queries + r * to.d_stride;
    float* dout = to.douts + r * to.dv_stride;
    LoadRow(layout, block.block.rows[r].q, layout.q_channel, layout.d, static_cast<float>(layout.scale), query);
    LoadRow(layout, block.rows[r].dout, block.dout_channel, layout.dv, block.rows[r].statistic.lost, dout);
    std::fill(query + layout.d, query + to.d_stride, 0.0f);
    std::fill(dout + layout.dv, dout + to.dv_stride, 0.0f);
  }
  const bool finite = AllFinite(prepared, block.block.count * (to.d_stride + to.dv_stride));
  return finite ? Values::kFinite : Values::kSomeNotFinite;
}

// A group of keys at a time reads up to kTileRows - 1 keys beside what its rows have: they are zeros.
void ClearBeside(Range span, float* row) {
  std::fill(row + std::max<int64_t>(0, span.first - kTileRows), row + span.first, 0.0f);
  std::fill(row + span.last, row + std::min(kBackwardKeys, span.last + kTileRows), 0.0f);
}

void Differentiate(const BackwardBlock& block, const BackwardTile& tile, const GroupRanges& ranges,
                   const Parts& parts) {
  for (int64_t r = 0; r < block.block.count; ++r) {
    parts.bias_sums[r] = 0;
    if (ranges.group[r / kTileRows].empty()) continue;
    const Range span = WholeSteps(ranges.group[r / kTileRows]);
    float* weights = parts.weights + r * kBackwardStride;
    float* dscores = parts.dscores + r * kBackwardStride;
    DifferentiateRow(block, r, tile, span, Exponent::kOneMultiplication, weights, dscores, parts.bias_sums + r);
    ClearBeside(span, weights);
    ClearBeside(span, dscores);
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

// What is not finite in the rows is not for the products to multiply by zero: they get a copy without it.
void MakeFinite(const BackwardBlock& block, const BackwardTile& tile, const Parts& parts,
                RowOperands<const float>& rows) {
  const int64_t count = block.block.count, dv_stride = parts.dv_stride;
  AddNotFinite(
      block, tile, [&](int64_t r, int64_t c) { return rows.douts[r * dv_stride + c]; },
      [&](int64_t r, int64_t j) { return parts.weights[r * kBackwardStride + j]; },
      [&](int64_t j, int64_t c) -> float& { return parts.dv[j * dv_stride + c]; });
  KeepFinite(rows.queries, count * parts.d_stride, parts.queries);
  KeepFinite(rows.douts, count * dv_stride, parts.douts);
  rows.queries = parts.queries, rows.douts = parts.douts;
}

bool AddBlock(const BackwardBlock& block, const BackwardTile& tile, BackwardScratch& scratch) noexcept {
  const GroupRanges ranges(block.block, tile.first, kBackwardKeys);
  if (ranges.all.empty()) return false;
  const Parts parts(scratch);
  const Layout& layout = scratch.layout;
  const int64_t count = block.block.count, d_stride = parts.d_stride, dv_stride = parts.dv_stride;
  RowOperands rows(layout, count, block.prepared);
  PhaseTimer timer(Phase::kScores);
  MultiplyKeys(count, ranges, layout.d, rows.queries, d_stride, parts.keys, parts.weights, kBackwardStride);
  MultiplyKeys(count, ranges, layout.dv, rows.douts, dv_stride, parts.values, parts.dscores, kBackwardStride);
  timer.Next(Phase::kSoftmax);
  Differentiate(block, tile, ranges, parts);
  if (block.finite == Values::kSomeNotFinite) MakeFinite(block, tile, parts, rows);
  timer.Next(Phase::kGradients);
  MultiplyRowsInto(count, ranges, tile, parts.weights, rows.douts, dv_stride, layout.dv, parts.dv);
  MultiplyRowsInto(count, ranges, tile, parts.dscores, rows.queries, d_stride, layout.d, parts.dk);
  std::fill_n(parts.dq, count * d_stride, 0.0f);
  MultiplyValues(count, ranges, layout.d, parts.dscores, kBackwardStride, parts.key_rows, parts.dq, d_stride);
  return true;
}

void AddRows(const BackwardBlock& block, BackwardScratch& scratch) noexcept {
  const Parts parts(scratch);
  AddParts(block, parts.dq, parts.d_stride, parts.bias_sums);
}

void StoreTile(const BackwardTile& tile, const GradientRows& dk, const GradientRows& dv,
               BackwardScratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  const Parts parts(scratch);
  Store(parts.dk, parts.d_stride, tile.held, scratch.layout.d, dk);
  Store(parts.dv, parts.dv_stride, tile.held, scratch.layout.dv, dv);
}

}  // namespace

BackwardKernels BackwardTable() {
  return {{},         kMaxBlockRows, &ScratchFloats, &Statistic, &PreparedFloats, &PrepareRows,
          &BeginTile, &AddBlock,     &AddRows,       &StoreTile, &Store};
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
namespace qkv {
namespace {

BackwardKernels TableFor(Isa isa) { QKV_PICK_TABLE(isa, BackwardTable()) }

}  // namespace

BackwardKernels BackwardKernelsFor(Isa isa) {
  BackwardKernels kernels = TableFor(isa);
  kernels.pack = PackKernelsFor(isa);
  return kernels;
}

}  // namespace qkv
#endif
