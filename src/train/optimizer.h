// The gradient's norm and the step that follows from it, over flat arrays.
#pragma once

#include "train/options.h"
#include "train/parameters.h"
#include "train/trainer.h"

namespace qkv::train {

// The global norm of a gradient. The same bits for any number of threads.
double GradientNorm(const ParameterTable& table, const float* gradient);

// One AdamW step of number state.step, with the gradient cut to options.clip where its norm is above; counts
// the step. The same bits for any number of threads.
void ApplyStep(const ParameterTable& table, const TrainOptions& options, const float* gradient, double norm,
               TrainState& state);

}  // namespace qkv::train
