// A Linear on the project's own tiles.
#include <algorithm>
#include <type_traits>

#include "kernels/project.h"
#include "layers/linear_backend.h"
#include "runtime/aligned.h"
#include "runtime/half.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// Weights of type T, multiplied as float32.
template <class T> class TileBackend : public LinearBackend {
 public:
  explicit TileBackend(const LinearParameters& p)
      : inputs_(p.inputs),
        outputs_(p.outputs),
        kernel_(ChosenPanelKernel()),
        columns_(kernel_.columns),
        panels_((p.outputs + columns_ - 1) / columns_),
        weight_(panels_ * columns_ * p.inputs),
        bias_(p.outputs) {
    ParallelFor(panels_, [&](int64_t panel, int) {
      const int64_t first = panel * columns_;
      PackPanel(p.weight + first * inputs_, std::min(columns_, outputs_ - first), inputs_, columns_,
                weight_.data() + first * inputs_);
    });
    if (p.bias == nullptr) std::fill_n(bias_.data(), outputs_, 0.0f);
    if (p.bias != nullptr) std::copy_n(p.bias, outputs_, bias_.data());
  }

  void Run(ConstRows x, int64_t rows, Rows y, Into into) const override {
    const auto* floats = static_cast<const float*>(Convert(x, rows * inputs_, DType::kF32).data);
    const int64_t blocks = (rows + kProjectRows - 1) / kProjectRows;
    ParallelFor(blocks * panels_, [&](int64_t task, int) {
      const int64_t row = task / panels_ * kProjectRows, panel = task % panels_;
      const int64_t count = std::min(kProjectRows, rows - row);
      if (y.dtype == DType::kF32) RunTask(floats, row, count, panel, static_cast<float*>(y.data), into);
      if (y.dtype == DType::kBF16) RunTask(floats, row, count, panel, static_cast<BFloat16*>(y.data), into);
    });
  }

  DType operand() const override { return DType::kF32; }

 private:
  static float Read(float value) { return value; }
  static float Read(BFloat16 value) { return ToFloat(value); }
  static void Write(float value, float& to) { to = value; }
  static void Write(float value, BFloat16& to) { to = ToBFloat16(value); }

  void Multiply(const float* x, int64_t rows, int64_t panel, float* sums) const {
    const T* weight = weight_.data() + panel * columns_ * inputs_;
    if constexpr (std::is_same_v<T, float>) kernel_.multiply(x, rows, inputs_, weight, sums);
    else kernel_.multiply_bf16(x, rows, inputs_, weight, sums);
  }

  template <class Y> void RunTask(const float* x, int64_t row, int64_t rows, int64_t panel, Y* y, Into into) const {
    alignas(kAlignment) float sums[kProjectRows * kProjectMaxColumns];
    Multiply(x + row * inputs_, rows, panel, sums);
    const int64_t first = panel * columns_, count = std::min(columns_, outputs_ - first);
    for (int64_t r = 0; r < rows; ++r) {
      Y* to = y + (row + r) * outputs_ + first;
      for (int64_t n = 0; n < count; ++n) {
        const float value = sums[r * columns_ + n] + bias_[first + n];
        Write(into == Into::kAdd ? Read(to[n]) + value : value, to[n]);
      }
    }
  }

  int64_t inputs_, outputs_;
  PanelKernel kernel_;
  int64_t columns_, panels_;
  AlignedBuffer<T> weight_;
  AlignedBuffer<float> bias_;
};

}  // namespace

std::unique_ptr<const LinearBackend> MakeTileBackend(const LinearParameters& parameters) {
  if (parameters.dtype == DType::kBF16) return std::make_unique<TileBackend<BFloat16>>(parameters);
  return std::make_unique<TileBackend<float>>(parameters);
}

}  // namespace qkv
