// Choosing the next token from logits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "qkv/error.h"
#include "qkv/generate.h"
#include "runtime/random.h"

namespace qkv {
namespace {

struct Candidate {
  double score;  // the logit, then the probability
  int64_t token;
};

[[noreturn]] void Refuse(const char* where, const char* expected, double got) {
  throw Error(ErrorCode::kInvalidArgument, "out of range", where, expected, std::to_string(got));
}

std::vector<double> Penalised(std::span<const float> logits, std::span<const int64_t> text, double penalty) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (penalty == 1) return scores;
  std::vector<bool> seen(scores.size());
  for (int64_t token : text) {
    if (token < 0 || token >= static_cast<int64_t>(scores.size()) || seen[static_cast<size_t>(token)]) continue;
    seen[static_cast<size_t>(token)] = true;
    double& score = scores[static_cast<size_t>(token)];
    score = score > 0 ? score / penalty : score * penalty;
  }
  return scores;
}

int64_t Likeliest(const std::vector<double>& scores) {
  int64_t best = -1;
  double most = -std::numeric_limits<double>::infinity();
  for (size_t token = 0; token < scores.size(); ++token) {
    if (!(scores[token] > most)) continue;  // NaN is never chosen
    most = scores[token];
    best = static_cast<int64_t>(token);
  }
  if (best < 0 || std::isinf(most)) {
    throw Error(ErrorCode::kInvalidArgument, "no finite logit: the model's parameters may be damaged", "logits");
  }
  return best;
}

// Tokens and their probabilities, the likeliest first, that top_k leaves.
std::vector<Candidate> Ranked(const std::vector<double>& scores, const Sampling& sampling, double most) {
  std::vector<Candidate> candidates;
  candidates.reserve(scores.size());
  for (size_t token = 0; token < scores.size(); ++token) {
    if (scores[token] > -std::numeric_limits<double>::infinity()) {
      candidates.push_back({scores[token], static_cast<int64_t>(token)});
    }
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.token < b.token;
  };
  const size_t all = candidates.size();
  const size_t kept = sampling.top_k > 0 ? std::min(all, static_cast<size_t>(sampling.top_k)) : all;
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<int64_t>(kept), candidates.end(), before);
  candidates.resize(kept);
  double sum = 0;
  for (Candidate& candidate : candidates) {
    sum += candidate.score = std::exp((candidate.score - most) / sampling.temperature);
  }
  for (Candidate& candidate : candidates) candidate.score /= sum;
  return candidates;
}

// How many of the ranked candidates top_p and then min_p leave: at least the first.
size_t Kept(const std::vector<Candidate>& candidates, const Sampling& sampling) {
  size_t kept = 0;
  for (double held = 0; kept < candidates.size() && held < static_cast<double>(sampling.top_p); ++kept) {
    held += candidates[kept].score;
  }
  const double least = static_cast<double>(sampling.min_p) * candidates.front().score;
  while (kept > 1 && candidates[kept - 1].score < least) --kept;
  return kept;
}

// A number in [0, 1) of 53 bits.
double Uniform(uint64_t seed, int64_t step) {
  const auto count = static_cast<uint64_t>(step);
  const PhiloxCounter words =
      Philox4x32({static_cast<uint32_t>(count), static_cast<uint32_t>(count >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

void CheckSampling(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature)) {
    Refuse("temperature", "0 or more", sampling.temperature);
  }
  if (sampling.top_k < 0) Refuse("top_k", "0 or more", static_cast<double>(sampling.top_k));
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) Refuse("top_p", "above 0, at most 1", sampling.top_p);
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) Refuse("min_p", "0 to 1", sampling.min_p);
  if (!(sampling.repetition_penalty > 0) || std::isinf(sampling.repetition_penalty)) {
    Refuse("repetition_penalty", "above 0", sampling.repetition_penalty);
  }
}

int64_t ChooseToken(std::span<const float> logits, std::span<const int64_t> text, const Sampling& sampling,
                    int64_t step) {
  CheckSampling(sampling);
  const std::vector<double> scores = Penalised(logits, text, static_cast<double>(sampling.repetition_penalty));
  const int64_t likeliest = Likeliest(scores);
  if (sampling.temperature == 0) return likeliest;
  const std::vector<Candidate> candidates =
      Ranked(scores, sampling, scores[static_cast<size_t>(likeliest)]);
  const size_t kept = Kept(candidates, sampling);
  double held = 0;
  for (size_t i = 0; i < kept; ++i) held += candidates[i].score;
  double left = Uniform(sampling.seed, step) * held;
  for (size_t i = 0; i + 1 < kept; ++i) {
    left -= candidates[i].score;
    if (left < 0) return candidates[i].token;
  }
  return candidates[kept - 1].token;
}

}  // namespace qkv
