#include "kernels/quantised.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantised.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/multiply-inl.h"
#include "kernels/quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

// ---- Dequantising

HWY_INLINE void StoreFloats(Floats integers, float scale, const float* offset, float* out) {
  const BlockFloats tag;
  Floats values = hn::Mul(integers, hn::Set(tag, scale));
  if (offset != nullptr) values = hn::Add(values, hn::Set(tag, *offset));
  hn::StoreU(values, tag, out);
}

template <class Format>
void DequantiseBlock(const uint8_t* block, float* out) {
  Scales<Format::kGroups, Format::kScales> scales;
  Format::Load(block, scales);
  for (int g = 0; g < Format::kGroups; ++g) {
    const Group group = Format::Integers32(block, g);
    const float* offset = Format::kOffset ? &scales.offset[g] : nullptr;
    for (int p = 0; p < kParts; ++p, out += kLanes) {
      const float scale = scales.scale[g * Format::kScales + p * Format::kScales / kParts];
      StoreFloats(LowFloats(group.part[p]), scale, offset, out);
#if HWY_TARGET != HWY_SCALAR
      StoreFloats(HighFloats(group.part[p]), scale, offset, out + kFloatLanes);
#endif
    }
  }
}

template <class Format>
void Dequantise(const uint8_t* from, int64_t blocks, DType dtype, void* out) {
  constexpr int64_t kElements = 32 * Format::kGroups;
  for (int64_t b = 0; b < blocks; ++b, from += Format::kBytes) {
    if (dtype == DType::kF32) {
      DequantiseBlock<Format>(from, static_cast<float*>(out) + b * kElements);
    } else {
      float values[kElements];
      DequantiseBlock<Format>(from, values);
      ConvertFromFloat(values, kElements, static_cast<BFloat16*>(out) + b * kElements);
    }
  }
}

// ---- The vector

void QuantiseGroup(const float* x, int16_t* q, VectorScale& to) {
  const BlockFloats tag;
  Floats most = hn::Zero(tag);
  auto sound = hn::Eq(most, most);  // no NaN
  for (int64_t i = 0; i < kVectorGroup; i += kFloatLanes) {
    const Floats v = hn::LoadU(tag, x + i);
    most = hn::Max(most, hn::Abs(v));
    sound = hn::And(sound, hn::Eq(v, v));
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(tag, most));
  // Not finite: the scale says so. Too small for a scale that is a normal number: as good as zero.
  const bool finite = hn::AllTrue(tag, sound) && largest <= FLT_MAX;
  const bool used = finite && largest >= kVectorMost * FLT_MIN;
  const auto inverse = hn::Set(tag, used ? kVectorMost / largest : 0.0f);
  const hn::Rebind<int16_t, BlockFloats> narrow;
  auto sum = hn::Zero(I32());
  for (int64_t i = 0; i < kVectorGroup; i += kFloatLanes) {
    const Floats v = hn::LoadU(tag, x + i);
    const auto rounded = hn::NearestInt(used ? hn::Mul(v, inverse) : hn::Zero(tag));
    sum = hn::Add(sum, rounded);
    hn::StoreU(hn::DemoteTo(narrow, rounded), narrow, q + i);
  }
  to.scale = used ? largest / kVectorMost : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  to.sum = to.scale * static_cast<float>(hn::GetLane(hn::SumOfLanes(I32(), sum)));
}

void Quantise(const float* x, int64_t cols, int16_t* q, VectorScale* scales) {
  for (int64_t i = 0; i < cols; i += kVectorGroup) QuantiseGroup(x + i, q + i, scales[i / kVectorGroup]);
}

// ---- Products

// Exact: weights are below 2^8 and the vector's integers below 2^15, and a lane adds four or eight products.
template <int kFirst, int kLast>
HWY_INLINE Floats PartialDot(const Group& group, const int16_t* q) {
  auto even = hn::Zero(I32()), odd = even;
  QKV_UNROLL for (int p = kFirst; p < kLast; ++p) {
    even = AddProducts(group.part[p], q + p * kLanes, even, odd);
  }
  return hn::ConvertTo(BlockFloats(), hn::Add(even, odd));
}

// What rows need beside their integers, block by block: each group's scale times the vector's, and the sums of
// offset times the vector's sum.
template <class Format, int kRows>
class RowScales {
 public:
  HWY_INLINE RowScales() {
    for (int r = 0; r < kRows; ++r) offsets_[r] = 0;
  }
  HWY_INLINE void Load(const uint8_t* block, int64_t row_bytes, const VectorScale* x) {
    for (int r = 0; r < kRows; ++r) {
      Format::Load(block + r * row_bytes, scales_[r]);
      for (int g = 0; g < Format::kGroups; ++g) {
        for (int s = 0; s < Format::kScales; ++s) scales_[r].scale[g * Format::kScales + s] *= x[g].scale;
        if constexpr (Format::kOffset) offsets_[r] += scales_[r].offset[g] * x[g].sum;
      }
    }
  }
  HWY_INLINE Floats Scale(int r, int i) const { return hn::Set(BlockFloats(), scales_[r].scale[i]); }
  HWY_INLINE float Offset(int r) const { return offsets_[r]; }

