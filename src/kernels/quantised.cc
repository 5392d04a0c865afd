#include "kernels/quantised.h"

#include <algorithm>
#include <cfloat>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantised.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/multiply-inl.h"
#include "kernels/quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

// ---- Dequantising

HWY_INLINE void StoreFloats(Floats integers, float scale, const float* offset, float* out) {
  const FloatTag tag;
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
  const FloatTag tag;
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
  const bool used = finite && largest >= 32767 * FLT_MIN;
  const auto inverse = hn::Set(tag, used ? 32767 / largest : 0.0f);
  const hn::Rebind<int16_t, FloatTag> narrow;
  auto sum = hn::Zero(I32());
  for (int64_t i = 0; i < kVectorGroup; i += kFloatLanes) {
    const Floats v = hn::LoadU(tag, x + i);
    const auto rounded = hn::NearestInt(used ? hn::Mul(v, inverse) : hn::Zero(tag));
    sum = hn::Add(sum, rounded);
    hn::StoreU(hn::DemoteTo(narrow, rounded), narrow, q + i);
  }
  to.scale = used ? largest / 32767 : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
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
  return hn::ConvertTo(FloatTag(), hn::Add(even, odd));
}

// One row's sums, held in vectors until the end.
struct RowSum {
  Floats products;
  float offsets;
};

template <class Format>
HWY_INLINE void AddBlock(const uint8_t* block, const int16_t* q, const VectorScale* x, RowSum& sum) {
  const FloatTag tag;
  Scales<Format::kGroups, Format::kScales> scales;
  Format::Load(block, scales);
  QKV_UNROLL for (int g = 0; g < Format::kGroups; ++g) {
    const Group group = Format::Integers32(block, g);
    const int16_t* q_g = q + g * kVectorGroup;
    if constexpr (Format::kScales == 1) {
      const auto scale = hn::Set(tag, scales.scale[g] * x[g].scale);
      sum.products = hn::MulAdd(PartialDot<0, kParts>(group, q_g), scale, sum.products);
    } else {
      const auto low = hn::Set(tag, scales.scale[2 * g] * x[g].scale);
      const auto high = hn::Set(tag, scales.scale[2 * g + 1] * x[g].scale);
      sum.products = hn::MulAdd(PartialDot<0, kParts / 2>(group, q_g), low, sum.products);
      sum.products = hn::MulAdd(PartialDot<kParts / 2, kParts>(group, q_g), high, sum.products);
    }
    if constexpr (Format::kOffset) sum.offsets += scales.offset[g] * x[g].sum;
  }
}

// Several rows at once keep more loads in flight; each row's sums are the same as alone.
template <class Format, int kRows>
HWY_INLINE void MultiplyRowsAtOnce(const uint8_t* row, int64_t row_bytes, int64_t blocks, const int16_t* q,
                                   const VectorScale* x, float* out) {
  RowSum sum[kRows];
  QKV_UNROLL for (int r = 0; r < kRows; ++r) sum[r] = {hn::Zero(FloatTag()), 0.0f};
  for (int64_t b = 0; b < blocks; ++b) {
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      AddBlock<Format>(row + r * row_bytes + b * Format::kBytes, q + b * Format::kGroups * kVectorGroup,
                       x + b * Format::kGroups, sum[r]);
    }
  }
  QKV_UNROLL for (int r = 0; r < kRows; ++r) {
    out[r] = hn::GetLane(hn::SumOfLanes(FloatTag(), sum[r].products)) + sum[r].offsets;
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
