#include "view/worked.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "view/excerpt.h"
#include "view/explain_words.h"

namespace qkv::view {
namespace {

constexpr int64_t kTerms = 3;  // of a sum that are written out

std::string Factor(float value) {
  const std::string number = Number(value);
  return number.starts_with("\u2212") ? fmt::format("({})", number) : number;
}

// "1.2·0.3 + 0.5·(-0.1) + … (32 products)": pair(n) gives the factors of the n-th.
template <class Pair>
std::string Products(int64_t count, const Pair& pair) {
  std::string text;
  for (int64_t n = 0; n < std::min(count, kTerms); ++n) {
    const auto [a, b] = pair(n);
    text += fmt::format("{}{}\u00b7{}", n == 0 ? "" : " + ", n == 0 ? Number(a) : Factor(a), Factor(b));
  }
  return count > kTerms ? text + fmt::format(" + \u2026 ({} products)", count) : text;
}

// "head 3, " where all heads are explained.
std::string HeadPrefix(const Explanation& e) {
  return e.level == ExplainLevel::kMultiHead ? fmt::format("head {}: ", StrongestHead(e)) : "";
}

const ExplainedTensor& Tensor(const Explanation& e, StepKind kind, const char* symbol) {
  return *e.Find(kind, symbol);
}

int64_t KeyHead(const Explanation& e, int64_t head) { return head * e.kv_heads / e.heads; }

// The marked token's row of a weights' tensor.
std::vector<float> Row(const Explanation& e, const ExplainedTensor& tensor, int64_t head) {
  std::vector<float> row(e.tokens.size());
  for (size_t j = 0; j < row.size(); ++j) row[j] = At(tensor, head, e.token, static_cast<int64_t>(j));
  return row;
}

// In nats.
double Entropy(const std::vector<float>& row) {
  double sum = 0;
  for (const double p : row) sum -= p > 0 ? p * std::log(p) : 0;
  return sum;
}

std::vector<int64_t> Strongest(const std::vector<float>& row, int64_t count) {
  std::vector<int64_t> keys(row.size());
  std::iota(keys.begin(), keys.end(), 0);
  std::stable_sort(keys.begin(), keys.end(), [&](int64_t a, int64_t b) {
    return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
  });
  keys.resize(std::min(keys.size(), static_cast<size_t>(count)));
  return keys;
}

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  for (size_t j = 0; j < a.size(); ++j) largest = std::max(largest, std::abs(a[j] - b[j]));
  return largest;
}

std::string Multiplied(const Explanation& e, StepKind kind, const char* to, const char* by, const char* bias,
                       const ExplainedTensor& from) {
  const ExplainedTensor& weight = Tensor(e, kind, by);
  const ExplainedTensor* added = e.Find(kind, bias);
  std::string text = fmt::format("{}({})\u2080 = ", to, Quoted(e, e.token));
  text += Products(weight.shape[0],
                   [&](int64_t n) { return std::pair(At(from, 0, e.token, n), At(weight, 0, n, 0)); });
  if (added != nullptr) text += fmt::format(" + {}", Factor(added->values[0]));
  const char symbol[] = {static_cast<char>(to[0] - 'a' + 'A'), 0};
  return text + fmt::format(" = {}", Number(At(Tensor(e, kind, symbol), 0, e.token, 0)));
}

}  // namespace

std::string WorkedProjection(const Explanation& e) {
  return Multiplied(e, StepKind::kProject, "q", "W_Q", "b_Q", InputOf(e));
}

