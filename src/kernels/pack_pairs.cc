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
#include "kernels/pair_transpose-inl.h"

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

void PackKeys(const Strided& k, int64_t first, int64_t count, int64_t d, float* packed) noexcept {
  BFloat16* to = reinterpret_cast<BFloat16*>(packed);
  for (int64_t key = 0; key < PaddedWidth(count, kPairDepth); key += kPairColumns) {
    for (int64_t c = 0; c < d; c += kPairDepth, to += kPairTile) {
      __m512i rows[kPairColumns];
      for (int64_t r = 0; r < kPairColumns; ++r) {
        rows[r] = key + r < count ? LoadChannels(k, first + key + r, c, d) : _mm512_setzero_si512();
      }
      TransposePairs(rows, to, 2 * kPairColumns);
    }
  }
}

Values PackValues(const Strided& v, int64_t first, int64_t count, int64_t dv, float* packed) noexcept {
  constexpr int64_t kGroup = kKeyTile / kPairDepth * kPairTile;  // from 16 channels to the next
  __mmask32 lost = 0;
  BFloat16* to = reinterpret_cast<BFloat16*>(packed);
  for (int64_t c = 0; c < dv; c += 2 * kPairColumns, to += 2 * kGroup) {
    for (int64_t j = 0; j < PaddedWidth(count, kPairDepth); j += 2) {
      __m512i even = _mm512_setzero_si512(), odd = even;
      if (j < count) even = KeepFinite(LoadChannels(v, first + j, c, dv), lost);
      if (j + 1 < count) odd = KeepFinite(LoadChannels(v, first + j + 1, c, dv), lost);
      BFloat16* pair = to + j * kPairColumns;
      _mm512_store_si512(pair, PairLower(even, odd));
      _mm512_store_si512(pair + kGroup, PairUpper(even, odd));
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
