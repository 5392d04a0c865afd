#include "layers/layer_norm.h"

#include <algorithm>

#include "kernels/norm.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// Values normalised by one task: about 10 us, several times what handing out a task costs.
constexpr int64_t kTaskValues = 16384;

}  // namespace

LayerNorm::LayerNorm(std::span<const float> gain, std::span<const float> shift, float epsilon)
    : gain_(gain.begin(), gain.end()), shift_(shift.begin(), shift.end()), epsilon_(epsilon) {}

void LayerNorm::Forward(const float* x, int64_t rows, float* out, BFloat16* rounded) const {
  const auto width = static_cast<int64_t>(gain_.size());
  const int64_t task_rows = std::max<int64_t>(1, kTaskValues / width);
  ParallelFor((rows + task_rows - 1) / task_rows, [&](int64_t task, int) {
    const int64_t first = task * task_rows;
    ForwardHere(x + first * width, std::min(task_rows, rows - first), out + first * width,
                rounded == nullptr ? nullptr : rounded + first * width);
  });
}

void LayerNorm::ForwardHere(const float* x, int64_t rows, float* out, BFloat16* rounded) const {
  LayerNormRows(x, rows, {gain_.data(), shift_.data(), static_cast<int64_t>(gain_.size()), epsilon_}, out,
                rounded);
}

}  // namespace qkv
