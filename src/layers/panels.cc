#include "layers/panels.h"

#include <algorithm>
#include <type_traits>

#include "kernels/pairs.h"
#include "runtime/aligned.h"
#include "runtime/half.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

void Write(float value, float& to) { to = value; }
void Write(float value, BFloat16& to) { to = ToBFloat16(value); }
float Read(float value) { return value; }
float Read(BFloat16 value) { return ToFloat(value); }

// Rows and panels of one task: the first one, and how many.
struct Task {
  int64_t row, rows, panel, panels;
};

// What panels give, and where it goes.
struct Outputs {
  const float* bias;  // (count), or null
  int64_t columns;    // of a panel
  int64_t count;      // a row's
  Rows y;
  Into into;
  void (*round)(const float* sums, const float* bias, int64_t count, BFloat16* y);
};

void Round(const float* sums, const float* bias, int64_t count, BFloat16* y) {
  for (int64_t n = 0; n < count; ++n) y[n] = ToBFloat16(bias == nullptr ? sums[n] : sums[n] + bias[n]);
}

// One row's sums of one panel, with the bias.
template <class Y>
void StoreRow(const float* sums, const float* bias, int64_t count, Y* y, const Outputs& outputs) {
  if constexpr (std::is_same_v<Y, BFloat16>) {
    if (outputs.into == Into::kOverwrite) return outputs.round(sums, bias, count, y);
  }
  for (int64_t n = 0; n < count; ++n) {
    const float value = bias == nullptr ? sums[n] : sums[n] + bias[n];
    Write(outputs.into == Into::kAdd ? Read(y[n]) + value : value, y[n]);
  }
}

// A task's sums (panels, rows, columns) to their places.
template <class Y>
void Store(const float* sums, const Task& task, const Outputs& outputs, Y* y) {
  for (int64_t p = 0; p < task.panels; ++p) {
    const int64_t first = (task.panel + p) * outputs.columns;
    const int64_t count = std::min(outputs.columns, outputs.count - first);
    const float* bias = outputs.bias == nullptr ? nullptr : outputs.bias + first;
    for (int64_t r = 0; r < task.rows; ++r, sums += outputs.columns) {
      StoreRow(sums, bias, count, y + (task.row + r) * outputs.count + first, outputs);
    }
  }
}

// Rows and panels of each task.
struct Cut {
  int64_t rows, panels;
};

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A few tasks a thread, or the last one running would keep the others waiting.
Cut CutFinely(int64_t rows, int64_t panels) {
  const int64_t tasks = 4 * Threads() / CeilDivide(rows, kProjectRows) + 1;
  return {kProjectRows, std::clamp<int64_t>(panels / tasks, 1, kProjectPanels)};
}

constexpr int64_t kTaskSums = kProjectRows * kProjectMaxColumns * kProjectPanels;
static_assert(kPairPanelRows * kPairPanelColumns <= kTaskSums);

// As many tasks for every thread, one for a small weight: the first piece of a task is not asked for ahead of
// time. rows <= kPairPanelRows.
Cut CutCoarsely(int64_t rows, int64_t panels) {
  constexpr int64_t kPanels = 16;
  const int64_t most = std::min(kPanels, kTaskSums / (kPairPanelColumns * rows)), threads = Threads();
  const int64_t tasks_each = CeilDivide(panels, most * threads);
  return {rows, CeilDivide(panels, tasks_each * threads)};
}

// multiply(task, sums) fills sums (panels, rows, columns) of the task.
template <class Multiply>
void RunTasks(const Outputs& outputs, int64_t rows, const Cut& cut, const Multiply& multiply) {
  const int64_t panels = CeilDivide(outputs.count, outputs.columns), groups = CeilDivide(panels, cut.panels);
  ParallelFor(CeilDivide(rows, cut.rows) * groups, [&](int64_t index, int) {
    const int64_t row = index / groups * cut.rows, panel = index % groups * cut.panels;
    const Task task{row, std::min(cut.rows, rows - row), panel, std::min(cut.panels, panels - panel)};
    alignas(kAlignment) float sums[kTaskSums];
    multiply(task, sums);
    if (outputs.y.dtype == DType::kF32) Store(sums, task, outputs, static_cast<float*>(outputs.y.data));
    if (outputs.y.dtype == DType::kBF16) Store(sums, task, outputs, static_cast<BFloat16*>(outputs.y.data));
  });
}

// x with rows of `padded` inputs, zeros at their ends: x itself where it has them, else the calling thread's
// memory, valid until its next call.
const BFloat16* Padded(const BFloat16* x, int64_t rows, int64_t inputs, int64_t padded) {
  if (inputs == padded) return x;
  thread_local AlignedBuffer<BFloat16> buffer;
  if (buffer.size() < rows * padded) buffer = AlignedBuffer<BFloat16>(rows * padded);
  for (int64_t r = 0; r < rows; ++r) {
    BFloat16* to = buffer.data() + r * padded;
    std::fill(std::copy_n(x + r * inputs, inputs, to), to + padded, BFloat16{});
  }
  return buffer.data();
}

}  // namespace

template <class T>
void MultiplyPanels(const Panels<T>& weight, ConstRows x, int64_t rows, Rows y, Into into) {
  const int64_t columns = weight.kernel.columns, inputs = weight.inputs;
  const auto* from = static_cast<const float*>(Convert(x, rows * inputs, DType::kF32).data);
  const Cut cut = CutFinely(rows, CeilDivide(weight.outputs, columns));
  RunTasks({weight.bias, columns, weight.outputs, y, into, Round}, rows, cut,
           [&](const Task& task, float* sums) {
             const float* task_x = from + task.row * inputs;
             const T* packed = weight.packed + task.panel * columns * inputs;
             if constexpr (std::is_same_v<T, float>) {
               weight.kernel.multiply(task_x, task.rows, inputs, packed, task.panels, sums);
             } else {
               weight.kernel.multiply_bf16(task_x, task.rows, inputs, packed, task.panels, sums);
             }
           });
}

template void MultiplyPanels(const Panels<float>&, ConstRows, int64_t, Rows, Into);
template void MultiplyPanels(const Panels<BFloat16>&, ConstRows, int64_t, Rows, Into);

void MultiplyPanels(const PairPanels& weight, ConstRows x, int64_t rows, Rows y, Into into) {
  constexpr int64_t kColumns = kPairPanelColumns;
  const int64_t steps = CeilDivide(weight.inputs, kPairDepth), padded = steps * kPairDepth;
  const auto* rounded = static_cast<const BFloat16*>(Convert(x, rows * weight.inputs, DType::kBF16).data);
  const BFloat16* from = Padded(rounded, rows, weight.inputs, padded);
  const Cut cut = CutCoarsely(rows, CeilDivide(weight.outputs, kColumns));
  const auto multiply = [&](const Task& task, float* sums) {
    weight.kernel.multiply(from, rows, steps, weight.packed + task.panel * kColumns * padded, task.panels,
                           sums);
  };
  RunTasks({weight.bias, kColumns, weight.outputs, y, into, weight.kernel.round}, rows, cut, multiply);
}

}  // namespace qkv
