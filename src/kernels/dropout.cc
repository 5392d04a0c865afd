#include "kernels/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// keep[c] for 4 vectors of channels from channel 4 * quarter of a row on: `scale`, or 0 where dropped.
HWY_INLINE void KeepFactors(const DropoutRows& dropout, int64_t row, int64_t quarter, float* keep) {
  const hn::ScalableTag<uint32_t> tag;
  const FloatTag floats;
  PhiloxVectors words{hn::Iota(tag, static_cast<uint32_t>(quarter)), hn::Set(tag, static_cast<uint32_t>(row)),
                      hn::Zero(tag), hn::Zero(tag)};
  Philox(words, dropout.bits.key());
  const auto threshold = hn::Set(tag, dropout.bits.threshold());
  const FloatVec scale = hn::Set(floats, dropout.scale);
  const auto factor = [&](BitsVec word) HWY_ATTR {
    return hn::IfThenZeroElse(hn::RebindMask(floats, hn::Lt(word, threshold)), scale);
  };
  hn::StoreInterleaved4(factor(words.a), factor(words.b), factor(words.c), factor(words.d), floats, keep);
}

template <class To>
void DropRows(const DropoutRows& dropout, int64_t first_row, const float* x, const float* residual,
              int64_t rows, int64_t width, To* out) {
  HWY_ALIGN float keep[4 * hn::MaxLanes(FloatTag())];
  const int64_t lanes = FloatLanes(), piece = 4 * lanes;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t first = 0; first < width; first += piece) {
      KeepFactors(dropout, first_row + r, first / 4, keep);
      for (int64_t c = first; c < std::min(width, first + piece); c += lanes) {
        const int64_t at = r * width + c;
        FloatVec value = hn::Mul(LoadFirst(x + at, width - c), hn::Load(FloatTag(), keep + (c - first)));
        if (residual != nullptr) value = hn::Add(LoadFirst(residual + at, width - c), value);
        StoreFirst(value, out + at, width - c);
      }
    }
  }
}

// Here, so that they are compiled for this set.
template void DropRows(const DropoutRows&, int64_t, const float*, const float*, int64_t, int64_t, float*);
template void DropRows(const DropoutRows&, int64_t, const float*, const float*, int64_t, int64_t, BFloat16*);

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

template <class To>
auto PickDrop(Isa isa)
    -> void (*)(const DropoutRows&, int64_t, const float*, const float*, int64_t, int64_t, To*) {
  QKV_PICK_TABLE(isa, DropRows<To>)
}

}  // namespace

template <class To>
void Drop(const DropoutRows& dropout, int64_t first_row, const float* x, const float* residual, int64_t rows,
          int64_t width, To* out) noexcept {
  PickDrop<To>(ChosenIsa())(dropout, first_row, x, residual, rows, width, out);
}
template void Drop(const DropoutRows&, int64_t, const float*, const float*, int64_t, int64_t, float*) noexcept;
template void Drop(const DropoutRows&, int64_t, const float*, const float*, int64_t, int64_t,
                   BFloat16*) noexcept;

}  // namespace qkv
#endif  // HWY_ONCE