std::string WorkedNorm(const Explanation& e) {
  const ExplainedTensor &h = Tensor(e, StepKind::kInput, "H"), &gain = Tensor(e, StepKind::kNorm, "g");
  const ExplainedTensor* shift = e.Find(StepKind::kNorm, "b");
  double mean = 0, squares = 0;
  for (int64_t c = 0; c < e.d_in; ++c) mean += e.norm == ExplainedNorm::kLayer ? At(h, 0, e.token, c) : 0.0;
  mean /= static_cast<double>(e.d_in);
  for (int64_t c = 0; c < e.d_in; ++c) squares += std::pow(At(h, 0, e.token, c) - mean, 2);
  const double size = std::sqrt(squares / static_cast<double>(e.d_in) + e.epsilon);
  const float first = At(h, 0, e.token, 0);
  const std::string above = e.norm == ExplainedNorm::kLayer
                                ? fmt::format("({} \u2212 {})", Number(first), Factor(static_cast<float>(mean)))
                                : Number(first);
  return fmt::format("x({})\u2080 = {} / {} \u00b7 {}{} = {}", Quoted(e, e.token), above,
                     Number(static_cast<float>(size)), Factor(gain.values[0]),
                     shift != nullptr ? " + " + Factor(shift->values[0]) : "",
                     Number(At(InputOf(e), 0, e.token, 0)));
}

// The first pair of the marked token's query.
std::string WorkedTurn(const Explanation& e) {
  const int64_t head = StrongestHead(e), pairs = Tensor(e, StepKind::kTurn, "cos").shape[2];
  const int64_t other = e.pairs == ExplainedPairs::kAdjacent ? 1 : pairs;
  const ExplainedTensor* q = e.Find(StepKind::kHeadNorm, "Q");
  if (q == nullptr)
    q = e.Find(e.level == ExplainLevel::kMultiHead ? StepKind::kSplit : StepKind::kProject, "Q");
  const float cos = At(Tensor(e, StepKind::kTurn, "cos"), 0, e.token, 0);
  const float sin = At(Tensor(e, StepKind::kTurn, "sin"), 0, e.token, 0);
  return HeadPrefix(e) + fmt::format("q\u2032({})\u2080 = {}\u00b7{} \u2212 {}\u00b7{} = {}",
                                     Quoted(e, e.token), Number(At(*q, head, e.token, 0)), Factor(cos),
                                     Factor(At(*q, head, e.token, other)), Factor(sin),
                                     Number(At(VectorsOf(e, "Q"), head, e.token, 0)));
}

std::string WorkedScore(const Explanation& e) {
  const int64_t head = StrongestHead(e), key = StrongestKey(e, head);
  const ExplainedTensor &q = VectorsOf(e, "Q"), &k = VectorsOf(e, "K");
  return HeadPrefix(e) + fmt::format("s({}, {}) = ", Quoted(e, e.token), Quoted(e, key)) +
         Products(
             e.d_k,
             [&](int64_t n) { return std::pair(At(q, head, e.token, n), At(k, KeyHead(e, head), key, n)); }) +
         fmt::format(" = {}", Number(At(Tensor(e, StepKind::kScores, "S"), head, e.token, key)));
}

std::string WorkedScale(const Explanation& e) {
  const int64_t head = StrongestHead(e), key = StrongestKey(e, head);
  return HeadPrefix(e) + fmt::format("s\u2032({}, {}) = {} / {:.3f} = {}", Quoted(e, e.token), Quoted(e, key),
                                     Number(At(Tensor(e, StepKind::kScores, "S"), head, e.token, key)),
                                     1 / e.scale,
                                     Number(At(Tensor(e, StepKind::kScale, "S'"), head, e.token, key)));
}

