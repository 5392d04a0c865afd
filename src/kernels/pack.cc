#include "kernels/pack.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pack.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/keys-inl.h"
#include "kernels/multiply-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

template <class T>
Values PackKeys(const Strided& k, int64_t first, int64_t count, int64_t d, float* packed) noexcept {
  const int64_t width = PanelWidth();
  for (int64_t key = 0; key < count; key += Lanes()) {
    float* panel = packed + key / width * width * d + key % width;
    for (int64_t c = 0; c < d; c += kStrip) {
      PackKeyStrip<T>(k, first + key, count - key, c, std::min(kStrip, d - c), panel + c * width, width);
    }
  }
  return Values::kFinite;
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
  const int64_t lanes = Lanes(), width = ValuePanel(dv);
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float) * kTileVectors];
  VecF32 lost = hn::Zero(tag);
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t c = 0; c < dv; c += width) {
      const int64_t columns = std::min(width, dv - c);
      float* to = packed + c * kKeyTile + j * width;
      const float* row = KeyAsFloats<T>(v, first + j, c, columns, buffer);
      if (columns < width) {
        if (row != buffer) std::copy_n(row, columns, buffer);
        std::fill(buffer + columns, buffer + width, 0.0f);
        row = buffer;
      }
      for (int64_t n = 0; n < width; n += lanes) {
        hn::StoreU(KeepFinite(hn::LoadU(tag, row + n), lost), tag, to + n);
      }
    }
  }
  return hn::AllTrue(tag, hn::Eq(lost, hn::Zero(tag))) ? Values::kFinite : Values::kSomeNotFinite;
}

Values PackKeysOfAnyType(const Strided& k, int64_t first, int64_t count, int64_t d, float* packed) noexcept {
  return WithType(k.dtype, [&](auto type) { return PackKeys<decltype(type)>(k, first, count, d, packed); });
}

Values PackValuesOfAnyType(const Strided& v, int64_t first, int64_t count, int64_t dv, float* packed) noexcept {
  return WithType(v.dtype, [&](auto type) { return PackValues<decltype(type)>(v, first, count, dv, packed); });
}

}  // namespace

PackKernels PackTable() { return {PanelWidth(), Lanes(), &PackKeysOfAnyType, &PackValuesOfAnyType}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
namespace qkv {
PackKernels PackKernelsFor(Isa isa) { QKV_PICK_TABLE(isa, PackTable()) }
}  // namespace qkv
#endif
