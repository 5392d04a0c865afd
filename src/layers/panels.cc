#include "layers/panels.h"

#include <algorithm>
#include <type_traits>

#include "runtime/aligned.h"
#include "runtime/half.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

struct Task {
  int64_t row, rows, panel, panels;  // the first one, and how many
};

float Read(float value) { return value; }
float Read(BFloat16 value) { return ToFloat(value); }
void Write(float value, float& to) { to = value; }
void Write(float value, BFloat16& to) { to = ToBFloat16(value); }

template <class T> void Multiply(const Panels<T>& weight, const float* x, const Task& task, float* sums) {
  const T* packed = weight.packed + task.panel * weight.kernel.columns * weight.inputs;
  if constexpr (std::is_same_v<T, float>) {
    weight.kernel.multiply(x, task.rows, weight.inputs, packed, task.panels, sums);
  } else {
    weight.kernel.multiply_bf16(x, task.rows, weight.inputs, packed, task.panels, sums);
  }
}

// The sums of one panel, with the bias, to their places.
template <class Y>
void Store(const float* sums, const float* bias, int64_t columns, int64_t rows, int64_t stride, int64_t count, Y* y,
           Into into) {
  for (int64_t r = 0; r < rows; ++r, y += stride, sums += columns) {
    for (int64_t n = 0; n < count; ++n) {
      const float value = bias == nullptr ? sums[n] : sums[n] + bias[n];
      Write(into == Into::kAdd ? Read(y[n]) + value : value, y[n]);
    }
  }
}

template <class T, class Y>
void RunTask(const Panels<T>& weight, const float* x, const Task& task, Y* y, Into into) {
  const int64_t columns = weight.kernel.columns, outputs = weight.outputs;
  alignas(kAlignment) float sums[kProjectRows * kProjectMaxColumns * kProjectPanels];
  Multiply(weight, x + task.row * weight.inputs, task, sums);
  for (int64_t p = 0; p < task.panels; ++p) {
    const int64_t first = (task.panel + p) * columns, count = std::min(columns, outputs - first);
    const float* bias = weight.bias == nullptr ? nullptr : weight.bias + first;
    Store(sums + p * task.rows * columns, bias, columns, task.rows, outputs, count, y + task.row * outputs + first,
          into);
  }
}

}  // namespace

template <class T> void MultiplyPanels(const Panels<T>& weight, ConstRows x, int64_t rows, Rows y, Into into) {
  const auto* floats = static_cast<const float*>(Convert(x, rows * weight.inputs, DType::kF32).data);
  const int64_t all = (weight.outputs + weight.kernel.columns - 1) / weight.kernel.columns;
  const int64_t blocks = (rows + kProjectRows - 1) / kProjectRows;
  // A few tasks a thread, or the last one running would keep the others waiting.
  const int64_t wanted = 4 * Threads() / blocks + 1;
  const int64_t panels = std::clamp<int64_t>(all / wanted, 1, kProjectPanels);
  const int64_t groups = (all + panels - 1) / panels;
  ParallelFor(blocks * groups, [&](int64_t task, int) {
    const int64_t row = task / groups * kProjectRows, panel = task % groups * panels;
    const Task part{row, std::min(kProjectRows, rows - row), panel, std::min(panels, all - panel)};
    if (y.dtype == DType::kF32) RunTask(weight, floats, part, static_cast<float*>(y.data), into);
    if (y.dtype == DType::kBF16) RunTask(weight, floats, part, static_cast<BFloat16*>(y.data), into);
  });
}

template void MultiplyPanels(const Panels<float>&, ConstRows, int64_t, Rows, Into);
template void MultiplyPanels(const Panels<BFloat16>&, ConstRows, int64_t, Rows, Into);

}  // namespace qkv
