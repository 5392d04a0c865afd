// Running a validated problem on the double-precision reference: float64 inputs, and the oracle of the tests.
#pragma once

#include "attention/problem.h"
#include "qkv/capture.h"

namespace qkv {

// Writes out and lse. capture, where given, was made by EmptyCapture and is filled in.
void RunReference(const Problem& problem, const Progress& progress, const CaptureRequest* request,
                  Capture* capture);

}  // namespace qkv
