// The second pass: what a capture keeps, from the rows' statistics that the forward pass left.
#pragma once

#include "attention/forward.h"
#include "attention/problem.h"
#include "qkv/capture.h"
#include "qkv/progress.h"

namespace qkv {

// queries, keys: Tq and Tk, the longest sequence's when packed.
// Error{kInvalidArgument} for what cannot be asked of so many.
void CheckCapture(const CaptureRequest& request, int64_t queries, int64_t keys);

// Arrays of the right sizes, padded as qkv/capture.h says.
Capture EmptyCapture(const Problem& problem, const CaptureRequest& request, int64_t queries, int64_t keys);

// Fills `capture`, made by EmptyCapture. jobs: how the forward pass made the rows.
void RunCapture(const Problem& problem, const CaptureRequest& request, const std::vector<NumberedJobs>& jobs,
                RowStatistics& statistics, const Progress& progress, Capture& capture);

}  // namespace qkv
