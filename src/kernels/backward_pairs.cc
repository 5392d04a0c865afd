// The fused backward pass for bfloat16 on processors that multiply pairs: exact products of bfloat16 summed in
// float32, for which P and dS are rounded to bfloat16.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/backward.h"
#include "kernels/pairs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward_pairs.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/backward_tiles-inl.h"
#include "kernels/pair_power-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

void CopyRow(const void* from, int64_t channel, int64_t count, int64_t padded, BFloat16* to) {
  const BFloat16* elements = static_cast<const BFloat16*>(from);
  if (channel == 1)
    std::copy_n(elements, count, to);
  else
    for (int64_t c = 0; c < count; ++c) to[c] = elements[c * channel];
  std::fill(to + count, to + padded, BFloat16{});
}

// Two vectors of floats, rounded, as 16 pairs; and as 32 elements in a row.
HWY_INLINE __m512i InRow(__m512 first, __m512 second) {
  const __m512bh rounded = _mm512_cvtne2ps_pbh(second, first);
  __m512i bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  return bits;
}
HWY_INLINE __m512i AsPairs(__m512 even, __m512 odd) {
  HWY_ALIGN static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                    21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                    11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), InRow(even, odd));
}

// As kernels/backward_tiles-inl.h wants them.
template <class Multiplier>
struct Pairs {
  using Products = Multiplier;
  static constexpr int64_t kGroups = 4;  // sums over a block's rows are four steps deep
  static constexpr int64_t kChunk = 64;  // at D = 64 all that a chunk touches is 48 KiB
  static constexpr float kUnit = 1;
  static constexpr Exponent kExponent = Exponent::kSubtraction;
  // Beyond it, the rounding of base * log2 e would count beside a weight's own rounding.
  static constexpr float kLargest = 1024.0f;

  static void LoadRows(const BackwardBlock& block, int64_t n, BFloat16* query, int64_t d, BFloat16* dout,
                       int64_t dv) {
    const Layout& layout = *block.block.layout;
    CopyRow(block.block.rows[n].q, layout.q_channel, layout.d, d, query);
    CopyRow(block.rows[n].dout, block.dout_channel, layout.dv, dv, dout);
  }

  static HWY_INLINE Gradients GradientsOf(__m512 s, __m512 dp, const ChunkRow& row, __m512 factor) {
    const __m512 x = _mm512_fmsub_ps(s, factor, _mm512_set1_ps(row.shift));
    const __m512 weight = _mm512_scalef_ps(PowerForWeight(_mm512_reduce_ps(x, kFloor)), x);
    // A blocked key's dP may be anything.
    const __mmask16 seen = _mm512_cmp_ps_mask(s, _mm512_set1_ps(kBlocked), _CMP_NEQ_UQ);
    return {weight, _mm512_maskz_mul_ps(seen, weight, _mm512_sub_ps(dp, _mm512_set1_ps(row.delta)))};
  }

  static HWY_INLINE void Store(const Gradients (&even)[2], const Gradients (&odd)[2], const PairTargets& to,
                               int64_t j) {
    QKV_UNROLL for (int n = 0; n < 2; ++n) {
      const int64_t tile = (j / kPairColumns + n) * to.next_keys;
      _mm512_store_si512(to.weights + tile, AsPairs(even[n].weight, odd[n].weight));
      _mm512_store_si512(to.dscores + tile, AsPairs(even[n].dscore, odd[n].dscore));
    }
    _mm512_store_si512(to.dscore_row + j, InRow(even[0].dscore, even[1].dscore));
    _mm512_store_si512(to.dscore_row + to.next_row + j, InRow(odd[0].dscore, odd[1].dscore));
  }
};

}  // namespace

BackwardKernels BackwardPairTable(Isa isa) {
  return isa == Isa::kAmx ? TileBackward<Pairs<TileProducts>>::Table(PairPackKernels())
                          : TileBackward<Pairs<DotProducts>>::Table(PairPackKernels());
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
#if HWY_TARGETS & HWY_AVX3
BackwardKernels PairBackwardKernelsFor(Isa isa) { return N_AVX3::BackwardPairTable(isa); }
#else
BackwardKernels PairBackwardKernelsFor(Isa) { return {}; }
#endif
}  // namespace qkv
#endif
