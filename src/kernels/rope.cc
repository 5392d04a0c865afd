#include "kernels/rope.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

void TurnPair(float cos, float sin, float& a, float& b) {
  const float turned = a * cos - b * sin;
  b = a * sin + b * cos;
  a = turned;
}

// In place, pairs (i, i + pairs).
void TurnHalves(int64_t pairs, const float* cos, const float* sin, float* x) {
  const hn::ScalableTag<float> tag;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const auto a = hn::LoadU(tag, x + i), b = hn::LoadU(tag, x + pairs + i);
    const auto c = hn::LoadU(tag, cos + i), s = hn::LoadU(tag, sin + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), tag, x + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), tag, x + pairs + i);
  }
  for (; i < pairs; ++i) TurnPair(cos[i], sin[i], x[i], x[pairs + i]);
}

// In place, pairs (2i, 2i + 1).
void TurnNeighbours(int64_t pairs, const float* cos, const float* sin, float* x) {
  const hn::ScalableTag<float> tag;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    auto a = hn::Zero(tag), b = a;
    hn::LoadInterleaved2(tag, x + 2 * i, a, b);
    const auto c = hn::LoadU(tag, cos + i), s = hn::LoadU(tag, sin + i);
    hn::StoreInterleaved2(hn::NegMulAdd(b, s, hn::Mul(a, c)), hn::MulAdd(a, s, hn::Mul(b, c)), tag, x + 2 * i);
  }
  for (; i < pairs; ++i) TurnPair(cos[i], sin[i], x[2 * i], x[2 * i + 1]);
}

void Turn(const Rotation& rotation, const float* cos, const float* sin, float* x) {
  if (rotation.step == 1)
    TurnHalves(rotation.pairs, cos, sin, x);
  else
    TurnNeighbours(rotation.pairs, cos, sin, x);
}

template <class T>
void LoadVector(const T* from, int64_t stride, int64_t width, float* to) {
  if (stride == 1) return ConvertToFloat(from, width, to);
  for (int64_t c = 0; c < width; ++c) to[c] = LoadFloat(from, DTypeOf<T>::value, c * stride);
}

template <class T>
void StoreVector(const float* from, int64_t count, int64_t stride, T* to) {
  if (stride == 1) return ConvertFromFloat(from, count, to);
  for (int64_t c = 0; c < count; ++c) StoreDouble(from[c], to, DTypeOf<T>::value, c * stride);
}

template <class T>
void Rotate(const Rotation& rotation, const T* x, const float* cos, const float* sin, T* out, float* buffer) {
  LoadVector(x, rotation.x_channel, rotation.width, buffer);
  Turn(rotation, cos, sin, buffer);
  StoreVector(buffer, 2 * rotation.pairs, rotation.out_channel, out);
  // What does not turn goes from x to out as it is: through float32 a signalling NaN would come out quiet.
  for (int64_t c = 2 * rotation.pairs; c < rotation.width; ++c) {
    out[c * rotation.out_channel] = x[c * rotation.x_channel];
  }
}

void RotateVector(const Rotation& rotation, const void* x, const float* cos, const float* sin, void* out,
                  float* buffer) noexcept {
  switch (rotation.dtype) {
    case DType::kBF16:
      return Rotate(rotation, static_cast<const BFloat16*>(x), cos, sin, static_cast<BFloat16*>(out), buffer);
    case DType::kF16:
      return Rotate(rotation, static_cast<const Float16*>(x), cos, sin, static_cast<Float16*>(out), buffer);
    default: break;
  }
  const auto* from = static_cast<const float*>(x);
  auto* to = static_cast<float*>(out);
  if (rotation.x_channel != 1 || rotation.out_channel != 1) return Rotate(rotation, from, cos, sin, to, buffer);
  if (from != to) std::copy_n(from, rotation.width, to);
  Turn(rotation, cos, sin, to);
}

}  // namespace

RotateKernel RotateTable() { return &RotateVector; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
namespace qkv {
RotateKernel RotateKernelFor(Isa isa) { QKV_PICK_TABLE(isa, RotateTable()) }
}  // namespace qkv
#endif
