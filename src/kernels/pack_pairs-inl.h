// Keys and values as pair tiles (kernels/pairs.h), for whole tiles of keys or a few.

#if defined(QKV_KERNELS_PACK_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PACK_PAIRS_INL_H_
#undef QKV_KERNELS_PACK_PAIRS_INL_H_
#else
#define QKV_KERNELS_PACK_PAIRS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/pair_transpose-inl.h"
#include "kernels/pairs.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// The low `count` of 32 elements.
HWY_INLINE __mmask32 FirstOf32(int64_t count) {
  return count >= kPairDepth ? ~__mmask32{0} : (__mmask32{1} << std::max<int64_t>(count, 0)) - 1;
}

// Where 16 keys lie, and the 16 that stand kAhead keys on: a line of those is asked for with every line that is read,
// so that memory is never idle. A pointer past the end is only a hint.
inline constexpr int64_t kAhead = 32;
struct PairRows {
  const BFloat16* row[kPairColumns];
  const BFloat16* ahead[kPairColumns];

  // The last key stands for those past the end.
  PairRows(const Strided& from, int64_t first, int64_t count) {
    for (int64_t r = 0; r < kPairColumns; ++r) {
      row[r] = from.Key<BFloat16>(first + std::min(r, count - 1));
      ahead[r] = from.Key<BFloat16>(first + kAhead + r);
    }
  }
};

// Channels c ... c + 31 of a key at `row`, zeros from channel `width` on.
HWY_INLINE __m512i LoadChannels(const BFloat16* row, int64_t channel, int64_t c, int64_t width) {
  if (HWY_LIKELY(channel == 1)) {
    if (HWY_LIKELY(c + kPairDepth <= width)) return _mm512_loadu_si512(row + c);
    return _mm512_maskz_loadu_epi16(FirstOf32(width - c), row + c);
  }
  HWY_ALIGN BFloat16 channels[kPairDepth] = {};
  for (int64_t i = 0; i < std::min(kPairDepth, width - c); ++i) channels[i] = row[(c + i) * channel];
  return _mm512_load_si512(channels);
}

inline void PackPairKeys(const Strided& k, int64_t first, int64_t count, int64_t d, BFloat16* to) {
  for (int64_t key = 0; key < PaddedWidth(count, kPairDepth); key += kPairColumns) {
    const int64_t real = std::clamp<int64_t>(count - key, 0, kPairColumns);
    const PairRows rows(k, first + std::min(key, count - 1), std::max<int64_t>(real, 1));
    for (int64_t c = 0; c < d; c += kPairDepth, to += kPairTile) {
      __m512i a[kPairColumns];
      QKV_UNROLL for (int r = 0; r < kPairColumns; ++r) a[r] = LoadChannels(rows.row[r], k.channel, c, d);
      if (HWY_UNLIKELY(real < kPairColumns)) {
        for (int64_t r = real; r < kPairColumns; ++r) a[r] = _mm512_setzero_si512();
      }
      TransposePairs(a, to, 2 * kPairColumns);
      QKV_UNROLL for (int r = 0; r < kPairColumns; ++r) __builtin_prefetch(rows.ahead[r] + c);
    }
  }
}

// 16 keys of values, 32 channels of them, to pair tiles of which the second 16 channels' stand `group` elements on.
// Returns the largest magnitude's bits in each lane.
HWY_INLINE __m512i PackSquare(const PairRows& rows, int64_t real, int64_t channel, int64_t c, int64_t dv, BFloat16* to,
                              int64_t group) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  __m512i largest = _mm512_setzero_si512();
  QKV_UNROLL for (int r = 0; r < kPairColumns; r += 2) {
    __m512i even = LoadChannels(rows.row[r], channel, c, dv), odd = LoadChannels(rows.row[r + 1], channel, c, dv);
    if (HWY_UNLIKELY(r + 1 >= real)) {
      odd = _mm512_setzero_si512();
      if (r >= real) even = odd;
    }
    __builtin_prefetch(rows.ahead[r] + c);
    __builtin_prefetch(rows.ahead[r + 1] + c);
    largest = _mm512_max_epu16(largest, _mm512_max_epu16(_mm512_and_si512(even, magnitude),
                                                         _mm512_and_si512(odd, magnitude)));
    _mm512_store_si512(to + r * kPairColumns, PairLower(even, odd));
    _mm512_store_si512(to + r * kPairColumns + group, PairUpper(even, odd));
  }
  return largest;
}

// Zeros in place of what is not finite in packed values.
inline void DropNotFinite(int64_t keys, int64_t dv, BFloat16* packed, int64_t group) {
  __mmask32 lost = 0;
  for (int64_t c = 0; c < dv; c += kPairColumns, packed += group) {
    for (int64_t j = 0; j < keys * kPairColumns; j += 2 * kPairColumns) {
      _mm512_store_si512(packed + j, KeepFinite(_mm512_load_si512(packed + j), lost));
    }
  }
}

// group: elements from 16 channels to the next.
inline Values PackPairValues(const Strided& v, int64_t first, int64_t count, int64_t dv, BFloat16* to, int64_t group) {
  const int64_t keys = PaddedWidth(count, kPairDepth);
  __m512i largest = _mm512_setzero_si512();
  for (int64_t j = 0; j < keys; j += kPairColumns) {
    const int64_t real = std::clamp<int64_t>(count - j, 0, kPairColumns);
    const PairRows rows(v, first + std::min(j, count - 1), std::max<int64_t>(real, 1));
    for (int64_t c = 0; c < dv; c += 2 * kPairColumns) {
      BFloat16* square = to + c / kPairColumns * group + j * kPairColumns;
      largest = _mm512_max_epu16(largest, PackSquare(rows, real, v.channel, c, dv, square, group));
    }
  }
  __mmask32 lost = 0;
  KeepFinite(largest, lost);
  if (lost == 0) return Values::kFinite;
  DropNotFinite(keys, PaddedWidth(dv, 2 * kPairColumns), to, group);
  return Values::kSomeNotFinite;
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
