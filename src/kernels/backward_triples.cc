// The fused backward pass for float32 on AMX: products of triples (kernels/triple_products-inl.h), as near as
// float32's own and twice as fast.
//
// No triple stands for what is not finite, very large or, but for zero, very small: rows with such a number,
// and rows that see a key with one, are left to kernels/backward.cc (OddRow, OddKey).
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/backward.h"
#include "kernels/triples.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward_triples.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/backward_tiles-inl.h"
#include "kernels/keys-inl.h"
#include "kernels/math-inl.h"
#include "kernels/score-inl.h"
#include "kernels/triple_products-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

// Operands are below 2^20, so that dP is below 2^56 for up to 65,536 channels, dS times kUnit below 2^80, and
// their sums far from infinity.
constexpr int kMostExponent = 20;
constexpr float kMostDelta = 0x1p56f;

// `count` numbers of q's type, times the factor, to triples whose parts are `padded` apart, with zeros up to
// there.
void LoadTriples(const Layout& layout, const void* from, int64_t channel, int64_t count, float factor,
                 int64_t padded, BFloat16* to) {
  HWY_ALIGN float buffer[kStrip];
  const int64_t size = static_cast<int64_t>(SizeOf(layout.q_dtype));
  for (int64_t c = 0; c < padded; c += kStrip) {
    const int64_t real = std::clamp<int64_t>(count - c, 0, kStrip), width = std::min(kStrip, padded - c);
    LoadRow(layout, static_cast<const std::byte*>(from) + c * channel * size, channel, real, factor, buffer);
    std::fill(buffer + real, buffer + width, 0.0f);
    for (int64_t i = 0; i < width; i += kPairDepth) {
      StoreTriples(_mm512_load_ps(buffer + i), _mm512_load_ps(buffer + i + 16), to + c + i, padded);
    }
  }
}

// As kernels/backward_tiles-inl.h wants them.
struct Triples {
  using Products = TripleProducts;
  static constexpr int64_t kGroups = kMaxBlockRows / kPairGroupRows;  // blocks are those of kernels/backward.cc
  static constexpr int64_t kChunk = 128;
  // The smallest weights, too, have all three parts: what is below 2^-126 with all its digits is lost in tiles.
  static constexpr float kUnit = 0x1p24f;
  static constexpr Exponent kExponent = Exponent::kOneMultiplication;
  static constexpr float kLargest = kLargestBase;

  // All that follows from dO is linear in it, so the rows' roundings are made good there.
  static void LoadRows(const BackwardBlock& block, int64_t n, BFloat16* query, int64_t d, BFloat16* dout,
                       int64_t dv) {
    const Layout& layout = *block.block.layout;
    const BackwardRow& row = block.rows[n];
    LoadTriples(layout, block.block.rows[n].q, layout.q_channel, layout.d, 1.0f, d, query);
    LoadTriples(layout, row.dout, block.dout_channel, layout.dv, row.statistic.lost, dv, dout);
  }

  // As Exp2 (kernels/math-inl.h) has it, times kUnit.
  static HWY_INLINE Gradients GradientsOf(__m512 s, __m512 dp, const ChunkRow& row, __m512 factor) {
    constexpr int kNearest = 8;  // whole number, without exceptions
    const __m512 x = _mm512_fmsub_ps(s, factor, _mm512_set1_ps(row.shift));
    const __m512 fraction = _mm512_reduce_ps(x, kNearest);
    const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);  // or NaN
    const VecF32 power = PowerOfFraction(F32(), VecF32{fraction}, kUnit);
    const __m512 weight = _mm512_maskz_scalef_ps(normal, power.raw, _mm512_sub_ps(x, fraction));
    // A blocked key's dP may be anything.
    const __mmask16 seen = _mm512_cmp_ps_mask(s, _mm512_set1_ps(kBlocked), _CMP_NEQ_UQ);
    return {weight, _mm512_maskz_mul_ps(seen, weight, _mm512_sub_ps(dp, _mm512_set1_ps(row.delta)))};
  }

  // A row's dS; key i and key 16 + i are a pair, as in packed values.
  static HWY_INLINE void StoreInTurn(const Gradients (&row)[2], BFloat16* to, int64_t part) {
    const Triple a(row[0].dscore), b(row[1].dscore);
    QKV_UNROLL for (int64_t p = 0; p < kTripleParts; ++p) {
      _mm512_store_si512(to + p * part, InTurn(a.part[p], b.part[p]));
    }
  }

  static HWY_INLINE void Store(const Gradients (&even)[2], const Gradients (&odd)[2], const PairTargets& to,
                               int64_t j) {
    QKV_UNROLL for (int n = 0; n < 2; ++n) {
      const int64_t tile = (j / kPairColumns + n) * to.next_keys;
      StoreTripleColumns(even[n].weight, odd[n].weight, to.weights + tile);
      StoreTripleColumns(even[n].dscore, odd[n].dscore, to.dscores + tile);
    }
    StoreInTurn(even, to.dscore_row + j, to.next_part);
    StoreInTurn(odd, to.dscore_row + to.next_row + j, to.next_part);
  }
};

bool AnyOdd(const float* values, int64_t count) {
  __mmask16 odd = 0;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) odd |= OddOnes<kMostExponent>(_mm512_loadu_ps(values + i));
  if (i < count) odd |= OddOnes<kMostExponent>(_mm512_maskz_loadu_ps(FirstOf16(count - i), values + i));
  return odd != 0;
}

template <class T>
bool AnyOddOf(const Strided& from, int64_t key, int64_t width) {
  HWY_ALIGN float buffer[kStrip];
  for (int64_t c = 0; c < width; c += kStrip) {
    const int64_t strip = std::min(kStrip, width - c);
    if (AnyOdd(KeyAsFloats<T>(from, key, c, strip, buffer), strip)) return true;
  }
  return false;
}

bool AnyOdd(const Strided& from, int64_t key, int64_t width) {
  return from.dtype == DType::kF16 ? AnyOddOf<Float16>(from, key, width) : AnyOddOf<float>(from, key, width);
}

bool OddKey(const Layout& layout, const KeyValues& from, int64_t key) noexcept {
  return AnyOdd(from.k, key, layout.d) || AnyOdd(from.v, key, layout.dv);
}

bool OddRow(const BackwardBlock& block, int64_t r) noexcept {
  const Layout& layout = *block.block.layout;
  const Row& row = block.block.rows[r];
  const BackwardRow& own = block.rows[r];
  if (row.first >= row.last) return false;
  return !std::isfinite(own.statistic.base) || !(std::abs(own.statistic.delta) <= kMostDelta) ||
         AnyOdd({row.q, layout.q_dtype, 0, layout.q_channel}, 0, layout.d) ||
         AnyOdd({own.dout, layout.q_dtype, 0, block.dout_channel}, 0, layout.dv);
}

}  // namespace

BackwardKernels BackwardTripleTable() {
  BackwardKernels kernels = TileBackward<Triples>::Table(TriplePackKernels());
  kernels.odd_row = &OddRow;
  kernels.odd_key = &OddKey;
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
#if HWY_TARGETS & HWY_AVX3
BackwardKernels TripleBackwardKernels() { return N_AVX3::BackwardTripleTable(); }
#else
BackwardKernels TripleBackwardKernels() { return {}; }
#endif
}  // namespace qkv
#endif
