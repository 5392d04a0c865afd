// Packing bfloat16 keys and values into pair tiles (kernels/pairs.h).
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/load.h"
#include "kernels/pairs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pack_pairs.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/multiply-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

// The low `count` of 32 elements.
HWY_INLINE __mmask32 FirstOf32(int64_t count) {
  return count >= kPairDepth ? ~__mmask32{0} : (__mmask32{1} << std::max<int64_t>(count, 0)) - 1;
}

// Channels c ... c + 31 of a key, zeros from channel `width` on.
HWY_INLINE __m512i LoadChannels(const Strided& from, int64_t key, int64_t c, int64_t width) {
  const BFloat16* row = from.Key<BFloat16>(key) + c * from.channel;
  PrefetchAhead(from, row, std::min(kPairDepth, width - c));
  if (from.channel == 1) return _mm512_maskz_loadu_epi16(FirstOf32(width - c), row);
  HWY_ALIGN BFloat16 channels[kPairDepth] = {};
  for (int64_t i = 0; i < std::min(kPairDepth, width - c); ++i) channels[i] = row[i * from.channel];
  return _mm512_load_si512(channels);
}

HWY_INLINE void TransposeQuarters(const __m512i (&a)[16], int i, BFloat16* to) {
  const __m512i even01 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88), odd01 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
  const __m512i even23 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
  const __m512i odd23 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xdd);
  _mm512_store_si512(to + (i + 0) * 2 * kPairColumns, _mm512_shuffle_i32x4(even01, even23, 0x88));
  _mm512_store_si512(to + (i + 4) * 2 * kPairColumns, _mm512_shuffle_i32x4(odd01, odd23, 0x88));
  _mm512_store_si512(to + (i + 8) * 2 * kPairColumns, _mm512_shuffle_i32x4(even01, even23, 0xdd));
  _mm512_store_si512(to + (i + 12) * 2 * kPairColumns, _mm512_shuffle_i32x4(odd01, odd23, 0xdd));
}

// Rows of 16 pairs become columns: the 4 x 4 squares within 128-bit blocks are turned, then the blocks.
HWY_INLINE void TransposePairs(__m512i (&a)[16], BFloat16* to) {
  __m512i b[16];
  QKV_UNROLL for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  QKV_UNROLL for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  QKV_UNROLL for (int i = 0; i < 4; ++i) TransposeQuarters(a, i, to);
}

void PackKeys(const Strided& k, int64_t first, int64_t count, int64_t d, float* packed) noexcept {
  BFloat16* to = reinterpret_cast<BFloat16*>(packed);
  for (int64_t key = 0; key < PaddedWidth(count, kPairDepth); key += kPairColumns) {
    for (int64_t c = 0; c < d; c += kPairDepth, to += kPairTile) {
      __m512i rows[kPairColumns];
      for (int64_t r = 0; r < kPairColumns; ++r) {
        rows[r] = key + r < count ? LoadChannels(k, first + key + r, c, d) : _mm512_setzero_si512();
      }
      TransposePairs(rows, to);
    }
  }
}

// With what is not finite replaced by zero, and noted.
HWY_INLINE __m512i KeepFinite(__m512i value, __mmask32& lost) {
  const __m512i magnitude = _mm512_and_si512(value, _mm512_set1_epi16(0x7fff));
  const __mmask32 not_finite = _mm512_cmpge_epu16_mask(magnitude, _mm512_set1_epi16(0x7f80));
  lost |= not_finite;
  return _mm512_maskz_mov_epi16(~not_finite, value);
}

Values PackValues(const Strided& v, int64_t first, int64_t count, int64_t dv, float* packed) noexcept {
  // Elements of two keys in turn: the lower 16 channels, the upper 16.
  HWY_ALIGN static constexpr uint16_t kLower[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                    8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i lower = _mm512_load_si512(kLower), upper = _mm512_add_epi16(lower, _mm512_set1_epi16(16));
  constexpr int64_t kGroup = kKeyTile / kPairDepth * kPairTile;  // from 16 channels to the next
  __mmask32 lost = 0;
  BFloat16* to = reinterpret_cast<BFloat16*>(packed);
  for (int64_t c = 0; c < dv; c += 2 * kPairColumns, to += 2 * kGroup) {
    for (int64_t j = 0; j < PaddedWidth(count, kPairDepth); j += 2) {
      __m512i even = _mm512_setzero_si512(), odd = even;
      if (j < count) even = KeepFinite(LoadChannels(v, first + j, c, dv), lost);
      if (j + 1 < count) odd = KeepFinite(LoadChannels(v, first + j + 1, c, dv), lost);
      BFloat16* pair = to + j * kPairColumns;
      _mm512_store_si512(pair, _mm512_permutex2var_epi16(even, lower, odd));
      _mm512_store_si512(pair + kGroup, _mm512_permutex2var_epi16(even, upper, odd));
    }
  }
  return lost == 0 ? Values::kFinite : Values::kSomeNotFinite;
}

}  // namespace

PackKernels PairPackTable() { return {2 * kPairColumns, kPairColumns, &PackKeys, &PackValues, kPairDepth, 2}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
#if HWY_TARGETS & HWY_AVX3
PackKernels PairPackKernels() { return N_AVX3::PairPackTable(); }
#else
PackKernels PairPackKernels() { return {}; }
#endif
}  // namespace qkv
#endif
