// Running a validated problem on the double-precision reference: float64 inputs, and the oracle of the tests.
#pragma once

#include <cstdint>
#include <functional>

#include "attention/backward_problem.h"
#include "attention/problem.h"
#include "qkv/capture.h"

namespace qkv {

// body(n, first, last) for each of `count` heads, n, and rows [first, last) of `rows`: in parts of some hundredths of a
// second, between which the call can be cancelled.
void RunInParts(const Problem& problem, int64_t count, int64_t rows, const Progress& progress, int threads,
                const std::function<void(int64_t n, int64_t first, int64_t last)>& body);

// Writes out and lse. capture, where given, was made by EmptyCapture and is filled in.
void RunReference(const Problem& problem, const Progress& progress, const CaptureRequest* request,
                  Capture* capture);

// Writes the gradients.
void RunReferenceBackward(const BackwardProblem& problem, const Progress& progress);

}  // namespace qkv
