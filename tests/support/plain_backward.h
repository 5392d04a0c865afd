// Gradients of plain attention, in plain loops over whole rows: in double they are what is right; in float32,
// with everything in between rounded to a type, they are the naive ones whose error bounds the library's.
#pragma once

#include <vector>

#include "support/plain_attention.h"

namespace qkv::test {

// What a loss has by the call's outputs.
struct PlainOutGradients {
  std::vector<double> dout;  // (B, Hq, Tq, Dv)
  std::vector<double> dlse;  // (B, Hq, Tq), or empty
};

struct PlainGradients {
  std::vector<double> dq, dk, dv;  // (B, Hq, Tq, D), (B, Hkv, Tk, D), (B, Hkv, Tk, Dv)
  std::vector<double> dbias;       // as the bias's values
  std::vector<double> dsink;       // (Hq)
};

PlainGradients ExactBackward(const PlainCall& call, const PlainOutGradients& by);
PlainGradients NaiveBackward(const PlainCall& call, const PlainOutGradients& by, DType type);
// For each element the sum of the magnitudes of its terms: what roundings are relative to.
PlainGradients GradientMagnitudes(const PlainCall& call, const PlainOutGradients& by);

}  // namespace qkv::test
