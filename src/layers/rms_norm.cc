#include "layers/rms_norm.h"

#include <algorithm>

#include "kernels/norm.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

constexpr int64_t kTaskValues = 1 << 14;  // of one task: some microseconds of work

int64_t TaskRows(int64_t values) { return std::max<int64_t>(1, kTaskValues / values); }

}  // namespace

RmsNorm::RmsNorm(std::span<const float> gain, float epsilon)
    : gain_(gain.begin(), gain.end()), epsilon_(epsilon) {}

void RmsNorm::Forward(const float* x, int64_t rows, float* out) const {
  const auto width = static_cast<int64_t>(gain_.size());
  const RmsNormParameters parameters{gain_.data(), width, epsilon_};
  const int64_t task_rows = TaskRows(width);
  ParallelFor((rows + task_rows - 1) / task_rows, [&](int64_t task, int) {
    const int64_t first = task * task_rows;
    RmsNormRows(x + first * width, width, std::min(task_rows, rows - first), parameters, out + first * width,
                width);
  });
}

void RmsNorm::ForwardHeads(float* x, int64_t rows, int64_t stride, int64_t heads) const {
  const auto width = static_cast<int64_t>(gain_.size());
  const RmsNormParameters parameters{gain_.data(), width, epsilon_};
  const int64_t task_rows = TaskRows(width * heads);
  ParallelFor((rows + task_rows - 1) / task_rows, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * task_rows);
    for (int64_t row = task * task_rows; row < end; ++row) {
      RmsNormRows(x + row * stride, width, heads, parameters, x + row * stride, width);
    }
  });
}

}  // namespace qkv
