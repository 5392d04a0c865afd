#include "layers/swiglu.h"

#include <algorithm>

#include "kernels/gate.h"
#include "runtime/threads.h"

namespace qkv {

void SwiGlu(const float* gate_up, int64_t rows, int64_t width, float* out) {
  constexpr int64_t kTaskValues = 1 << 13;  // of one task: some microseconds of work
  const int64_t task_rows = std::max<int64_t>(1, kTaskValues / width);
  ParallelFor((rows + task_rows - 1) / task_rows, [&](int64_t task, int) {
    const int64_t first = task * task_rows;
    SwiGluRows(gate_up + 2 * first * width, std::min(task_rows, rows - first), width, out + first * width);
  });
}

}  // namespace qkv
