#include "kernels/pack.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pack.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/multiply-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

// Channels c ... c + d - 1 of a key as contiguous floats: where they lie, or in `buffer` after conversion.
template <class T>
const float* KeyAsFloats(const Strided& from, int64_t key, int64_t c, int64_t d, float* buffer) {
  const T* data = from.Key<T>(key) + c * from.channel;
  if constexpr (std::is_same_v<T, int8_t>) {
    const float scale = from.Scale(key);
    for (int64_t i = 0; i < d; ++i) buffer[i] = static_cast<float>(data[i * from.channel]) * scale;
    return buffer;
  } else {
    if (from.channel != 1) {
      for (int64_t i = 0; i < d; ++i) buffer[i] = LoadFloat(data, DTypeOf<T>::value, i * from.channel);
      return buffer;
    }
    if constexpr (std::is_same_v<T, float>) return data;
    ConvertToFloat(data, d, buffer);
    return buffer;
  }
}

// Transposes a square of lanes x lanes floats: row i of the result holds element i of every source row. First the
// 4 x 4 squares within 128-bit blocks, then the blocks themselves.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void TransposeSquare(const float* const* rows, int64_t channel, float* to, int64_t) {
  *to = rows[0][channel];
}
#else
template <int kLanes> HWY_INLINE void TransposeBlocks(const VecF32 (&from)[kLanes], float* to, int64_t to_stride) {
  const F32 tag;
  if constexpr (kLanes == 4) {
    QKV_UNROLL for (int i = 0; i < 4; ++i) hn::StoreU(from[i], tag, to + i * to_stride);
  } else if constexpr (kLanes == 8) {
    QKV_UNROLL for (int i = 0; i < 4; ++i) {
      hn::StoreU(hn::ConcatLowerLower(tag, from[i + 4], from[i]), tag, to + i * to_stride);
      hn::StoreU(hn::ConcatUpperUpper(tag, from[i + 4], from[i]), tag, to + (i + 4) * to_stride);
    }
  }
#if HWY_TARGET == HWY_AVX3
  if constexpr (kLanes == 16) {
    QKV_UNROLL for (int i = 0; i < 4; ++i) {
      const __m512 r0 = from[i].raw, r1 = from[i + 4].raw, r2 = from[i + 8].raw, r3 = from[i + 12].raw;
      const __m512 even01 = _mm512_shuffle_f32x4(r0, r1, 0x88), odd01 = _mm512_shuffle_f32x4(r0, r1, 0xdd);
      const __m512 even23 = _mm512_shuffle_f32x4(r2, r3, 0x88), odd23 = _mm512_shuffle_f32x4(r2, r3, 0xdd);
      _mm512_storeu_ps(to + (i + 0) * to_stride, _mm512_shuffle_f32x4(even01, even23, 0x88));
      _mm512_storeu_ps(to + (i + 4) * to_stride, _mm512_shuffle_f32x4(odd01, odd23, 0x88));
      _mm512_storeu_ps(to + (i + 8) * to_stride, _mm512_shuffle_f32x4(even01, even23, 0xdd));
      _mm512_storeu_ps(to + (i + 12) * to_stride, _mm512_shuffle_f32x4(odd01, odd23, 0xdd));
    }
  }
#endif
}

HWY_INLINE void TransposeSquare(const float* const* rows, int64_t channel, float* to, int64_t to_stride) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
  const F32 tag;
  const hn::Repartition<uint64_t, F32> tag64;
  VecF32 a[kLanes], b[kLanes];
  QKV_UNROLL for (int i = 0; i < kLanes; ++i) a[i] = hn::LoadU(tag, rows[i] + channel);
  QKV_UNROLL for (int i = 0; i < kLanes; i += 2) {
    b[i] = hn::InterleaveLower(tag, a[i], a[i + 1]);
    b[i + 1] = hn::InterleaveUpper(tag, a[i], a[i + 1]);
  }
  QKV_UNROLL for (int i = 0; i < kLanes; i += 4) {
    QKV_UNROLL for (int half = 0; half < 2; ++half) {
      const auto low = hn::BitCast(tag64, b[i + half]), high = hn::BitCast(tag64, b[i + half + 2]);
      a[i + 2 * half] = hn::BitCast(tag, hn::InterleaveLower(tag64, low, high));
      a[i + 2 * half + 1] = hn::BitCast(tag, hn::InterleaveUpper(tag64, low, high));
    }
  }
  TransposeBlocks(a, to, to_stride);
}
#endif

