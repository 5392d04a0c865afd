// Finished sums of a block of a matrix product (kernels/matmul_block.h) on their way to memory, a panel of 32
// columns and a group of 32 rows at a time.

#if defined(QKV_KERNELS_MATMUL_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_MATMUL_BLOCK_INL_H_
#undef QKV_KERNELS_MATMUL_BLOCK_INL_H_
#else
#define QKV_KERNELS_MATMUL_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/matmul_block.h"
#include "kernels/pack_pairs-inl.h"
#include "kernels/pair_products-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {

inline constexpr int64_t kBlockPanel = 32;                           // columns
inline constexpr int64_t kPanelSums = kPairGroupRows * kBlockPanel;  // of a group and a panel

// 16 elements to and from float32.
struct FloatElements {
  using Type = float;
  static HWY_INLINE __m512 Load(const float* from, __mmask16 some) { return _mm512_maskz_loadu_ps(some, from); }
  static HWY_INLINE void Store(__m512 value, float* to, __mmask16 some) {
    _mm512_mask_storeu_ps(to, some, value);
  }
};
struct PairElements {
  using Type = BFloat16;
  static HWY_INLINE __m512 Load(const BFloat16* from, __mmask16 some) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, from)), 16));
  }
  static HWY_INLINE void Store(__m512 value, BFloat16* to, __mmask16 some) { StoreRounded(value, to, some); }
};

// One row of a group's and a panel's sums to its place.
template <class Out, class Added>
HWY_INLINE void StoreRow(const BlockResult& block, int64_t row, int64_t column, const float* sums) {
  const __mmask32 some = FirstOf32(block.columns - column);
  const int64_t at = row * block.out_stride + column;
  QKV_UNROLL for (int half = 0; half < 2; ++half) {
    const int64_t c = half * 16;
    const auto mask = static_cast<__mmask16>(some >> c);
    __m512 value = _mm512_load_ps(sums + c);
    if (block.bias != nullptr) {
      value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, block.bias + column + c));
    }
    if (block.added != nullptr) {
      value = _mm512_add_ps(value,
                            Added::Load(static_cast<const typename Added::Type*>(block.added) + at + c, mask));
    }
    Out::Store(value, static_cast<typename Out::Type*>(block.out) + at + c, mask);
  }
}

// A group's and a panel's finished sums, stored some rows at a time while the tiles multiply the next panel.
template <class Out, class Added>
class Finished {
 public:
  explicit Finished(const BlockResult& block) : block_(block) {}

  // After StoreSome has stored what was added before.
  void Add(int64_t row, int64_t column, const float* sums) {
    row_ = row, column_ = column, sums_ = sums, last_ = std::min(block_.rows, row + kPairGroupRows);
  }
  HWY_INLINE void StoreSome(int64_t rows) {
    for (const int64_t last = std::min(last_, row_ + rows); row_ < last; ++row_, sums_ += kBlockPanel) {
      StoreRow<Out, Added>(block_, row_, column_, sums_);
    }
  }

 private:
  const BlockResult& block_;
  int64_t row_ = 0, last_ = 0, column_ = 0;
  const float* sums_ = nullptr;
};

// Rows to be written soon, so that stores need not wait for them.
HWY_INLINE void PrefetchOut(const BlockResult& block, int64_t row, int64_t column) {
  const auto size = static_cast<int64_t>(SizeOf(block.out_dtype));
  const char* out = static_cast<const char*>(block.out) + (row * block.out_stride + column) * size;
  for (int64_t r = std::min(kPairGroupRows, block.rows - row); r > 0; --r, out += block.out_stride * size) {
    asm volatile("prefetchw %0" : : "m"(*out));
    if (size == 4) asm volatile("prefetchw %0" : : "m"(out[64]));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES

#endif  // include guard
