// Products of float32 on tiles of bfloat16. A number is a triple of bfloat16 numbers whose sum it is; of the
// nine products of two triples' parts the six larger ones are added up in float32. The other three are below
// 2^-22 of the whole, 2^-26 on average: less than rounding each product to float32 would cost. tdpbf16ps adds
// 16 exact products of each parity before the sum meets c, so that results come out nearer than a chain of
// fused multiply-adds brings them (tests/kernels holds both to the product in double precision).

#if defined(QKV_KERNELS_TRIPLE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_TRIPLE_PRODUCTS_INL_H_
#undef QKV_KERNELS_TRIPLE_PRODUCTS_INL_H_
#else
#define QKV_KERNELS_TRIPLE_PRODUCTS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/pair_products-inl.h"
#include "kernels/pair_transpose-inl.h"
#include "kernels/pairs.h"
#include "kernels/triples.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {

inline constexpr int64_t kTripleParts = 3;
inline constexpr int64_t kTripleTile = kTripleParts * kPairTile;  // elements: the pair tiles of the three parts

// 16 numbers' parts, largest first, each in the upper half of its lane above zeros. Their sum is the number
// itself where IsPlain says so.
struct Triple {
  __m512i part[kTripleParts];

  HWY_INLINE explicit Triple(__m512 number) {
    const __m512i upper = _mm512_set1_epi32(-65536), half = _mm512_set1_epi32(0x8000);
    part[0] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(number), half), upper);
    const __m512 rest = _mm512_sub_ps(number, _mm512_castsi512_ps(part[0]));
    part[1] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(rest), half), upper);
    part[2] = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(part[1])));
  }
};

// Numbers that triples do not stand for: infinities and NaN, magnitudes that might overflow where the parts'
// products are added up, and those but zero below 2^kLeastExponent, whose low part or products tdpbf16ps might
// take for zero.
template <int kLeastExponent>
HWY_INLINE __mmask16 OddOnes(__m512 number) {
  constexpr int32_t kLeast = (127 + kLeastExponent) << 23, kMost = (127 + kMostOfTriples) << 23;
  const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(number), _mm512_set1_epi32(0x7fffffff));
  const __m512i above = _mm512_sub_epi32(magnitude, _mm512_set1_epi32(kLeast));
  return _mm512_cmpgt_epu32_mask(above, _mm512_set1_epi32(kMost - kLeast)) &
         _mm512_test_epi32_mask(magnitude, magnitude);
}

// Parts of 32 numbers side by side: of the 16 in `first`, then those in `second`.
HWY_ALIGN inline constexpr uint16_t kUpperHalves[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                        23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                        45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
HWY_INLINE __m512i SideBySide(__m512i first, __m512i second) {
  return _mm512_permutex2var_epi16(first, _mm512_load_si512(kUpperHalves), second);
}

// Parts of 16 numbers of each, in turn: a row of a pair tile. What is left of a denormal low part is cut off.
HWY_INLINE __m512i InTurn(__m512i even, __m512i odd) {
  constexpr int kFirstOrBoth = 0xf8;  // a | (b & c)
  return _mm512_ternarylogic_epi32(_mm512_srli_epi32(even, 16), odd, _mm512_set1_epi32(-65536), kFirstOrBoth);
}

// 32 numbers of a row to its parts, `part` elements apart.
HWY_INLINE void StoreTriples(__m512 first, __m512 second, BFloat16* to, int64_t part) {
  const Triple a(first), b(second);
  QKV_UNROLL for (int64_t p = 0; p < kTripleParts; ++p) {
    _mm512_storeu_si512(to + p * part, SideBySide(a.part[p], b.part[p]));
  }
}

// 16 columns of a pair of rows (an even and the odd after it) to a triple tile, whose row of pairs begins at
// `to`.
HWY_INLINE void StoreTripleColumns(__m512 even, __m512 odd, BFloat16* to) {
  const Triple a(even), b(odd);
  QKV_UNROLL for (int64_t p = 0; p < kTripleParts; ++p) {
    _mm512_storeu_si512(to + p * kPairTile, InTurn(a.part[p], b.part[p]));
  }
}

// As TileProducts (AMX), of triples: a's parts are a_part apart, b's tiles are triple tiles.
class TripleProducts : public TileProducts {
 public:
  static constexpr int64_t kParts = kTripleParts;
  HWY_INLINE void Run(const PairProduct& p) const {
    Begin(p);
    for (int64_t step = 0; step < p.steps; ++step) MultiplyStep(p, step);
    End(p);
  }

  // Asks on the way for what follows b's tiles of each step, from the second-level cache.
  HWY_INLINE void RunAhead(const PairProduct& p) const {
    const BFloat16* next[2] = {p.b[0] + kTripleTile, p.b[1] + kTripleTile};
    int column = 0;
    RunAmong(p, [&]() HWY_ATTR {
      QKV_UNROLL for (int64_t line = 0; line < kPairTile; line += 32) __builtin_prefetch(next[column] + line);
      next[column] += kPairTile;
      column = 1 - column;
    });
  }

  // Calls between() kBetween times a step.
  static constexpr int64_t kBetween = 6;
  template <class Between>
  HWY_INLINE void RunAmong(const PairProduct& p, const Between& between) const {
    Begin(p);
    for (int64_t step = 0; step < p.steps; ++step) MultiplyStep(p, step, between);
    End(p);
  }

 private:
  // High by low, high by middle, middle by middle, middle by high, low by high, high by high: each a step from
  // the one before, so that one side's registers stay, and the largest comes last.
  template <class Between>
  static HWY_INLINE void MultiplyStep(const PairProduct& p, int64_t step, const Between& between) {
    const BFloat16* a = p.a + step * kPairDepth;
    const BFloat16* b[2] = {p.b[0] + step * kTripleTile, p.b[1] + step * kTripleTile};
    const bool both = p.rows > 16;
    LoadRows(p, a, both), LoadColumns(b, 2), Multiply(both), between();
    LoadColumns(b, 1), Multiply(both), between();
    LoadRows(p, a + p.a_part, both), Multiply(both), between();
    LoadColumns(b, 0), Multiply(both), between();
    LoadRows(p, a + 2 * p.a_part, both), Multiply(both), between();
    LoadRows(p, a, both), Multiply(both), between();
  }
  static HWY_INLINE void MultiplyStep(const PairProduct& p, int64_t step) {
    MultiplyStep(p, step, [] {});
  }

  static HWY_INLINE void LoadRows(const PairProduct& p, const BFloat16* a, bool both) {
    Load<4>(a, p.a_stride * 2);
    if (both) Load<5>(a + 16 * p.a_stride, p.a_stride * 2);
  }
  static HWY_INLINE void LoadColumns(const BFloat16* const (&b)[2], int64_t part) {
    Load<6>(b[0] + part * kPairTile, 64);
    Load<7>(b[1] + part * kPairTile, 64);
  }
  static HWY_INLINE void Multiply(bool both) {
    Dot<0, 4, 6>(), Dot<1, 4, 7>();
    if (both) Dot<2, 5, 6>(), Dot<3, 5, 7>();
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES

#endif  // include guard
