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
        outputs_(p.outputs()),
        kernel_(ChosenPanelKernel()),
        columns_(kernel_.columns),
        panels_((outputs_ + columns_ - 1) / columns_),
        weight_(panels_ * columns_ * p.inputs),
        bias_(p.Bias()) {
    ParallelFor(panels_, [&](int64_t panel, int) {
      const int64_t first = panel * columns_, count = std::min(columns_, outputs_ - first);
      const float* rows[kProjectMaxColumns];
      for (int64_t n = 0; n < count; ++n) rows[n] = p.Row(first + n);
      PackPanel(rows, count, inputs_, columns_, weight_.data() + first * inputs_);
    });
  }

  void Run(ConstRows x, int64_t rows, Rows y, Into into) const override {
    const auto* floats = static_cast<const float*>(Convert(x, rows * inputs_, DType::kF32).data);
    const int64_t blocks = (rows + kProjectRows - 1) / kProjectRows;
    // A few tasks a thread, or the last one running would keep the others waiting.
    const int64_t wanted = 4 * Threads() / blocks + 1;
    const int64_t panels = std::clamp<int64_t>(panels_ / wanted, 1, kProjectPanels);
    const int64_t groups = (panels_ + panels - 1) / panels;
    ParallelFor(blocks * groups, [&](int64_t task, int) {
      const int64_t row = task / groups * kProjectRows, panel = task % groups * panels;
      const Task part{row, std::min(kProjectRows, rows - row), panel, std::min(panels, panels_ - panel)};
      if (y.dtype == DType::kF32) RunTask(floats, part, static_cast<float*>(y.data), into);
      if (y.dtype == DType::kBF16) RunTask(floats, part, static_cast<BFloat16*>(y.data), into);
    });
  }

  DType operand() const override { return DType::kF32; }

 private:
  static float Read(float value) { return value; }
  static float Read(BFloat16 value) { return ToFloat(value); }
  static void Write(float value, float& to) { to = value; }
  static void Write(float value, BFloat16& to) { to = ToBFloat16(value); }

  struct Task {
    int64_t row, rows, panel, panels;  // the first one, and how many
  };

  void Multiply(const float* x, const Task& task, float* sums) const {
    const T* packed = weight_.data() + task.panel * columns_ * inputs_;
    if constexpr (std::is_same_v<T, float>) kernel_.multiply(x, task.rows, inputs_, packed, task.panels, sums);
    else kernel_.multiply_bf16(x, task.rows, inputs_, packed, task.panels, sums);
  }

  template <class Y> void RunTask(const float* x, const Task& task, Y* y, Into into) const {
    alignas(kAlignment) float sums[kProjectRows * kProjectMaxColumns * kProjectPanels];
    Multiply(x + task.row * inputs_, task, sums);
    for (int64_t p = 0; p < task.panels; ++p) {
      const int64_t first = (task.panel + p) * columns_, count = std::min(columns_, outputs_ - first);
      const float* sums_p = sums + p * task.rows * columns_;
      for (int64_t r = 0; r < task.rows; ++r) {
        Y* to = y + (task.row + r) * outputs_ + first;
        for (int64_t n = 0; n < count; ++n) {
          const float value = sums_p[r * columns_ + n] + bias_[first + n];
          Write(into == Into::kAdd ? Read(to[n]) + value : value, to[n]);
        }
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