 private:
  Scales<Format::kGroups, Format::kScales> scales_[kRows];
  float offsets_[kRows];
};

#ifndef QKV_SCALAR_HALVES
// The same for small blocks of several rows, whose halves are converted and multiplied together: one by one
// they take longer than all the rest. Without an offset, the second of each pair is of no matter.
template <class Format, int kRows>
requires(Format::kGroups == 1 && kRows % kPairs == 0) class RowScales<Format, kRows> {
 public:
  HWY_INLINE RowScales() {
    for (int v = 0; v < kVectors; ++v) offsets_[v] = hn::Zero(BlockFloats());
  }
  HWY_INLINE void Load(const uint8_t* block, int64_t row_bytes, const VectorScale* x) {
    const BlockFloats tag;
    const hn::RepartitionToWide<hn::RebindToUnsigned<BlockFloats>> pair;
    const auto x_pairs = hn::BitCast(tag, hn::Set(pair, std::bit_cast<uint64_t>(*x)));
    QKV_UNROLL for (int v = 0; v < kVectors; ++v) {
      products_[v] = hn::Mul(PairsAt(block + v * kPairs * row_bytes, row_bytes), x_pairs);
      if constexpr (Format::kOffset) offsets_[v] = hn::Add(offsets_[v], products_[v]);
    }
  }
  HWY_INLINE Floats Scale(int r, int) const {
    const auto index = hn::IndicesFromVec(BlockFloats(), hn::Set(I32(), r % kPairs * 2));
    return hn::TableLookupLanes(products_[r / kPairs], index);
  }
  HWY_INLINE float Offset(int r) const {
    return hn::ExtractLane(offsets_[r / kPairs], static_cast<size_t>(r % kPairs * 2 + 1));
  }

 private:
  static constexpr int kVectors = kRows / kPairs;
  Floats products_[kVectors], offsets_[kVectors];
};
#endif

// Group g of a block, scaled and added to a row's sums.
template <class Format, int kRows>
HWY_INLINE void AddGroup(const uint8_t* block, int g, const int16_t* q, const RowScales<Format, kRows>& scales,
                         int r, Floats& sum) {
  const Group group = Format::Integers32(block, g);
  if constexpr (Format::kScales == 1) {
    sum = hn::MulAdd(PartialDot<0, kParts>(group, q), scales.Scale(r, g), sum);
  } else {
    sum = hn::MulAdd(PartialDot<0, kParts / 2>(group, q), scales.Scale(r, 2 * g), sum);
    sum = hn::MulAdd(PartialDot<kParts / 2, kParts>(group, q), scales.Scale(r, 2 * g + 1), sum);
  }
}

// Rows are read in turns, a pattern that the processor's own prefetching follows at half the speed of memory.
// Too short a distance hides too little of its latency; 4 to 12 KiB were the best on Sapphire Rapids. Beyond
// the matrix it does no harm.
constexpr uintptr_t kPrefetchBytes = 4096;

HWY_INLINE void Prefetch(const uint8_t* from, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t at = 0; at < bytes; at += kLine) {
    hwy::Prefetch(std::bit_cast<const uint8_t*>(std::bit_cast<uintptr_t>(from) + kPrefetchBytes) + at);
  }
}

// Several rows at once share the vector's loads; each row's sums are the same as alone.
template <class Format, int kRows>
HWY_INLINE void MultiplyRowsAtOnce(const uint8_t* row, int64_t row_bytes, int64_t blocks, const int16_t* q,
                                   const VectorScale* x, float* out) {
  RowScales<Format, kRows> scales;
  Floats sum[kRows];
  QKV_UNROLL for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(BlockFloats());
  const uint8_t* reading = row;  // as if the rows were read one after the other
  for (int64_t b = 0; b < blocks; ++b, row += Format::kBytes, x += Format::kGroups) {
    Prefetch(reading, kRows * Format::kBytes);
    reading += kRows * Format::kBytes;
    scales.Load(row, row_bytes, x);
    QKV_UNROLL for (int g = 0; g < Format::kGroups; ++g, q += kVectorGroup) {
      QKV_UNROLL for (int r = 0; r < kRows; ++r) AddGroup(row + r * row_bytes, g, q, scales, r, sum[r]);
    }
  }
  QKV_UNROLL for (int r = 0; r < kRows; ++r) {
    out[r] = hn::GetLane(hn::SumOfLanes(BlockFloats(), sum[r])) + (Format::kOffset ? scales.Offset(r) : 0.0f);
  }
}

