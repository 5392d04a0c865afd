#include "kernels/project.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/project.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/multiply-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

void Multiply(const float* x, int64_t rows, int64_t inputs, const float* panel, float* sums) {
  const int64_t columns = PanelWidth();
  // 256 inputs at a time: their part of the panel (64 KiB) then serves all tiles from the cache.
  constexpr int64_t kDepth = 256;
  for (int64_t k = 0; k < inputs; k += kDepth) {
    const int64_t depth = std::min(kDepth, inputs - k);
    const Start start = k == 0 ? Start::kZero : Start::kAdd;
    for (int64_t r = 0; r < rows; r += kTileRows) {
      MultiplyPanel(std::min<int64_t>(kTileRows, rows - r), columns, depth, x + r * inputs + k, inputs,
                    panel + k * columns, columns, sums + r * columns, columns, start);
    }
  }
}

PanelKernel MakePanelKernel() { return {PanelWidth(), Multiply}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"

namespace qkv {
namespace {

PanelKernel (*PickPanelKernel(Isa isa))() { QKV_PICK_TABLE(isa, MakePanelKernel) }

}  // namespace

PanelKernel ChosenPanelKernel() { return PickPanelKernel(ChosenIsa())(); }

void PackPanel(const float* weight, int64_t outputs, int64_t inputs, int64_t columns, float* panel) noexcept {
  for (int64_t k = 0; k < inputs; ++k, panel += columns) {
    for (int64_t n = 0; n < outputs; ++n) panel[n] = weight[n * inputs + k];
    std::fill(panel + outputs, panel + columns, 0.0f);
  }
}

}  // namespace qkv
#endif  // HWY_ONCE
