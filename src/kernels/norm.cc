#include "kernels/norm.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/round-inl.h"
#include "runtime/half.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sum of f(x[i]), f given once for vectors and once for single elements. Two vectors of sums hide the latency.
template <class VectorOp, class ScalarOp>
HWY_INLINE float SumOf(const float* x, int64_t width, const VectorOp& vector_op, const ScalarOp& scalar_op) {
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  auto even = hn::Zero(tag), odd = hn::Zero(tag);
  int64_t i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    even = hn::Add(even, vector_op(hn::LoadU(tag, x + i)));
    odd = hn::Add(odd, vector_op(hn::LoadU(tag, x + i + lanes)));
  }
  if (i + lanes <= width) {
    even = hn::Add(even, vector_op(hn::LoadU(tag, x + i)));
    i += lanes;
  }
  float sum = hn::GetLane(hn::SumOfLanes(tag, hn::Add(even, odd)));
  for (; i < width; ++i) sum += scalar_op(x[i]);
  return sum;
}

// The variance takes a second pass over the row, which is in the nearest cache: one pass of sums of squares
// would lose all its digits where the mean is large.
void LayerNorm(const float* x, int64_t rows, const LayerNormParameters& p, float* out, BFloat16* rounded) {
  using Tag = hn::ScalableTag<float>;
  const Tag tag;
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  const auto count = static_cast<float>(p.width);
  for (int64_t row = 0; row < rows; ++row, x += p.width, out += p.width) {
    const float mean = SumOf(
                           x, p.width, [](hn::Vec<Tag> v) HWY_ATTR { return v; }, [](float v) { return v; }) /
                       count;
    const auto mean_vector = hn::Set(tag, mean);
    const auto square = [mean_vector](hn::Vec<Tag> v) HWY_ATTR {
      const auto deviation = hn::Sub(v, mean_vector);
      return hn::Mul(deviation, deviation);
    };
    const float variance =
        SumOf(x, p.width, square, [mean](float v) { return (v - mean) * (v - mean); }) / count;
    const float scale = 1.0f / std::sqrt(variance + p.epsilon);
    const auto scale_vector = hn::Set(tag, scale);
    int64_t i = 0;
    for (; i + lanes <= p.width; i += lanes) {
      const auto normal = hn::Mul(hn::Sub(hn::LoadU(tag, x + i), mean_vector), scale_vector);
      const auto value = hn::MulAdd(normal, hn::LoadU(tag, p.gain + i), hn::LoadU(tag, p.shift + i));
      hn::StoreU(value, tag, out + i);
      if (rounded != nullptr) StoreRounded(value, rounded + i);
    }
    for (; i < p.width; ++i) {
      out[i] = (x[i] - mean) * scale * p.gain[i] + p.shift[i];
      if (rounded != nullptr) rounded[i] = ToBFloat16(out[i]);
    }
    if (rounded != nullptr) rounded += p.width;
  }
}

void RmsNorm(const float* x, int64_t x_stride, int64_t rows, const RmsNormParameters& p, float* out,
             int64_t out_stride) {
  using Tag = hn::ScalableTag<float>;
  const Tag tag;
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  for (int64_t row = 0; row < rows; ++row, x += x_stride, out += out_stride) {
    const float squares = SumOf(
        x, p.width, [](hn::Vec<Tag> v) HWY_ATTR { return hn::Mul(v, v); }, [](float v) { return v * v; });
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(p.width) + p.epsilon);
    const auto scale_vector = hn::Set(tag, scale);
    int64_t i = 0;
    for (; i + lanes <= p.width; i += lanes) {
      const auto normal = hn::Mul(hn::LoadU(tag, x + i), scale_vector);
      hn::StoreU(hn::Mul(normal, hn::LoadU(tag, p.gain + i)), tag, out + i);
    }
    for (; i < p.width; ++i) out[i] = x[i] * scale * p.gain[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

using LayerNormKernel = void (*)(const float*, int64_t, const LayerNormParameters&, float*, BFloat16*);

using RmsNormKernel = void (*)(const float*, int64_t, int64_t, const RmsNormParameters&, float*, int64_t);

LayerNormKernel PickLayerNorm(Isa isa) { QKV_PICK_TABLE(isa, LayerNorm) }
RmsNormKernel PickRmsNorm(Isa isa) { QKV_PICK_TABLE(isa, RmsNorm) }

}  // namespace

void LayerNormRows(const float* x, int64_t rows, const LayerNormParameters& parameters, float* out,
                   BFloat16* rounded) noexcept {
  PickLayerNorm(ChosenIsa())(x, rows, parameters, out, rounded);
}

void RmsNormRows(const float* x, int64_t x_stride, int64_t rows, const RmsNormParameters& parameters, float* out,
                 int64_t out_stride) noexcept {
  PickRmsNorm(ChosenIsa())(x, x_stride, rows, parameters, out, out_stride);
}

}  // namespace qkv
#endif  // HWY_ONCE
