// How a decoder is trained.
#pragma once

#include <cstdint>

namespace qkv::train {

enum class Precision {
  kFloat32,
  kBFloat16,  // multiplies, and the activations kept for them, in bfloat16; parameters, residual stream, norms,
              // sums, gradients of parameters and the optimizer in float32
};

struct TrainOptions {
  int64_t steps = 1000;  // of the whole run, 0 for an untrained model: where the learning rate's cosine ends
  int64_t warmup_steps = 100;  // the learning rate rises linearly over them
  int64_t batch = 8;           // sequences of one forward and backward
  int64_t length = 256;        // tokens of each, at most the decoder's context
  int64_t accumulate = 1;      // batches whose gradients are averaged for one step
  double learning_rate = 1e-3, final_learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0.1;  // of matrices, decoupled: p -= rate * weight_decay * p
  double clip = 1.0;          // the largest global norm of the gradient; 0: no clipping
  uint64_t seed = 0;          // of the initial parameters and of dropout
  Precision precision = Precision::kFloat32;

  bool operator==(const TrainOptions&) const = default;
};

// Error{kInvalidArgument} naming the option that is out of range.
void CheckOptions(const TrainOptions& options);

// The learning rate of step `step` (0, 1, ...): linear warm-up to learning_rate, then half a cosine down to
// final_learning_rate at the last step (Loshchilov & Hutter 2017, https://arxiv.org/abs/1608.03983); flat after
// it.
double LearningRate(const TrainOptions& options, int64_t step);

}  // namespace qkv::train
