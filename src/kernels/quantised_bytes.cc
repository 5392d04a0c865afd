// Products of quantised rows with a split vector, on processors that multiply bytes (AVX-512's vpdpbusd): 64 weights
// are one register, where kernels/quantised.cc widens each of them to 16 bits first. Formats of one group a block.
#include <cstdint>

#include "kernels/quantised.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantised_bytes.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/multiply-inl.h"

#if HWY_TARGET == HWY_AVX3

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE __m128i Load16(const uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
HWY_INLINE __m256i Load32(const uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

// The half bytes of two blocks in the order of their elements. High ones stay where they are, as 16 times themselves:
// their sums have lanes of their own, which HighLanes divides at the end.
HWY_INLINE __m512i HalfBytes(const uint8_t* first, const uint8_t* second) {
  const __m512i low_high = _mm512_broadcast_i64x4(_mm256_set_epi64x(-0x0f0f0f0f0f0f0f10, -0x0f0f0f0f0f0f0f10,
                                                                    0x0f0f0f0f0f0f0f0f, 0x0f0f0f0f0f0f0f0f));
  const __m512i both =
      _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(Load16(first)), 0xff00, Load16(second));
  return _mm512_and_si512(both, low_high);
}
HWY_INLINE __m512 HighLanes(float low, float high) {
  return _mm512_mask_blend_ps(0xf0f0, _mm512_set1_ps(low), _mm512_set1_ps(high));
}

// Each format: two blocks' integers as unsigned bytes, what each is too large by, what each lane is too large by, and
// whether there is an offset. element = scale * (byte - zero) / lane + offset.
struct Q8_0Bytes {
  static constexpr int kBytes = 34;
  static constexpr bool kOffset = false, kZero = true;
  static HWY_INLINE __m512i Load(const uint8_t* first, const uint8_t* second) {
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(Load32(first + 2)), Load32(second + 2), 1);
    return _mm512_xor_si512(both, Zero());
  }
  static HWY_INLINE __m512i Zero() { return _mm512_set1_epi8(-128); }
  static HWY_INLINE __m512 Lanes() { return _mm512_set1_ps(1.0f); }
};

struct Q4_0Bytes {
  static constexpr int kBytes = 18;
  static constexpr bool kOffset = false, kZero = true;
  static HWY_INLINE __m512i Load(const uint8_t* first, const uint8_t* second) {
    return HalfBytes(first + 2, second + 2);
  }
  static HWY_INLINE __m512i Zero() { return _mm512_mask_set1_epi32(_mm512_set1_epi8(8), 0xf0f0, -0x7f7f7f80); }
  static HWY_INLINE __m512 Lanes() { return HighLanes(1.0f, 1.0f / 16); }
};

struct Q4_1Bytes {
  static constexpr int kBytes = 20;
  static constexpr bool kOffset = true, kZero = false;
  static HWY_INLINE __m512i Load(const uint8_t* first, const uint8_t* second) {
    return HalfBytes(first + 4, second + 4);
  }
  static HWY_INLINE __m512i Zero() { return _mm512_setzero_si512(); }
  static HWY_INLINE __m512 Lanes() { return HighLanes(1.0f, 1.0f / 16); }
};

// Two groups of the vector.
struct Pair {
  __m512i high, low;  // element = scale * (256 * high + low)
  __m512 scales;      // scale, sum, scale, sum, four times over
};

// 256 sum(w high) + sum(w low) of four neighbours in each lane, exact: weights are below 2^8, bytes of the vector
// within 2^7.
HWY_INLINE __m512i Products(__m512i w, const Pair& x) {
  const __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, x.high);
  return _mm512_dpbusd_epi32(_mm512_slli_epi32(high, 8), w, x.low);
}

// The scales and offsets of two blocks of each row times the vector's: those of row r in lanes 4 r to 4 r + 3.
template <int kRows>
HWY_INLINE __m512 BlockScales(const uint8_t* first, const uint8_t* second, int64_t row_bytes, const Pair& x) {
  __m256i halves = _mm256_setzero_si256();
  QKV_UNROLL for (int r = 0; r < kRows; ++r) {
    const auto at = [&](const uint8_t* block) HWY_ATTR { return _mm_loadu_si32(block + r * row_bytes); };
    halves = _mm256_mask_broadcastd_epi32(halves, static_cast<__mmask8>(1 << (2 * r)), at(first));
    halves = _mm256_mask_broadcastd_epi32(halves, static_cast<__mmask8>(2 << (2 * r)), at(second));
  }
  return _mm512_mul_ps(_mm512_cvtph_ps(halves), x.scales);
}

template <class Format, int kRows>
class RowSums {
 public:
  HWY_INLINE RowSums() : offsets_(_mm512_setzero_ps()) {
    QKV_UNROLL for (int r = 0; r < kRows; ++r) sums_[r] = _mm512_setzero_ps();
  }

