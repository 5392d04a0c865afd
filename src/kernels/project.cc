#include "kernels/project.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/project.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/multiply-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

constexpr int64_t kLine = 64;  // bytes of a cache line

HWY_INLINE void PrefetchToL2(const char* address) { __builtin_prefetch(address, /*rw=*/0, /*locality=*/2); }

// Inputs of a piece of a panel (32 KiB), which then serves all tiles of rows from the nearest cache.
constexpr int64_t kDepth = 128;

// sums (kRows, a panel's columns) += or = a * piece, where element (r, k) of a is at a[r * lda + k]. Meanwhile the
// processor is told of `kLines` cache lines for each k, from `ahead` on: multiplying and waiting for memory would else
// take turns. It is the tile of multiply-inl.h but for that.
template <int kRows, int kLines>
HWY_NOINLINE void PrefetchingTile(int64_t depth, const float* HWY_RESTRICT a, int64_t lda,
                                  const float* HWY_RESTRICT piece, float* HWY_RESTRICT sums, Start start,
                                  const char* ahead) {
  const F32 tag;
  const int64_t lanes = Lanes(), columns = PanelWidth();
  VecF32 sum[kRows][kTileVectors];
  QKV_UNROLL for (int r = 0; r < kRows; ++r) {
    QKV_UNROLL for (int n = 0; n < kTileVectors; ++n) sum[r][n] = hn::Zero(tag);
  }
  for (int64_t k = 0; k < depth; ++k, piece += columns, ahead += kLines * kLine) {
    QKV_UNROLL for (int line = 0; line < kLines; ++line) PrefetchToL2(ahead + line * kLine);
    VecF32 row[kTileVectors];
    QKV_UNROLL for (int n = 0; n < kTileVectors; ++n) row[n] = hn::LoadU(tag, piece + n * lanes);
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      const VecF32 factor = hn::Set(tag, a[r * lda + k]);
      QKV_UNROLL for (int n = 0; n < kTileVectors; ++n) sum[r][n] = hn::MulAdd(factor, row[n], sum[r][n]);
    }
  }
  QKV_UNROLL for (int r = 0; r < kRows; ++r) {
    QKV_UNROLL for (int n = 0; n < kTileVectors; ++n) {
      float* to = sums + r * columns + n * lanes;
      if (start == Start::kAdd) sum[r][n] = hn::Add(hn::LoadU(tag, to), sum[r][n]);
      hn::StoreU(sum[r][n], tag, to);
    }
  }
}

using Tile = void (*)(int64_t, const float*, int64_t, const float*, float*, Start, const char*);

template <int kLines> HWY_INLINE Tile TileOf(int64_t rows) {
  constexpr Tile kTiles[] = {PrefetchingTile<1, kLines>, PrefetchingTile<2, kLines>, PrefetchingTile<3, kLines>,
                             PrefetchingTile<4, kLines>, PrefetchingTile<5, kLines>, PrefetchingTile<6, kLines>};
  return kTiles[rows - 1];
}

HWY_INLINE Tile TileOf(int64_t rows, int64_t lines) {
  switch (lines) {
    case 0: return TileOf<0>(rows);
    case 1: return TileOf<1>(rows);
    case 2: return TileOf<2>(rows);
    default: return TileOf<4>(rows);
  }
}

// All rows times one piece of a panel. `ahead`: the piece that comes next, `ahead_bytes` of it for each input.
void MultiplyPiece(const float* x, int64_t rows, int64_t inputs, int64_t depth, const float* piece, float* sums,
                   Start start, const void* ahead, int64_t ahead_bytes) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  int64_t lines = std::max<int64_t>(1, ahead_bytes / kLine);  // left to prefetch, for each input
  const int64_t lines_each = tiles >= lines ? 1 : tiles >= lines / 2 ? 2 : 4;
  const auto* next = static_cast<const char*>(ahead);
  for (int64_t r = 0; r < rows; r += kTileRows) {
    const int64_t now = lines > 0 ? lines_each : 0;
    TileOf(std::min<int64_t>(kTileRows, rows - r), now)(depth, x + r * inputs, inputs, piece, sums + r * PanelWidth(),
                                                        start, next);
    lines -= now;
    next += now * kLine * depth;
  }
}

// `count` floats of a panel.
HWY_INLINE const float* Widened(const float* panel, int64_t, float*) { return panel; }
HWY_INLINE const float* Widened(const BFloat16* panel, int64_t count, float* widened) {
  ConvertToFloat(panel, count, widened);
  return widened;
}

template <class T>
void Multiply(const float* x, int64_t rows, int64_t inputs, const T* packed, int64_t panels, float* sums) {
  const int64_t columns = PanelWidth();
  alignas(64) float widened[std::is_same_v<T, float> ? 1 : kDepth * kProjectMaxColumns];
  for (int64_t k = 0; k < inputs; k += kDepth) {
    const int64_t depth = std::min(kDepth, inputs - k);
    const Start start = k == 0 ? Start::kZero : Start::kAdd;
    for (int64_t p = 0; p < panels; ++p) {
      const T* piece = packed + (p * inputs + k) * columns;
      // Prefetching past the end of memory does no harm.
      const T* ahead = p + 1 < panels ? piece + inputs * columns : packed + (k + depth) * columns;
      MultiplyPiece(x + k, rows, inputs, depth, Widened(piece, depth * columns, widened), sums + p * rows * columns,
                    start, ahead, columns * static_cast<int64_t>(sizeof(T)));
    }
  }
}

PanelKernel MakePanelKernel() { return {PanelWidth(), Multiply<float>, Multiply<BFloat16>}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
#include "runtime/half.h"

namespace qkv {
namespace {

template <class T, class Convert>
void Pack(const float* const* rows, int64_t outputs, int64_t inputs, int64_t columns, T* panel, Convert convert) {
  for (int64_t k = 0; k < inputs; ++k, panel += columns) {
    for (int64_t n = 0; n < outputs; ++n) panel[n] = convert(rows[n][k]);
    std::fill(panel + outputs, panel + columns, T{});
  }
}

PanelKernel (*PickPanelKernel(Isa isa))() { QKV_PICK_TABLE(isa, MakePanelKernel) }

}  // namespace

PanelKernel ChosenPanelKernel() { return PickPanelKernel(ChosenIsa())(); }

void PackPanel(const float* const* rows, int64_t outputs, int64_t inputs, int64_t columns, float* panel) noexcept {
  Pack(rows, outputs, inputs, columns, panel, [](float value) { return value; });
}

void PackPanel(const float* const* rows, int64_t outputs, int64_t inputs, int64_t columns, BFloat16* panel) noexcept {
  Pack(rows, outputs, inputs, columns, panel, [](float value) { return ToBFloat16(value); });
}

}  // namespace qkv
#endif  // HWY_ONCE
