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

}  // namespace qkv
