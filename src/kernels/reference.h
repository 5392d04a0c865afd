// The same mathematics in plain double loops: the oracle of every test, and what float64 inputs run on.
#pragma once

#include "kernels/problem.h"

namespace qkv {

enum class ScoreStage { kRaw, kSoftcapped, kBiased };

// The score of key j after a stage; at kBiased, what is blocked is -inf. Whatever the stage, j need not be visible.
double ReferenceScore(const Layout& layout, const ScoreRules& rules, const KeyValues& keys, const Row& row,
                      int64_t j, ScoreStage stage);

struct ReferenceRow {
  double lse = 0, max = 0, sum = 0;  // sum of exp(score - max), sink included
};

// out: (Dv); weights: (Tk), before dropout, or null.
ReferenceRow ReferenceAttention(const Layout& layout, const ScoreRules& rules, const KeyValues& keys,
                                const Row& row, double* out, double* weights);

// What a loss has by a row's outputs.
struct OutGradient {
  const void* dout = nullptr;  // (Dv), q's type, `channel` elements apart
  int64_t channel = 1;
  double dlse = 0;
};

// What one row's gradients are added to.
struct ReferenceGradients {
  double* dq = nullptr;     // (D)
  double* dk = nullptr;     // (Tk, D)
  double* dv = nullptr;     // (Tk, Dv)
  double* dbias = nullptr;  // key j's at dbias + j * dbias_key; or null
  int64_t dbias_key = 0;
  double* dsink = nullptr;  // of the row's head, or null
};

// A pair whose score is -inf is as a blocked one: it neither gives nor gets. Nor does one whose softcap is flat.
void ReferenceBackward(const Layout& layout, const ScoreRules& rules, const KeyValues& keys, const Row& row,
                       const OutGradient& gradient, const ReferenceGradients& to);

}  // namespace qkv