std::vector<std::string> WorkedSoftmax(const Explanation& e) {
  const int64_t head = StrongestHead(e), key = StrongestKey(e, head);
  const bool simplified = e.level == ExplainLevel::kSimplified;
  const ExplainedTensor& scores = e.causal     ? Tensor(e, StepKind::kMask, "M")
                                  : simplified ? Tensor(e, StepKind::kScores, "S")
                                               : Tensor(e, StepKind::kScale, "S'");
  const std::vector<float> row = Row(e, Tensor(e, StepKind::kSoftmax, "A"), head);
  std::string sum, list;
  for (const int64_t other : Strongest(row, std::min(kTerms, VisibleKeys(e)))) {
    sum += fmt::format("{}exp({})", sum.empty() ? "" : " + ", Number(At(scores, head, e.token, other)));
  }
  if (VisibleKeys(e) > kTerms) sum += fmt::format(" + \u2026 ({} terms)", VisibleKeys(e));
  constexpr int64_t kListed = 5;
  for (const int64_t other : Strongest(row, std::min(kListed, VisibleKeys(e)))) {
    list +=
        fmt::format("{}{} {:.3f}", list.empty() ? "" : ", ", Quoted(e, other), row[static_cast<size_t>(other)]);
  }
  return {HeadPrefix(e) + fmt::format("\u03b1({}, {}) = exp({}) / ({}) = {:.3f}", Quoted(e, e.token),
                                      Quoted(e, key), Number(At(scores, head, e.token, key)), sum,
                                      row[static_cast<size_t>(key)]),
          HeadPrefix(e) + fmt::format("{} attends to {}", Quoted(e, e.token), list)};
}

std::vector<std::string> WorkedSaturation(const Explanation& e) {
  const std::vector<float> scaled = Row(e, Tensor(e, StepKind::kSoftmax, "A"), 0);
  const std::vector<float> unscaled = Row(e, Tensor(e, StepKind::kSaturation, "U"), 0);
  const auto line = [](const char* which, const std::vector<float>& row) {
    const float peak = *std::max_element(row.begin(), row.end());
    return fmt::format("{}: largest weight {:.3f}, its slope {:.3f}; entropy {:.3f} nats", which, peak,
                       peak * (1 - peak), Entropy(row));
  };
  return {line("scaled", scaled), line("not scaled", unscaled)};
}

std::vector<std::string> WorkedOtherOrder(const Explanation& e) {
  const std::vector<float> row = Row(e, Tensor(e, StepKind::kSoftmax, "A"), 0);
  const auto difference = [&](const char* symbol) {
    return LargestDifference(row, Row(e, Tensor(e, StepKind::kOtherOrder, symbol), 0));
  };
  return {fmt::format(
      "from the weights above this row differs by at most {:.1e} when divided by its sum, by {:.3f} "
      "after a second softmax",
      difference("R"), difference("P"))};
}

std::vector<std::string> WorkedDropout(const Explanation& e) {
  const int64_t head = StrongestHead(e);
  const std::vector<float> row = Row(e, Tensor(e, StepKind::kDropout, "A'"), head);
  const std::vector<float> whole = Row(e, Tensor(e, StepKind::kSoftmax, "A"), head);
  int64_t dropped = 0;
  for (size_t j = 0; j < row.size(); ++j) dropped += row[j] == 0 && whole[j] > 0;
  return {HeadPrefix(e) + fmt::format("{}: {} of {} weights dropped, the row's sum is {:.3f}",
                                      Quoted(e, e.token), dropped, VisibleKeys(e),
                                      std::accumulate(row.begin(), row.end(), 0.0))};
}

std::string WorkedSum(const Explanation& e) {
  const int64_t head = StrongestHead(e);
  const std::vector<float> row = Row(e, Tensor(e, StepKind::kSoftmax, "A"), head);
  const std::vector<int64_t> order = Strongest(row, static_cast<int64_t>(row.size()));
  const ExplainedTensor& v = VectorsOf(e, "V");
  return HeadPrefix(e) + fmt::format("z({})\u2080 = ", Quoted(e, e.token)) +
         Products(VisibleKeys(e),
                  [&](int64_t n) {
                    const int64_t key = order[static_cast<size_t>(n)];
                    return std::pair(row[static_cast<size_t>(key)], At(v, KeyHead(e, head), key, 0));
                  }) +
         fmt::format(" = {}", Number(At(Tensor(e, StepKind::kSum, "Z"), head, e.token, 0)));
}

std::string WorkedOutput(const Explanation& e) {
  return Multiplied(e, StepKind::kOutput, "y", "W_O", "b_O", Tensor(e, StepKind::kConcat, "Z"));
}

}  // namespace qkv::view
