// Running a validated backward problem on the fused kernels.
#pragma once

#include <cstdint>

#include "attention/backward_problem.h"
#include "qkv/progress.h"

namespace qkv {

// From these sizes on, of rows and keys of a KV head and channels of keys and of values, gradients by float32
// and float16 run as triples where the machine has them (kernels/triples.h). Measured with 12 heads: a causal
// call is level at some 600 rows, one without a mask at 256.
struct LeastForTripleGradients {
  int64_t rows = 768, keys = 768, channels = 49;
};
void SetLeastForTripleGradients(LeastForTripleGradients least);  // for tests, which try them on small calls

// Writes all gradients.
void RunBackward(const BackwardProblem& problem, const Progress& progress);

}  // namespace qkv
