#include "kernels/project.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/project.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/multiply-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// 256 inputs at a time: their part of the panel (64 KiB) then serves all tiles from the cache.
constexpr int64_t kDepth = 256;

// `count` floats of a panel.
HWY_INLINE const float* Widened(const float* panel, int64_t, float*) { return panel; }
HWY_INLINE const float* Widened(const BFloat16* panel, int64_t count, float* widened) {
  ConvertToFloat(panel, count, widened);
  return widened;
}

template <class T> void Multiply(const float* x, int64_t rows, int64_t inputs, const T* panel, float* sums) {
  const int64_t columns = PanelWidth();
  alignas(64) float widened[std::is_same_v<T, float> ? 1 : kDepth * kProjectMaxColumns];
  for (int64_t k = 0; k < inputs; k += kDepth) {
    const int64_t depth = std::min(kDepth, inputs - k);
    const Start start = k == 0 ? Start::kZero : Start::kAdd;
    const float* piece = Widened(panel + k * columns, depth * columns, widened);
    for (int64_t r = 0; r < rows; r += kTileRows) {
      MultiplyPanel(std::min<int64_t>(kTileRows, rows - r), columns, depth, x + r * inputs + k, inputs,
                    piece, columns, sums + r * columns, columns, start);
    }
  }
}

PanelKernel MakePanelKernel() { return {PanelWidth(), Multiply<float>, Multiply<BFloat16>}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
#include "runtime/half.h"

namespace qkv {
namespace {

template <class T, class Convert>
void Pack(const float* weight, int64_t outputs, int64_t inputs, int64_t columns, T* panel, Convert convert) {
  for (int64_t k = 0; k < inputs; ++k, panel += columns) {
    for (int64_t n = 0; n < outputs; ++n) panel[n] = convert(weight[n * inputs + k]);
    std::fill(panel + outputs, panel + columns, T{});
  }
}

PanelKernel (*PickPanelKernel(Isa isa))() { QKV_PICK_TABLE(isa, MakePanelKernel) }

}  // namespace

PanelKernel ChosenPanelKernel() { return PickPanelKernel(ChosenIsa())(); }

void PackPanel(const float* weight, int64_t outputs, int64_t inputs, int64_t columns, float* panel) noexcept {
  Pack(weight, outputs, inputs, columns, panel, [](float value) { return value; });
}

void PackPanel(const float* weight, int64_t outputs, int64_t inputs, int64_t columns, BFloat16* panel) noexcept {
  Pack(weight, outputs, inputs, columns, panel, [](float value) { return ToBFloat16(value); });
}

}  // namespace qkv
#endif  // HWY_ONCE
