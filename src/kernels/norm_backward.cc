#include "kernels/norm_backward.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm_backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// Sum over c of f(c, how many lanes of it exist); lanes past the end must come as zeros.
template <class F>
HWY_INLINE float SumOver(int64_t width, const F& f) {
  const FloatTag tag;
  const int64_t lanes = FloatLanes();
  FloatVec even = hn::Zero(tag), odd = hn::Zero(tag);
  int64_t c = 0;
  for (; c + 2 * lanes <= width; c += 2 * lanes) {
    even = hn::Add(even, f(c, lanes));
    odd = hn::Add(odd, f(c + lanes, lanes));
  }
  for (; c < width; c += lanes) even = hn::Add(even, f(c, width - c));
  return hn::GetLane(hn::SumOfLanes(tag, hn::Add(even, odd)));
}

struct Statistics {
  float mean, scale;  // xhat = (x - mean) * scale
};

Statistics CenteredStatistics(const float* x, int64_t width, float epsilon) {
  const FloatTag tag;
  const auto count = static_cast<float>(width);
  const auto load = [x](int64_t c, int64_t some) HWY_ATTR { return LoadFirst(x + c, some); };
  const float mean = SumOver(width, load) / count;
  const auto square = [x, mean, tag](int64_t c, int64_t some) HWY_ATTR {
    const FloatVec deviation = hn::Sub(LoadFirst(x + c, some), hn::Set(tag, mean));
    const auto exists = hn::FirstN(tag, static_cast<size_t>(some));
    return hn::IfThenElseZero(exists, hn::Mul(deviation, deviation));
  };
  return {mean, 1.0f / std::sqrt(SumOver(width, square) / count + epsilon)};
}

Statistics RawStatistics(const float* x, int64_t width, float epsilon) {
  const auto square = [x](int64_t c, int64_t some) HWY_ATTR {
    const FloatVec value = LoadFirst(x + c, some);
    return hn::Mul(value, value);
  };
  return {0.0f, 1.0f / std::sqrt(SumOver(width, square) / static_cast<float>(width) + epsilon)};
}

// One row of either norm: with g = gain * dout, dx += scale (g - mean_g - xhat * mean_gx), mean_gx the mean of
// g * xhat and mean_g that of g, or zero where the norm does not take out the mean.
struct RowBackward {
  const float* x;
  const float* dout;
  const LayerNormParameters& p;
  Statistics s;
  float mean_g = 0, mean_gx = 0;

  HWY_INLINE FloatVec Normal(int64_t c, int64_t some) const {
    const FloatTag tag;
    return hn::Mul(hn::Sub(LoadFirst(x + c, some), hn::Set(tag, s.mean)), hn::Set(tag, s.scale));
  }
  HWY_INLINE FloatVec Weighted(int64_t c, int64_t some) const {
    return hn::Mul(LoadFirst(p.gain + c, some), LoadFirst(dout + c, some));
  }

  void Run(const NormGradients& to, float* dx, float* out) const {
    const FloatTag tag;
    for (int64_t c = 0; c < p.width; c += FloatLanes()) {
      const int64_t some = p.width - c;
      const FloatVec normal = Normal(c, some), d = LoadFirst(dout + c, some);
      const FloatVec centered = hn::Sub(Weighted(c, some), hn::Set(tag, mean_g));
      const FloatVec step = hn::NegMulAdd(normal, hn::Set(tag, mean_gx), centered);
      StoreFirst(hn::MulAdd(step, hn::Set(tag, s.scale), LoadFirst(dx + c, some)), dx + c, some);
      StoreFirst(hn::MulAdd(d, normal, LoadFirst(to.dgain + c, some)), to.dgain + c, some);
      if (to.dshift != nullptr) StoreFirst(hn::Add(d, LoadFirst(to.dshift + c, some)), to.dshift + c, some);
      if (out == nullptr) continue;
      const FloatVec gain = LoadFirst(p.gain + c, some);
      const FloatVec shift = to.dshift != nullptr ? LoadFirst(p.shift + c, some) : hn::Zero(tag);
      StoreFirst(hn::MulAdd(normal, gain, shift), out + c, some);
    }
  }
};

void LayerNormBackward(const float* x, const float* dout, int64_t rows, const LayerNormParameters& p,
                       const NormGradients& to) {
  const auto count = static_cast<float>(p.width);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * p.width;
    RowBackward row{x + at, dout + at, p, CenteredStatistics(x + at, p.width, p.epsilon)};
    const auto weighted = [&row](int64_t c, int64_t some) HWY_ATTR { return row.Weighted(c, some); };
    const auto product = [&row](int64_t c, int64_t some)
                             HWY_ATTR { return hn::Mul(row.Weighted(c, some), row.Normal(c, some)); };
    row.mean_g = SumOver(p.width, weighted) / count;
    row.mean_gx = SumOver(p.width, product) / count;
    row.Run(to, to.dx + at, to.out == nullptr ? nullptr : to.out + at);
  }
}

void RmsNormBackward(const float* x, const float* dout, int64_t rows, const LayerNormParameters& p,
                     const NormGradients& to) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * p.width;
    RowBackward row{x + at, dout + at, p, RawStatistics(x + at, p.width, p.epsilon)};
    const auto product = [&row](int64_t c, int64_t some)
                             HWY_ATTR { return hn::Mul(row.Weighted(c, some), row.Normal(c, some)); };
    row.mean_gx = SumOver(p.width, product) / static_cast<float>(p.width);
    row.Run({to.dx, to.dgain, nullptr, to.out}, to.dx + at, to.out == nullptr ? nullptr : to.out + at);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

using Kernel = void (*)(const float*, const float*, int64_t, const LayerNormParameters&, const NormGradients&);

Kernel PickLayerNorm(Isa isa){QKV_PICK_TABLE(isa, LayerNormBackward)} Kernel PickRmsNorm(Isa isa) {
  QKV_PICK_TABLE(isa, RmsNormBackward)
}

}  // namespace

void LayerNormBackwardRows(const float* x, const float* dout, int64_t rows,
                           const LayerNormParameters& parameters, const NormGradients& gradients) noexcept {
  PickLayerNorm(ChosenIsa())(x, dout, rows, parameters, gradients);
}

void RmsNormBackwardRows(const float* x, const float* dout, int64_t rows, const LayerNormParameters& parameters,
                         const NormGradients& gradients) noexcept {
  PickRmsNorm(ChosenIsa())(x, dout, rows, parameters, gradients);
}

}  // namespace qkv
#endif  // HWY_ONCE