template <class Format>
void Multiply(const uint8_t* row, int64_t row_bytes, int64_t rows, const int16_t* q, const VectorScale* x,
              float* out) {
  constexpr int64_t kRows = 4;
  const int64_t blocks = row_bytes / Format::kBytes;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    MultiplyRowsAtOnce<Format, kRows>(row + r * row_bytes, row_bytes, blocks, q, x, out + r);
  }
  for (; r < rows; ++r) MultiplyRowsAtOnce<Format, 1>(row + r * row_bytes, row_bytes, blocks, q, x, out + r);
}

// ---- The table

struct FormatKernels {
  void (*dequantise)(const uint8_t* from, int64_t blocks, DType dtype, void* out);
  void (*multiply)(const uint8_t* row, int64_t row_bytes, int64_t rows, const int16_t* q, const VectorScale* x,
                   float* out);
};

template <class Format>
FormatKernels KernelsOf() {
  return {&Dequantise<Format>, &Multiply<Format>};
}

FormatKernels KernelsFor(QuantisedType type) {
  switch (type) {
    case QuantisedType::kQ8_0: return KernelsOf<Q8_0>();
    case QuantisedType::kQ4_0: return KernelsOf<Q4_0>();
    case QuantisedType::kQ4_1: return KernelsOf<Q4_1>();
    case QuantisedType::kQ5_0: return KernelsOf<Q5_0>();
    case QuantisedType::kQ5_1: return KernelsOf<Q5_1>();
    case QuantisedType::kQ4_K: return KernelsOf<Q4_K>();
    case QuantisedType::kQ5_K: return KernelsOf<Q5_K>();
    case QuantisedType::kQ6_K: break;
  }
  return KernelsOf<Q6_K>();
}

}  // namespace

void DequantiseOn(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, DType dtype, void* out) {
  const int64_t blocks = rows * (matrix.cols / BlockOf(matrix.type).elements);
  const auto* from = reinterpret_cast<const uint8_t*>(matrix.row(first_row));
  KernelsFor(matrix.type).dequantise(from, blocks, dtype, out);
}

void QuantiseOn(const float* x, int64_t cols, int16_t* q, VectorScale* scales) { Quantise(x, cols, q, scales); }

void MultiplyOn(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, const int16_t* q,
                const VectorScale* scales, float* out) {
  const auto* row = reinterpret_cast<const uint8_t*>(matrix.row(first_row));
  KernelsFor(matrix.type).multiply(row, matrix.row_bytes(), rows, q, scales, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

using DequantiseKernel = void (*)(const QuantisedMatrix&, int64_t, int64_t, DType, void*);
using QuantiseKernel = void (*)(const float*, int64_t, int16_t*, VectorScale*);
using MultiplyKernel = void (*)(const QuantisedMatrix&, int64_t, int64_t, const int16_t*, const VectorScale*,
                                float*);

DequantiseKernel PickDequantise(Isa isa){QKV_PICK_TABLE(isa, DequantiseOn)} QuantiseKernel
    PickQuantise(Isa isa){QKV_PICK_TABLE(isa, QuantiseOn)} MultiplyKernel PickMultiply(Isa isa) {
  QKV_PICK_TABLE(isa, MultiplyOn)
}

}  // namespace

const char* NameOf(QuantisedType type) {
  constexpr const char* kNames[] = {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
  return kNames[static_cast<size_t>(type)];
}

QuantisedBlock BlockOf(QuantisedType type) {
  constexpr QuantisedBlock kBlocks[] = {{32, 34}, {32, 18},   {32, 20},   {32, 22},
                                        {32, 24}, {256, 144}, {256, 176}, {256, 210}};
  return kBlocks[static_cast<size_t>(type)];
}

void DequantiseRows(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, DType dtype,
                    void* out) noexcept {
  PickDequantise(ChosenIsa())(matrix, first_row, rows, dtype, out);
}

void QuantiseVector(const float* x, int64_t cols, int16_t* q, VectorScale* scales) noexcept {
  PickQuantise(ChosenIsa())(x, cols, q, scales);
}

void MultiplyQuantisedRows(const QuantisedMatrix& matrix, int64_t first_row, int64_t rows, const int16_t* q,
                           const VectorScale* scales, float* out) noexcept {
  PickMultiply(ChosenIsa())(matrix, first_row, rows, q, scales, out);
}

}  // namespace qkv
#endif  // HWY_ONCE
