// O += P V for few rows on processors with AMX, from the values as they lie: turning them into pairs of keys
// for the tiles takes longer than multiplying them by a few rows in float32. The bits are tdpbf16ps's: of 32
// keys a step, the even ones are one chain of fused multiply-adds from zero and the odd ones another, whose sum
// is added to O; denormal numbers count as zeros, as operands and as results.

#if defined(QKV_KERNELS_PAIR_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PAIR_VALUES_INL_H_
#undef QKV_KERNELS_PAIR_VALUES_INL_H_
#else
#define QKV_KERNELS_PAIR_VALUES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/denormals-inl.h"
#include "kernels/multiply-inl.h"
#include "kernels/pairs.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {

// Weights and values of some keys, a multiple of 32, and the rows of O that they are added to.
struct FewRows {
  const float* weights;  // (rows, keys), whole numbers of bfloat16
  int64_t weight_stride;
  const BFloat16* values;  // of the first key, contiguous channels
  int64_t value_stride;
  int64_t ahead;  // keys on from each, of which lines are asked for
  int64_t keys;
  float* out;
  int64_t out_stride;
};

// One step of 32 channels: the even ones, then the odd ones.
struct ChannelPairs {
  __m512 even, odd;
};

HWY_INLINE ChannelPairs LoadPairs(const BFloat16* from) {
  const __m512i pairs = _mm512_loadu_si512(from);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}

// out[0 ... 31] += channels.
HWY_INLINE void AddChannels(__m512 even, __m512 odd, float* out) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  const __m512 first = _mm512_permutex2var_ps(even, low, odd), second = _mm512_permutex2var_ps(even, high, odd);
  _mm512_storeu_ps(out, _mm512_add_ps(_mm512_loadu_ps(out), first));
  _mm512_storeu_ps(out + 16, _mm512_add_ps(_mm512_loadu_ps(out + 16), second));
}

// 32 kVectors channels, from c on. Sums fill 4 kRows kVectors registers.
template <int kRows, int kVectors>
HWY_NOINLINE void AddFewRows(const FewRows& p, int64_t c) {
  for (int64_t step = 0; step < p.keys; step += kPairDepth) {
    ChannelPairs sum[2][kRows][kVectors];  // of even and odd keys
    QKV_UNROLL for (int parity = 0; parity < 2; ++parity) {
      QKV_UNROLL for (int r = 0; r < kRows; ++r) {
        QKV_UNROLL for (int n = 0; n < kVectors; ++n) {
          sum[parity][r][n] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
        }
      }
    }
    const BFloat16* values = p.values + step * p.value_stride + c;
    const float* weights = p.weights + step;
    for (int64_t key = 0; key < kPairDepth; key += 2) {
      QKV_UNROLL for (int parity = 0; parity < 2; ++parity, values += p.value_stride, ++weights) {
        ChannelPairs value[kVectors];
        QKV_UNROLL for (int n = 0; n < kVectors; ++n) {
          value[n] = LoadPairs(values + n * kPairDepth);
          __builtin_prefetch(values + p.ahead * p.value_stride + n * kPairDepth);
        }
        QKV_UNROLL for (int r = 0; r < kRows; ++r) {
          const __m512 weight = _mm512_set1_ps(weights[r * p.weight_stride]);
          QKV_UNROLL for (int n = 0; n < kVectors; ++n) {
            ChannelPairs& to = sum[parity][r][n];
            to.even = _mm512_fmadd_ps(weight, value[n].even, to.even);
            to.odd = _mm512_fmadd_ps(weight, value[n].odd, to.odd);
          }
        }
      }
    }
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      QKV_UNROLL for (int n = 0; n < kVectors; ++n) {
        const ChannelPairs &even = sum[0][r][n], &odd = sum[1][r][n];
        AddChannels(_mm512_add_ps(even.even, odd.even), _mm512_add_ps(even.odd, odd.odd),
                    p.out + r * p.out_stride + c + n * kPairDepth);
      }
    }
  }
}

template <int kRows>
inline void AddFewRows(const FewRows& p, int64_t channels) {
  constexpr int kVectors = 4 / kRows;
  int64_t c = 0;
  for (; c + kVectors * kPairDepth <= channels; c += kVectors * kPairDepth) AddFewRows<kRows, kVectors>(p, c);
  for (; c < channels; c += kPairDepth) AddFewRows<kRows, 1>(p, c);
}

// At most so many rows are as few as this pays for.
inline constexpr int64_t kFewRows = 4;

// channels: a multiple of 32.
inline void AddFewRows(const FewRows& p, int64_t rows, int64_t channels) {
  const DenormalsAreZeros mode;
  switch (rows) {
    case 1: return AddFewRows<1>(p, channels);
    case 2: return AddFewRows<2>(p, channels);
    case 3: return AddFewRows<3>(p, channels);
    default: return AddFewRows<4>(p, channels);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES

#endif  // include guard
