#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/load.h"

namespace qkv {

namespace {

double RawScore(const Layout& layout, const KeyValues& keys, const Row& row, int64_t j) {
  double dot = 0;
  for (int64_t c = 0; c < layout.d; ++c) {
    dot += LoadDouble(row.q, layout.q_dtype, c * layout.q_channel) * LoadDouble(keys.k, j, c);
  }
  return dot * layout.scale;
}

double ScoreAt(const ScoreRules& rules, const Row& row, int64_t j, ScoreStage stage, double score) {
  if (stage == ScoreStage::kRaw) return score;
  if (rules.softcap) score = *rules.softcap * std::tanh(score / *rules.softcap);
  if (stage == ScoreStage::kSoftcapped) return score;
  if (!IsVisible(rules, row, j)) return -HUGE_VAL;
  if (rules.has_alibi) score -= row.slope * std::abs(static_cast<double>(row.position - j));
  if (rules.has_bias) score += LoadDouble(row.bias, rules.bias_dtype, j * rules.bias_key);
  return score;
}

bool IsKept(const ScoreRules& rules, const Row& row, int64_t j) {
  return !rules.dropout || rules.dropout->Kept(row.batch, row.head, row.position, j);
}

}  // namespace

double ReferenceScore(const Layout& layout, const ScoreRules& rules, const KeyValues& keys, const Row& row,
                      int64_t j, ScoreStage stage) {
  return ScoreAt(rules, row, j, stage, RawScore(layout, keys, row, j));
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
    if (!IsKept(rules, row, j)) continue;
    const double kept = weight * rules.dropout_scale;
    for (int64_t c = 0; c < layout.dv; ++c) {
      out[c] += kept * LoadDouble(keys.v, j, c);
    }
  }
  result.lse = result.max + std::log(result.sum);
  return result;
}

namespace {

// A visible key of a row.
struct Pair {
  int64_t key = 0;
  bool kept = true;       // by dropout
  double slope = 1;       // of the softcap
  double weight = 0;      // first its score
  double dweight = 0;     // dropout's factor included
};

struct RowPairs {
  std::vector<Pair> pairs;
  double sink_weight = 0;
};

RowPairs WeightsOf(const Layout& layout, const ScoreRules& rules, const KeyValues& keys, const Row& row) {
  RowPairs result;
  double max = row.sink == nullptr ? -HUGE_VAL : *row.sink, sum = 0;
  for (int64_t j = row.first; j < row.last; ++j) {
    if (!IsVisible(rules, row, j)) continue;
    Pair pair{j};
    const double raw = RawScore(layout, keys, row, j);
    pair.weight = ScoreAt(rules, row, j, ScoreStage::kBiased, raw);
    if (pair.weight == -HUGE_VAL) continue;
    if (rules.softcap) pair.slope = std::pow(std::cosh(raw / *rules.softcap), -2);
    pair.kept = IsKept(rules, row, j);
    max = std::max(pair.weight, max);
    result.pairs.push_back(pair);
  }
  for (Pair& pair : result.pairs) sum += pair.weight = std::exp(pair.weight - max);
  if (row.sink != nullptr && max != -HUGE_VAL) sum += result.sink_weight = std::exp(*row.sink - max);
  for (Pair& pair : result.pairs) pair.weight /= sum;
  if (result.sink_weight != 0) result.sink_weight /= sum;
  return result;
}

void AddScaled(double factor, const Strided& from, int64_t key, int64_t count, double* to) {
  for (int64_t c = 0; c < count; ++c) to[c] += factor * LoadDouble(from, key, c);
}

void AddScaled(double factor, const void* from, DType dtype, int64_t channel, int64_t count, double* to) {
  for (int64_t c = 0; c < count; ++c) to[c] += factor * LoadDouble(from, dtype, c * channel);
}

}  // namespace

void ReferenceBackward(const Layout& layout, const ScoreRules& rules, const KeyValues& keys, const Row& row,
                       const OutGradient& gradient, const ReferenceGradients& to) {
  RowPairs row_pairs = WeightsOf(layout, rules, keys, row);
  double delta = -gradient.dlse;
  for (Pair& pair : row_pairs.pairs) {
    if (!pair.kept) continue;
    for (int64_t c = 0; c < layout.dv; ++c) {
      pair.dweight += LoadDouble(gradient.dout, layout.q_dtype, c * gradient.channel) * LoadDouble(keys.v, pair.key, c);
    }
    pair.dweight *= rules.dropout_scale;
    delta += pair.weight * pair.dweight;
  }
  if (to.dsink != nullptr && row_pairs.sink_weight != 0) *to.dsink -= row_pairs.sink_weight * delta;
  for (const Pair& pair : row_pairs.pairs) {
    const double dscore = pair.weight * (pair.dweight - delta), draw = dscore * pair.slope * layout.scale;
    if (to.dbias != nullptr) to.dbias[pair.key * to.dbias_key] += dscore;
    if (draw != 0) {
      AddScaled(draw, keys.k, pair.key, layout.d, to.dq);
      AddScaled(draw, row.q, layout.q_dtype, layout.q_channel, layout.d, to.dk + pair.key * layout.d);
    }
    if (!pair.kept) continue;
    AddScaled(pair.weight * rules.dropout_scale, gradient.dout, layout.q_dtype, gradient.channel, layout.dv,
              to.dv + pair.key * layout.dv);
  }
}

}  // namespace qkv
