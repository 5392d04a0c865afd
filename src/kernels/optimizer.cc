#include "kernels/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

void AdamW(const AdamWStep& step, const float* gradient, int64_t count, float* parameter, float* m, float* v) {
  const FloatTag tag;
  const FloatVec scale = hn::Set(tag, step.gradient_scale), epsilon = hn::Set(tag, step.epsilon);
  const FloatVec beta1 = hn::Set(tag, step.beta1), rest1 = hn::Set(tag, 1.0f - step.beta1);
  const FloatVec beta2 = hn::Set(tag, step.beta2), rest2 = hn::Set(tag, 1.0f - step.beta2);
  const FloatVec rate = hn::Set(tag, step.rate / step.correction1), kept = hn::Set(tag, 1.0f - step.shrink);
  const FloatVec unbias2 = hn::Set(tag, 1.0f / step.correction2);
  for (int64_t i = 0; i < count; i += FloatLanes()) {
    const int64_t some = count - i;
    const FloatVec g = hn::Mul(LoadFirst(gradient + i, some), scale);
    const FloatVec first = hn::MulAdd(beta1, LoadFirst(m + i, some), hn::Mul(rest1, g));
    const FloatVec second = hn::MulAdd(beta2, LoadFirst(v + i, some), hn::Mul(rest2, hn::Mul(g, g)));
    const FloatVec size = hn::Add(hn::Sqrt(hn::Mul(second, unbias2)), epsilon);
    const FloatVec shrunk = hn::Mul(LoadFirst(parameter + i, some), kept);
    StoreFirst(first, m + i, some);
    StoreFirst(second, v + i, some);
    StoreFirst(hn::NegMulAdd(rate, hn::Div(first, size), shrunk), parameter + i, some);
  }
}

double Squares(const float* x, int64_t count) {
  const hn::ScalableTag<double> tag;
  const hn::Rebind<float, decltype(tag)> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  auto even = hn::Zero(tag), odd = hn::Zero(tag);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto first = hn::PromoteTo(tag, hn::LoadU(half, x + i));
    const auto second = hn::PromoteTo(tag, hn::LoadU(half, x + i + lanes));
    even = hn::MulAdd(first, first, even);
    odd = hn::MulAdd(second, second, odd);
  }
  double sum = hn::GetLane(hn::SumOfLanes(tag, hn::Add(even, odd)));
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

// The sums of kVectors vectors of columns, the last of which may end early.
template <int kVectors, class T>
HWY_INLINE void AddStripe(const T* x, int64_t rows, int64_t columns, int64_t stride, float* sums) {
  const int64_t lanes = FloatLanes();
  FloatVec part[kVectors];
  for (FloatVec& sum : part) sum = hn::Zero(FloatTag());
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    for (int64_t v = 0; v < kVectors; ++v) {
      part[v] = hn::Add(part[v], LoadFirst(x + v * lanes, columns - v * lanes));
    }
  }
  for (int64_t v = 0; v < kVectors; ++v) {
    float* to = sums + v * lanes;
    StoreFirst(hn::Add(LoadFirst(to, columns - v * lanes), part[v]), to, columns - v * lanes);
  }
}

// 64 rows at a time, whose sum is then added: short chains of additions keep the rounding errors small. Several vectors
// side by side, so that memory is read along its rows.
template <class T>
void ColumnSums(const T* x, int64_t rows, int64_t columns, int64_t stride, float* sums) {
  constexpr int64_t kRows = 64, kVectors = 8;
  const int64_t wide = kVectors * FloatLanes();
  for (int64_t first = 0; first < rows; first += kRows, x += kRows * stride) {
    const int64_t some = std::min(kRows, rows - first);
    int64_t c = 0;
    for (; c + wide <= columns; c += wide) AddStripe<kVectors>(x + c, some, wide, stride, sums + c);
    for (; c < columns; c += FloatLanes()) AddStripe<1>(x + c, some, columns - c, stride, sums + c);
  }
}

// Here, so that they are compiled for this set.
template void ColumnSums(const float*, int64_t, int64_t, int64_t, float*);
template void ColumnSums(const BFloat16*, int64_t, int64_t, int64_t, float*);

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

auto PickAdamW(Isa isa) -> void (*)(const AdamWStep&, const float*, int64_t, float*, float*, float*) {
  QKV_PICK_TABLE(isa, AdamW)
}
auto PickSquares(Isa isa) -> double (*)(const float*, int64_t) { QKV_PICK_TABLE(isa, Squares) }
template <class T>
auto PickColumnSums(Isa isa) -> void (*)(const T*, int64_t, int64_t, int64_t, float*) {
  QKV_PICK_TABLE(isa, ColumnSums<T>)
}

}  // namespace

void AdamWUpdate(const AdamWStep& step, const float* gradient, int64_t count, float* parameter, float* m,
                 float* v) noexcept {
  PickAdamW(ChosenIsa())(step, gradient, count, parameter, m, v);
}

double SumOfSquares(const float* x, int64_t count) noexcept { return PickSquares(ChosenIsa())(x, count); }

template <class T>
void AddColumnSums(const T* x, int64_t rows, int64_t columns, int64_t stride, float* sums) noexcept {
  PickColumnSums<T>(ChosenIsa())(x, rows, columns, stride, sums);
}
template void AddColumnSums(const float*, int64_t, int64_t, int64_t, float*) noexcept;
template void AddColumnSums(const BFloat16*, int64_t, int64_t, int64_t, float*) noexcept;

}  // namespace qkv
#endif  // HWY_ONCE
