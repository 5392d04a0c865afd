// The second pass: what a capture keeps, from the rows' statistics that the forward pass left.
#pragma once

#include "attention/forward.h"
#include "attention/problem.h"
#include "qkv/capture.h"
#include "qkv/progress.h"

namespace qkv {

// Error{kInvalidArgument} for what cannot be asked of this problem.
void CheckCapture(const Problem& problem, const CaptureRequest& request, int64_t keys);

// Arrays of the right sizes, padded as qkv/capture.h says.
Capture EmptyCapture(const Problem& problem, const CaptureRequest& request, int64_t keys);

// keys: Tk, the longest sequence's when packed. Fills `capture`, made by EmptyCapture.
void RunCapture(const Problem& problem, const CaptureRequest& request, RowStatistics& statistics,
                const Progress& progress, Capture& capture);

}  // namespace qkv
