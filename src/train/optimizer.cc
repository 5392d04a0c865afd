#include "train/optimizer.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/optimizer.h"
#include "runtime/threads.h"

namespace qkv::train {
namespace {

constexpr int64_t kPiece = 65536;  // floats of one task: 256 KiB of each array

int64_t Pieces(int64_t count) { return (count + kPiece - 1) / kPiece; }

AdamWStep StepOf(const TrainOptions& o, int64_t step, double norm) {
  const double rate = LearningRate(o, step), count = static_cast<double>(step + 1);
  const bool clipped = o.clip > 0 && norm > o.clip;
  AdamWStep adam;
  adam.gradient_scale = static_cast<float>(clipped ? o.clip / norm : 1.0);
  adam.beta1 = static_cast<float>(o.beta1);
  adam.beta2 = static_cast<float>(o.beta2);
  adam.epsilon = static_cast<float>(o.epsilon);
  adam.rate = static_cast<float>(rate);
  adam.shrink = static_cast<float>(rate * o.weight_decay);
  adam.correction1 = static_cast<float>(1.0 - std::pow(o.beta1, count));
  adam.correction2 = static_cast<float>(1.0 - std::pow(o.beta2, count));
  return adam;
}

}  // namespace

double GradientNorm(const ParameterTable& table, const float* gradient) {
  std::vector<double> squares(static_cast<size_t>(Pieces(table.total())));
  ParallelFor(static_cast<int64_t>(squares.size()), [&](int64_t piece, int) {
    const int64_t first = piece * kPiece;
    squares[static_cast<size_t>(piece)] =
        SumOfSquares(gradient + first, std::min(kPiece, table.total() - first));
  });
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

void ApplyStep(const ParameterTable& table, const TrainOptions& options, const float* gradient, double norm,
               TrainState& state) {
  struct Task {
    int64_t first, count;
    Decay decay;
  };
  std::vector<Task> tasks;
  for (const ParameterEntry& entry : table.entries()) {
    for (int64_t at = 0; at < entry.size(); at += kPiece) {
      tasks.push_back({entry.offset + at, std::min(kPiece, entry.size() - at), entry.decay});
    }
  }
  const AdamWStep decayed = StepOf(options, state.step, norm);
  AdamWStep plain = decayed;
  plain.shrink = 0;
  ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t i, int) {
    const Task& task = tasks[static_cast<size_t>(i)];
    AdamWUpdate(task.decay == Decay::kWeight ? decayed : plain, gradient + task.first, task.count,
                state.parameters.data() + task.first, state.first_moment.data() + task.first,
                state.second_moment.data() + task.first);
  });
  ++state.step;
}

}  // namespace qkv::train
