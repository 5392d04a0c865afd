// Packing keys and values of any type into triple tiles (kernels/triples.h).
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/load.h"
#include "kernels/triples.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pack_triples.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/keys-inl.h"
#include "kernels/triple_products-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kLanes = 16;

// 16 of a row's numbers from channel c on, zeros from `width` on.
HWY_INLINE __m512 LoadSome(const float* row, int64_t c, int64_t width) {
  if (HWY_LIKELY(c + kLanes <= width)) return _mm512_loadu_ps(row + c);
  return _mm512_maskz_loadu_ps(FirstOf16(std::max<int64_t>(width - c, 0)), row + c);
}

// Rows of a strip of channels as floats; those past the real ones are zeros.
template <class T, int64_t kRows>
class StripRows {
 public:
  StripRows(const Strided& from, int64_t first, int64_t real, int64_t c, int64_t strip) {
    HWY_ALIGN static constexpr float kZeros[kStrip] = {};
    for (int64_t r = 0; r < kRows; ++r) {
      row_[r] = r < real ? KeyAsFloats<T>(from, first + r, c, strip, buffer_[r]) : kZeros;
    }
  }
  const float* operator[](int64_t r) const { return row_[r]; }

 private:
  HWY_ALIGN float buffer_[kRows][kStrip];
  const float* row_[kRows];
};

// 32 channels of 16 keys to a triple tile: a pair is two channels of a key. Returns which lanes had odd ones.
template <class Rows>
HWY_INLINE __mmask16 TurnKeys(const Rows& rows, int64_t c, int64_t width, BFloat16* to) {
  __m512i parts[kTripleParts][kPairColumns];
  __mmask16 odd = 0;
  QKV_UNROLL for (int64_t r = 0; r < kPairColumns; ++r) {
    const __m512 first = LoadSome(rows[r], c, width), second = LoadSome(rows[r], c + kLanes, width);
    odd |= OddOnes<kLeastScored>(first) | OddOnes<kLeastScored>(second);
    const Triple a(first), b(second);
    QKV_UNROLL for (int64_t p = 0; p < kTripleParts; ++p) parts[p][r] = SideBySide(a.part[p], b.part[p]);
  }
  QKV_UNROLL for (int64_t p = 0; p < kTripleParts; ++p)
      TransposePairs(parts[p], to + p * kPairTile, 2 * kPairColumns);
  return odd;
}

template <class T>
Values PackKeys(const Strided& k, int64_t first, int64_t count, int64_t d, float* packed) noexcept {
  const int64_t steps = PaddedWidth(d, kPairDepth) / kPairDepth;
  auto* to = reinterpret_cast<BFloat16*>(packed);
  __mmask16 odd = 0;
  for (int64_t key = 0; key < PaddedWidth(count, 2 * kPairColumns);
       key += kPairColumns, to += steps * kTripleTile) {
    for (int64_t c = 0; c < d; c += kStrip) {
      const int64_t strip = std::min(kStrip, d - c);
      const StripRows<T, kPairColumns> rows(k, first + key, count - key, c, strip);
      for (int64_t at = 0; at < strip; at += kPairDepth) {
        odd |= TurnKeys(rows, at, strip, to + (c + at) / kPairDepth * kTripleTile);
      }
    }
  }
  return odd == 0 ? Values::kFinite : Values::kSomeNotFinite;
}

HWY_INLINE __m512 ZeroWhere(__mmask16 mask, __m512 number) {
  return _mm512_mask_mov_ps(number, mask, _mm512_setzero_ps());
}

template <class T>
Values PackValues(const Strided& v, int64_t first, int64_t count, int64_t dv, float* packed) noexcept {
  constexpr int64_t kGroup = kKeyTile / kPairDepth * kTripleTile;  // from 16 channels to the next
  auto* to = reinterpret_cast<BFloat16*>(packed);
  __mmask16 odd = 0;
  for (int64_t key = 0; key < PaddedWidth(count, kPairDepth); key += kPairDepth, to += kTripleTile) {
    for (int64_t c = 0; c < dv; c += kStrip) {
      const int64_t strip = std::min(kStrip, dv - c);
      const StripRows<T, kPairDepth> rows(v, first + key, count - key, c, strip);
      for (int64_t at = 0; at < PaddedWidth(strip, 2 * kPairColumns); at += kPairColumns) {
        BFloat16* tile = to + (c + at) / kPairColumns * kGroup;
        for (int64_t i = 0; i < kPairColumns; ++i, tile += 2 * kPairColumns) {
          const __m512 even = LoadSome(rows[i], at, strip), other = LoadSome(rows[kPairColumns + i], at, strip);
          const __mmask16 odd_even = OddOnes<kLeastWeighed>(even), odd_other = OddOnes<kLeastWeighed>(other);
          odd |= odd_even | odd_other;
          StoreTripleColumns(ZeroWhere(odd_even, even), ZeroWhere(odd_other, other), tile);
        }
      }
    }
  }
  return odd == 0 ? Values::kFinite : Values::kSomeNotFinite;
}

Values PackKeysOfAnyType(const Strided& k, int64_t first, int64_t count, int64_t d, float* packed) noexcept {
  return WithType(k.dtype, [&](auto type) { return PackKeys<decltype(type)>(k, first, count, d, packed); });
}

Values PackValuesOfAnyType(const Strided& v, int64_t first, int64_t count, int64_t dv, float* packed) noexcept {
  return WithType(v.dtype, [&](auto type) { return PackValues<decltype(type)>(v, first, count, dv, packed); });
}

}  // namespace

PackKernels TriplePackTable() {
  return {2 * kPairColumns,     kPairColumns, &PackKeysOfAnyType,
          &PackValuesOfAnyType, kPairDepth,   3 * sizeof(BFloat16)};
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
namespace {

bool HasTriple(double number, int least) {
  const double size = std::abs(number);
  return size == 0 || (size >= std::ldexp(1.0, least) && size <= std::ldexp(1.0, kMostOfTriples));
}

}  // namespace

bool HasTriples(const KeyValues& key_values, int64_t j, const Layout& layout) {
  for (int64_t c = 0; c < layout.d; ++c) {
    if (!HasTriple(LoadDouble(key_values.k, j, c), kLeastScored)) return false;
  }
  for (int64_t c = 0; c < layout.dv; ++c) {
    if (!HasTriple(LoadDouble(key_values.v, j, c), kLeastWeighed)) return false;
  }
  return true;
}

#if HWY_TARGETS & HWY_AVX3
PackKernels TriplePackKernels() { return N_AVX3::TriplePackTable(); }
#else
PackKernels TriplePackKernels() { return {}; }
#endif
}  // namespace qkv
#endif