// `lanes` keys (rows; at most that many are real, the rest point at zeros) into column `column` of a panel.
HWY_INLINE void PackKeyGroup(const float* const* rows, int64_t d, float* panel) {
  const int64_t lanes = Lanes(), width = PanelWidth();
  int64_t c = 0;
  for (; c + lanes <= d; c += lanes) TransposeSquare(rows, c, panel + c * width, width);
  for (; c < d; ++c) {
    for (int64_t r = 0; r < lanes; ++r) panel[c * width + r] = rows[r][c];
  }
}

// Channels are packed in strips, so that the buffer for converted keys is small whatever the head size.
constexpr int64_t kStrip = 256;

template <class T>
void PackKeys(const Strided& k, int64_t first, int64_t count, int64_t d, float* packed) noexcept {
  const int64_t lanes = Lanes(), width = PanelWidth();
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)][kStrip];
  HWY_ALIGN static constexpr float kZeros[kStrip] = {};
  const float* rows[HWY_MAX_BYTES / sizeof(float)];
  for (int64_t key = 0; key < PaddedWidth(count, width); key += lanes) {
    float* panel = packed + key / width * width * d + key % width;
    for (int64_t c = 0; c < d; c += kStrip) {
      const int64_t strip = std::min(kStrip, d - c);
      for (int64_t r = 0; r < lanes; ++r) {
        rows[r] = key + r < count ? KeyAsFloats<T>(k, first + key + r, c, strip, buffer[r]) : kZeros;
      }
      PackKeyGroup(rows, strip, panel + c * width);
    }
  }
}

// Copies with what is not finite replaced by zero; returns a vector that is not all zero if there was any.
HWY_INLINE VecF32 KeepFinite(VecF32 value, VecF32& lost) {
  const F32 tag;
  const auto zero_or_nan = hn::Sub(value, value);  // NaN for NaN and infinities, else zero
  const auto finite = hn::Eq(zero_or_nan, hn::Zero(tag));
  lost = hn::Or(lost, zero_or_nan);
  return hn::IfThenElseZero(finite, value);
}

template <class T>
Values PackValues(const Strided& v, int64_t first, int64_t count, int64_t dv, float* packed) noexcept {
  const F32 tag;
  const int64_t lanes = Lanes(), width = PanelWidth();
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float) * kTileVectors];
  VecF32 lost = hn::Zero(tag);
  for (int64_t c = 0; c < dv; c += width, packed += kKeyTile * width) {
    const int64_t columns = std::min(width, dv - c);
    for (int64_t j = 0; j < count; ++j) {
      const float* row = KeyAsFloats<T>(v, first + j, c, columns, buffer);
      if (columns < width) {
        if (row != buffer) std::copy_n(row, columns, buffer);
        std::fill(buffer + columns, buffer + width, 0.0f);
        row = buffer;
      }
      for (int64_t n = 0; n < width; n += lanes) {
        hn::StoreU(KeepFinite(hn::LoadU(tag, row + n), lost), tag, packed + j * width + n);
      }
    }
  }
  return hn::AllTrue(tag, hn::Eq(lost, hn::Zero(tag))) ? Values::kFinite : Values::kSomeNotFinite;
}

void PackKeysOfAnyType(const Strided& k, int64_t first, int64_t count, int64_t d, float* packed) noexcept {
  switch (k.dtype) {
    case DType::kBF16: return PackKeys<BFloat16>(k, first, count, d, packed);
    case DType::kF16: return PackKeys<Float16>(k, first, count, d, packed);
    case DType::kI8: return PackKeys<int8_t>(k, first, count, d, packed);
    default: return PackKeys<float>(k, first, count, d, packed);
  }
}

Values PackValuesOfAnyType(const Strided& v, int64_t first, int64_t count, int64_t dv, float* packed) noexcept {
  switch (v.dtype) {
    case DType::kBF16: return PackValues<BFloat16>(v, first, count, dv, packed);
    case DType::kF16: return PackValues<Float16>(v, first, count, dv, packed);
    case DType::kI8: return PackValues<int8_t>(v, first, count, dv, packed);
    default: return PackValues<float>(v, first, count, dv, packed);
  }
}

}  // namespace

PackKernels PackTable() { return {PanelWidth(), &PackKeysOfAnyType, &PackValuesOfAnyType}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
namespace qkv {
PackKernels PackKernelsFor(Isa isa) { QKV_PICK_TABLE(isa, PackTable()) }
}  // namespace qkv
#endif
