#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/load.h"

namespace qkv {

double ReferenceScore(const Layout& layout, const ScoreRules& rules, const KeyValues& keys, const Row& row,
                      int64_t j, ScoreStage stage) {
  double dot = 0;
  for (int64_t c = 0; c < layout.d; ++c) {
    dot += LoadDouble(row.q, layout.q_dtype, c * layout.q_channel) *
           LoadDouble(keys.k, j, c);
  }
  double score = dot * layout.scale;
  if (stage == ScoreStage::kRaw) return score;
  if (rules.softcap) score = *rules.softcap * std::tanh(score / *rules.softcap);
  if (stage == ScoreStage::kSoftcapped) return score;
  if (!IsVisible(rules, row, j)) return -HUGE_VAL;
  if (rules.has_alibi) score -= row.slope * std::abs(static_cast<double>(row.position - j));
  if (rules.has_bias) score += LoadDouble(row.bias, rules.bias_dtype, j * rules.bias_key);
  return score;
}

ReferenceRow ReferenceAttention(const Layout& layout, const ScoreRules& rules, const KeyValues& keys,
                                const Row& row, double* out, double* weights) {
  std::fill_n(out, layout.dv, 0.0);
  if (weights != nullptr) std::fill_n(weights, keys.length, 0.0);
  ReferenceRow result{-HUGE_VAL, -HUGE_VAL, 0};
  std::vector<double> scores;
  std::vector<int64_t> visible;
  for (int64_t j = row.first; j < row.last; ++j) {
    if (!IsVisible(rules, row, j)) continue;
    visible.push_back(j);
    scores.push_back(ReferenceScore(layout, rules, keys, row, j, ScoreStage::kBiased));
  }
  for (double s : scores) result.max = !(s <= result.max) ? s : result.max;
  if (row.sink != nullptr) result.max = std::max(result.max, static_cast<double>(*row.sink));
  if (result.max == -HUGE_VAL) return result;
  for (double& s : scores) result.sum += s = std::exp(s - result.max);
  if (row.sink != nullptr) result.sum += std::exp(*row.sink - result.max);
  for (size_t n = 0; n < visible.size(); ++n) {
    const int64_t j = visible[n];
    const double weight = scores[n] / result.sum;
    if (weights != nullptr) weights[j] = weight;
    if (rules.dropout && !rules.dropout->Kept(row.batch, row.head, row.position, j)) continue;
    const double kept = weight * rules.dropout_scale;
    for (int64_t c = 0; c < layout.dv; ++c) {
      out[c] += kept * LoadDouble(keys.v, j, c);
    }
  }
  result.lse = result.max + std::log(result.sum);
  return result;
}

}  // namespace qkv