  HWY_INLINE void Add(const uint8_t* first, const uint8_t* second, int64_t row_bytes, const Pair& x) {
    const __m512 scales = BlockScales<kRows>(first, second, row_bytes, x);
    if constexpr (Format::kOffset) offsets_ = _mm512_add_ps(offsets_, scales);
    const __m512i zero = Format::kZero ? Products(Format::Zero(), x) : _mm512_setzero_si512();
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      __m512i products = Products(Format::Load(first + r * row_bytes, second + r * row_bytes), x);
      if constexpr (Format::kZero) products = _mm512_sub_epi32(products, zero);
      const __m512i lanes = _mm512_mask_set1_epi32(_mm512_set1_epi32(4 * r), 0xff00, 4 * r + 2);
      sums_[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), _mm512_permutexvar_ps(lanes, scales), sums_[r]);
    }
  }

  HWY_INLINE void Store(float* out) const {
    alignas(64) float offsets[16];
    _mm512_store_ps(offsets, offsets_);
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      out[r] = _mm512_reduce_add_ps(_mm512_mul_ps(sums_[r], Format::Lanes()));
      if constexpr (Format::kOffset) out[r] += offsets[4 * r + 1] + offsets[4 * r + 3];
    }
  }

 private:
  __m512 sums_[kRows];
  __m512 offsets_;  // of row r in lanes 4 r + 1 and 4 r + 3
};

HWY_INLINE Pair LoadPair(const int8_t* split, const VectorScale* scales) {
  return {_mm512_loadu_si512(split), _mm512_loadu_si512(split + 64),
          _mm512_broadcast_f32x4(_mm_loadu_ps(&scales->scale))};
}

// The last group of an odd number: the second half's bytes are zero, and so are its scale and sum.
HWY_INLINE Pair LoadLast(const int8_t* split, const VectorScale* scales) {
  const VectorScale two[2] = {*scales, {0, 0}};
  return LoadPair(split, two);
}

// As in kernels/quantised.cc: as if the rows were read one after the other.
HWY_INLINE void Prefetch(const uint8_t* from, int64_t bytes) {
  constexpr int64_t kAhead = 4096, kLine = 64;
  for (int64_t at = 0; at < bytes; at += kLine) {
    const auto address = reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(kAhead + at);
    _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T0);
  }
}

template <class Format, int kRows>
void MultiplyRowsAtOnce(const uint8_t* row, int64_t row_bytes, const int8_t* split, const VectorScale* scales,
                        float* out) {
  const int64_t blocks = row_bytes / Format::kBytes;
  RowSums<Format, kRows> sums;
  const uint8_t* reading = row;
  int64_t b = 0;
  for (; b + 2 <= blocks; b += 2, split += 128) {
    Prefetch(reading, 2 * kRows * Format::kBytes);
    reading += 2 * kRows * Format::kBytes;
    const uint8_t* block = row + b * Format::kBytes;
    sums.Add(block, block + Format::kBytes, row_bytes, LoadPair(split, scales + b));
  }
  if (b < blocks) {
    const uint8_t* block = row + b * Format::kBytes;
    sums.Add(block, block, row_bytes, LoadLast(split, scales + b));
  }
  sums.Store(out);
}

template <class Format>
void MultiplyRows(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, const int8_t* split,
                  const VectorScale* scales, float* out) {
  constexpr int64_t kRows = 4;
  const auto* row = reinterpret_cast<const uint8_t*>(matrix.row(first_row));
  const int64_t row_bytes = matrix.row_bytes();
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    MultiplyRowsAtOnce<Format, kRows>(row + r * row_bytes, row_bytes, split, scales, out + r);
  }
  for (; r < rows; ++r) MultiplyRowsAtOnce<Format, 1>(row + r * row_bytes, row_bytes, split, scales, out + r);
}

}  // namespace

void Split(const int16_t* q, int64_t cols, int8_t* split) {
  const auto store = [](int8_t* to, __m512i words) HWY_ATTR {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(words));
  };
  const int64_t groups = cols / kVectorGroup;
  for (int64_t g = 0; g < groups + groups % 2; ++g) {
    const __m512i words = g < groups ? _mm512_loadu_si512(q + g * kVectorGroup) : _mm512_setzero_si512();
    const __m512i high = _mm512_srai_epi16(_mm512_add_epi16(words, _mm512_set1_epi16(128)), 8);
    int8_t* to = split + g / 2 * 128 + g % 2 * kVectorGroup;
    store(to, high);
    store(to + 64, _mm512_sub_epi16(words, _mm512_slli_epi16(high, 8)));
  }
}

void MultiplyBytes(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, const int8_t* split,
                   const VectorScale* scales, float* out) {
  switch (matrix.type) {
    case QuantisedType::kQ8_0: return MultiplyRows<Q8_0Bytes>(matrix, first_row, rows, split, scales, out);
    case QuantisedType::kQ4_0: return MultiplyRows<Q4_0Bytes>(matrix, first_row, rows, split, scales, out);
    default: return MultiplyRows<Q4_1Bytes>(matrix, first_row, rows, split, scales, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {

#if HWY_TARGETS & HWY_AVX3
// Every processor with AVX-512's bfloat16 multiplies bytes too.
bool MultipliesBytes(QuantisedType type) {
  const Isa isa = ChosenIsa();
  const bool has = isa == Isa::kAvx512Bf16 || isa == Isa::kAmx;
  return has && (type == QuantisedType::kQ8_0 || type == QuantisedType::kQ4_0 || type == QuantisedType::kQ4_1);
}
void SplitVector(const int16_t* q, int64_t cols, int8_t* split) noexcept { N_AVX3::Split(q, cols, split); }
void MultiplyQuantisedBytes(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, const int8_t* split,
                            const VectorScale* scales, float* out) noexcept {
  N_AVX3::MultiplyBytes(matrix, first_row, rows, split, scales, out);
}
#else
bool MultipliesBytes(QuantisedType) { return false; }
void SplitVector(const int16_t*, int64_t, int8_t*) noexcept {}
void MultiplyQuantisedBytes(const QuantisedMatrix&, int64_t, int64_t, const int8_t*, const VectorScale*,
                            float*) noexcept {}
#endif

}  // namespace qkv
#endif
