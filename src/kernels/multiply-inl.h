// The float32 tile multiply that all kernels stand on: c (rows x vectors) = or += a (rows x depth) * b (depth x
// vectors). Every element is one chain of fused multiply-adds from zero, in ascending depth, that is then stored or
// added to c: its bits do not depend on the shape of the tile, and leading or trailing zeros do not change them.
// Callers cut a long depth at fixed places, which also keeps the chains' rounding errors short.

#if defined(QKV_KERNELS_MULTIPLY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_MULTIPLY_INL_H_
#undef QKV_KERNELS_MULTIPLY_INL_H_
#else
#define QKV_KERNELS_MULTIPLY_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VecF32 = hn::Vec<F32>;

// Rows x vectors of accumulators: 6 x 4 leave 8 of 32 registers for b and the broadcast, 6 x 2 leave 4 of 16.
inline constexpr int kTileRows = 6;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kTileVectors = 4;
#else
inline constexpr int kTileVectors = 2;
#endif

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(F32())); }
HWY_INLINE int64_t PanelWidth() { return kTileVectors * Lanes(); }  // columns of a packed panel

// Packed values stand in panels of ValuePanel channels: one of just their width where that is narrower.
HWY_INLINE int64_t ValueWidth(int64_t dv) { return (dv + Lanes() - 1) / Lanes() * Lanes(); }
HWY_INLINE int64_t ValuePanel(int64_t dv) { return std::min(PanelWidth(), ValueWidth(dv)); }

// Loops over accumulators must be unrolled in full, or the accumulators live in memory.
#undef QKV_UNROLL
#if defined(__clang__)
#define QKV_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QKV_UNROLL _Pragma("GCC unroll 16")
#endif

enum class Start { kZero, kAdd };  // whether c is overwritten without being read, or added to
enum class Left { kRows, kColumns };  // a as it is, or transposed: element (r, k) at a[r * lda + k], or a[k * lda + r]

// b: row k at b + k * ldb, kVectors vectors. c: row r at c + r * ldc.
template <int kRows, int kVectors, Left kLeft>
HWY_NOINLINE void MultiplyTile(int64_t depth, const float* HWY_RESTRICT a, int64_t lda,
                               const float* HWY_RESTRICT b, int64_t ldb, float* HWY_RESTRICT c, int64_t ldc,
                               Start start) {
  const F32 tag;
  const int64_t lanes = Lanes();
  VecF32 sum[kRows][kVectors];
  QKV_UNROLL for (int r = 0; r < kRows; ++r) {
    QKV_UNROLL for (int n = 0; n < kVectors; ++n) sum[r][n] = hn::Zero(tag);
  }
  for (int64_t k = 0; k < depth; ++k, b += ldb) {
    VecF32 row[kVectors];
    QKV_UNROLL for (int n = 0; n < kVectors; ++n) row[n] = hn::LoadU(tag, b + n * lanes);
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      const VecF32 factor = hn::Set(tag, kLeft == Left::kRows ? a[r * lda + k] : a[k * lda + r]);
      QKV_UNROLL for (int n = 0; n < kVectors; ++n) sum[r][n] = hn::MulAdd(factor, row[n], sum[r][n]);
    }
  }
  QKV_UNROLL for (int r = 0; r < kRows; ++r) {
    QKV_UNROLL for (int n = 0; n < kVectors; ++n) {
      float* to = c + r * ldc + n * lanes;
      if (start == Start::kAdd) sum[r][n] = hn::Add(hn::LoadU(tag, to), sum[r][n]);
      hn::StoreU(sum[r][n], tag, to);
    }
  }
}

template <int kVectors, Left kLeft>
HWY_INLINE void MultiplyRows(int64_t rows, int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb,
                             float* c, int64_t ldc, Start start) {
  switch (rows) {
    case 1: return MultiplyTile<1, kVectors, kLeft>(depth, a, lda, b, ldb, c, ldc, start);
    case 2: return MultiplyTile<2, kVectors, kLeft>(depth, a, lda, b, ldb, c, ldc, start);
    case 3: return MultiplyTile<3, kVectors, kLeft>(depth, a, lda, b, ldb, c, ldc, start);
    case 4: return MultiplyTile<4, kVectors, kLeft>(depth, a, lda, b, ldb, c, ldc, start);
    case 5: return MultiplyTile<5, kVectors, kLeft>(depth, a, lda, b, ldb, c, ldc, start);
    default: return MultiplyTile<6, kVectors, kLeft>(depth, a, lda, b, ldb, c, ldc, start);
  }
}

// One group of at most kTileRows rows times `columns` of a panel, rounded up to whole vectors.
template <Left kLeft = Left::kRows>
HWY_INLINE void MultiplyPanel(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t lda,
                              const float* b, int64_t ldb, float* c, int64_t ldc, Start start) {
  switch ((columns + Lanes() - 1) / Lanes()) {
    case 1: return MultiplyRows<1, kLeft>(rows, depth, a, lda, b, ldb, c, ldc, start);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
    case 2: return MultiplyRows<2, kLeft>(rows, depth, a, lda, b, ldb, c, ldc, start);
    case 3: return MultiplyRows<3, kLeft>(rows, depth, a, lda, b, ldb, c, ldc, start);
#endif
    default: return MultiplyRows<kTileVectors, kLeft>(rows, depth, a, lda, b, ldb, c, ldc, start);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
