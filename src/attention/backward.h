// Running a validated backward problem on the fused kernels.
#pragma once

#include "attention/backward_problem.h"
#include "qkv/progress.h"

namespace qkv {

// Writes all gradients.
void RunBackward(const BackwardProblem& problem, const Progress& progress);

}  // namespace qkv
