// A Linear on the project's own tiles.
#include <algorithm>

#include "kernels/project.h"
#include "layers/linear_backend.h"
#include "layers/panels.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// Weights of type T, multiplied as float32.
template <class T> class TileBackend : public LinearBackend {
 public:
  explicit TileBackend(const LinearParameters& p)
      : kernel_(ChosenPanelKernel()),
        inputs_(p.inputs),
        outputs_(p.outputs()),
        panels_((outputs_ + kernel_.columns - 1) / kernel_.columns),
        weight_(panels_ * kernel_.columns * inputs_),
        bias_(p.Bias()) {
    ParallelFor(panels_, [&](int64_t panel, int) {
      const int64_t first = panel * kernel_.columns, count = std::min(kernel_.columns, outputs_ - first);
      const float* rows[kProjectMaxColumns];
      for (int64_t n = 0; n < count; ++n) rows[n] = p.Row(first + n);
      PackPanel(rows, count, inputs_, kernel_.columns, weight_.data() + first * inputs_);
    });
  }

  void Run(ConstRows x, int64_t rows, Rows y, Into into) const override {
    MultiplyPanels(Panels<T>{weight_.data(), bias_.data(), inputs_, outputs_, kernel_}, x, rows, y, into);
  }

  DType operand() const override { return DType::kF32; }

 private:
  PanelKernel kernel_;
  int64_t inputs_, outputs_, panels_;
  AlignedBuffer<T> weight_;
  AlignedBuffer<float> bias_;
};

}  // namespace

std::unique_ptr<const LinearBackend> MakeTileBackend(const LinearParameters& parameters) {
  if (parameters.dtype == DType::kBF16) return std::make_unique<TileBackend<BFloat16>>(parameters);
  return std::make_unique<TileBackend<float>>(parameters);
}

}  // namespace qkv
