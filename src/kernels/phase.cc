#include "kernels/phase.h"

namespace qkv {

const char* NameOf(Phase phase) {
  switch (phase) {
    case Phase::kPack: return "pack";
    case Phase::kScores: return "scores";
    case Phase::kSoftmax: return "softmax";
    case Phase::kValues: return "values";
    case Phase::kMerge: return "merge";
    case Phase::kRows: return "rows";
    case Phase::kLook: return "look";
    case Phase::kGradients: return "gradients";
  }
  return "unknown";
}

}  // namespace qkv
