#include "support/expected.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "support/tolerance.h"

namespace qkv::test {

namespace {

template <class Body>
std::string ForEachRow(const PlainCall& call, int64_t captured_rows, const Body& body) {
  for (int64_t b = 0; b < call.batch; ++b) {
    for (int64_t h = 0; h < call.q_heads; ++h) {
      for (int64_t i = 0; i < call.rows[static_cast<size_t>(b)]; ++i) {
        const std::string wrong = body(RowAt{b, h, i, static_cast<size_t>(call.Row(b, h, i)),
                                             static_cast<size_t>((b * call.q_heads + h) * captured_rows + i)});
        if (wrong.empty()) continue;
        return wrong + ", at b " + std::to_string(b) + " h " + std::to_string(h) + " i " + std::to_string(i);
      }
    }
  }
  return {};
}

std::string Differs(const char* what, double expected, double got, double bound) {
  std::ostringstream text;
  text.precision(9);
  text << what << ": expected " << expected << ", got " << got << ", bound " << bound;
  return text.str();
}

bool IsWithin(double expected, double got, double bound) {
  if (expected == got) return true;  // infinities too
  return std::abs(expected - got) <= bound;
}

double LargestError(const PlainCall& call, const std::vector<double>& exact, const std::vector<double>& other) {
  double largest = 0;
  ForEachRow(call, call.tq, [&](const RowAt& at) {
    for (size_t n = at.plain * static_cast<size_t>(call.dv), last = n + static_cast<size_t>(call.dv); n < last;
         ++n) {
      largest = std::max(largest, std::abs(exact[n] - other[n]));
    }
    return std::string();
  });
  return largest;
}

double LargestMagnitude(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

Expected::Expected(const PlainCall& call, DType type)
    : call_(call),
      type_(type),
      exact_(ExactAttention(call)),
      largest_value_(LargestMagnitude(call.v) / (1 - call.dropout_p)) {
  if (type != DType::kF64) return;
  for (double& error : exact_.score_error) error *= kDouble / Epsilon(DType::kF32);
}

double Expected::OutBound(Draws draws) const {
  if (type_ == DType::kF64) {
    // 1 / (1 - p) is a float32 number in every type.
    return call_.dropout_p > 0 ? 2 * Epsilon(DType::kF32) * largest_value_ : kDouble * largest_value_;
  }
  using Scale = NaiveOrder::Scale;
  using Added = NaiveOrder::Added;
  using Sums = NaiveOrder::Sums;
  const auto error = [&](const NaiveOrder& order) {
    return LargestError(call_, exact_.out, NaiveAttention(call_, type_, order).out);
  };
  double naive = error({});
  if (draws == Draws::kOne) return AttentionBound(naive, type_, largest_value_);
  for (int64_t start : {0, 1, 5, 23, 50}) {
    for (Scale scale : {Scale::kLast, Scale::kFirst}) {
      for (Added added : {Added::kOneByOne, Added::kTogether}) {
        for (Sums sums : {Sums::kAscending, Sums::kDescending})
          naive = std::max(naive, error({scale, added, sums, start}));
      }
    }
  }
  return AttentionBound(naive, type_, largest_value_);
}

std::string Expected::CompareOut(const Outputs& got, double bound) const {
  return ForEachRow(call_, call_.tq, [&](const RowAt& at) -> std::string {
    for (int64_t c = 0; c < call_.dv; ++c) {
      const size_t n = at.plain * static_cast<size_t>(call_.dv) + static_cast<size_t>(c);
      if (!IsWithin(exact_.out[n], got.out[n], bound)) return Differs("out", exact_.out[n], got.out[n], bound);
    }
    return {};
  });
}

std::string Expected::Compare(const Outputs& got) const {
  if (!got.gaps_untouched) return "something was written between elements";
  if (!CompareOut(got, OutBound(Draws::kOne)).empty()) {
    if (const std::string wrong = CompareOut(got, OutBound(Draws::kForty)); !wrong.empty()) return wrong;
  }
  if (got.lse.empty()) return {};
  return ForEachRow(call_, call_.tq, [&](const RowAt& at) -> std::string {
    const double lse = exact_.lse[at.plain], bound = LseBound(exact_.score_error[at.plain], lse);
    return IsWithin(lse, got.lse[at.plain], bound) ? "" : Differs("lse", lse, got.lse[at.plain], bound);
  });
}

double Expected::WeightTolerance(size_t row, double weight) const {
  return WeightBound(exact_.score_error[row], weight);
}

std::string Expected::CompareTop(const Capture& got, const RowAt& at) const {
  const double* weights = exact_.weights.data() + at.plain * static_cast<size_t>(call_.tk);
  std::vector<double> sorted(weights, weights + call_.tk);
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::vector<char> seen(static_cast<size_t>(call_.tk));
  for (int64_t n = 0; n < got.top_k; ++n) {
    const size_t slot = at.captured * static_cast<size_t>(got.top_k) + static_cast<size_t>(n);
    const int32_t key = got.top_keys[slot];
    const double weight = got.top_weights[slot], best = n < call_.tk ? sorted[static_cast<size_t>(n)] : 0;
    if (key == -1) {
      // Weights below the smallest normal number may be zero.
      if (best > 2 * std::numeric_limits<float>::min()) return Differs("a missing top weight", best, 0, 0);
      if (weight != 0) return "a weight beside no key";
      continue;
    }
    if (key < 0 || key >= call_.tk || seen[static_cast<size_t>(key)]++ != 0) return "a wrong top key";
    const double exact = weights[key], bound = WeightTolerance(at.plain, exact);
    if (!IsWithin(exact, weight, bound)) return Differs("a top weight", exact, weight, bound);
    if (!IsWithin(best, weight, WeightTolerance(at.plain, best)))
      return Differs("the n-th top weight", best, weight, bound);
    if (n == 0) continue;
    const double before = got.top_weights[slot - 1];
    if (weight > before || (weight == before && key < got.top_keys[slot - 1])) return "top keys out of order";
  }
  return {};
}

std::string Expected::CompareReceived(const Capture& got) const {
  for (int64_t b = 0; b < call_.batch; ++b) {
    for (int64_t h = 0; h < call_.q_heads; ++h) {
      for (int64_t j = 0; j < got.keys; ++j) {
        double sum = 0, bound = 0;
        for (int64_t i = 0; i < call_.rows[static_cast<size_t>(b)] && j < call_.tk; ++i) {
          const size_t row = static_cast<size_t>(call_.Row(b, h, i));
          const double weight = exact_.weights[row * static_cast<size_t>(call_.tk) + static_cast<size_t>(j)];
          sum += weight, bound += WeightTolerance(row, weight);
        }
        bound += SumBound(call_.tq, sum);
        const double value = got.received[static_cast<size_t>((b * call_.q_heads + h) * got.keys + j)];
        if (!IsWithin(sum, value, bound)) return Differs("received", sum, value, bound);
      }
    }
  }
  return {};
}

// The value of a captured row at key j, j < kv_length, from the call's numbers alone.
double Expected::RowValue(RowKind kind, const RowAt& at, int64_t j) const {
  const double* q = call_.q.data() + static_cast<int64_t>(at.plain) * call_.d;
  const int64_t kv_head = at.b * call_.kv_heads + at.h / (call_.q_heads / call_.kv_heads);
  const double* k = call_.k.data() + kv_head * call_.d * call_.tk + j;
  double score = 0;
  for (int64_t c = 0; c < call_.d; ++c) score += q[c] * k[c * call_.tk];
  score *= call_.scale;
  if (kind == RowKind::kRawScores) return score;
  if (call_.softcap) score = *call_.softcap * std::tanh(score / *call_.softcap);
  if (kind == RowKind::kSoftcappedScores) return score;
  if (!call_.IsVisible(at.b, at.h, at.i, j)) return -HUGE_VAL;
  if (call_.slopes.present) {
    const double distance = static_cast<double>(std::abs(call_.Position(at.b, at.i) - j));
    score -= call_.slopes.At(at.b, at.h, 0, 0) * distance;
  }
  return call_.bias.present ? score + call_.bias.At(at.b, at.h, at.i, j) : score;
}

std::string Expected::CompareRows(const CaptureRequest& request, const Capture& got) const {
  const RowKind kind = request.row_kind;
  const double square = LargestMagnitude(call_.q) * LargestMagnitude(call_.k) * static_cast<double>(call_.d);
  const double product = DotBound(call_.d, square) * std::abs(call_.scale);
  return ForEachRow(call_, got.queries, [&](const RowAt& at) -> std::string {
    const auto chosen = std::find(got.rows.begin(), got.rows.end(), at.i);
    if (chosen == got.rows.end()) return {};
    const size_t head = static_cast<size_t>(at.b * call_.q_heads + at.h), rows = got.rows.size();
    const size_t first =
        (head * rows + static_cast<size_t>(chosen - got.rows.begin())) * static_cast<size_t>(got.keys);
    for (int64_t j = 0; j < got.keys; ++j) {
      const bool exists =
          j < call_.kv_lengths[static_cast<size_t>(at.b)] && at.i < call_.q_lengths[static_cast<size_t>(at.b)];
      double expected = kind == RowKind::kBiasedScores ? -HUGE_VAL : 0, bound = 0;
      if (exists && kind == RowKind::kWeights) {
        expected = exact_.weights[at.plain * static_cast<size_t>(call_.tk) + static_cast<size_t>(j)];
        bound = WeightTolerance(at.plain, expected);
      } else if (exists) {
        expected = RowValue(kind, at, j);
        const double raw = RowValue(RowKind::kRawScores, at, j);
        bound = product + 8 * Epsilon(DType::kF32) *
                              (std::abs(raw) + std::abs(expected) + call_.Added(at.b, at.h, at.i, j));
      }
      const double value = got.row_values[first + static_cast<size_t>(j)];
      if (!IsWithin(expected, value, bound)) return Differs("a row's value", expected, value, bound);
    }
    return {};
  });
}

std::string Expected::CompareCapture(const CaptureRequest& request, const Capture& got) const {
  std::string wrong = ForEachRow(call_, got.queries, [&](const RowAt& at) -> std::string {
    if (request.top_k > 0) {
      if (const std::string top = CompareTop(got, at); !top.empty()) return top;
    }
    if (!request.entropy) return {};
    double entropy = 0, bound = 0;
    for (int64_t j = 0; j < call_.tk; ++j) {
      const double w = exact_.weights[at.plain * static_cast<size_t>(call_.tk) + static_cast<size_t>(j)];
      if (w == 0) continue;
      entropy -= w * std::log(w);
      bound +=
          WeightTolerance(at.plain, w) * (1 + std::abs(std::log(w))) + 2 * w * exact_.score_error[at.plain];
    }
    bound += SumBound(call_.tk, entropy);
    if (!IsWithin(entropy, got.entropy[at.captured], bound)) {
      return Differs("entropy", entropy, got.entropy[at.captured], bound);
    }
    if (!call_.sink.present || at.i >= call_.q_lengths[static_cast<size_t>(at.b)]) return {};
    const double lse = exact_.lse[at.plain],
                 sink = lse == -HUGE_VAL ? 0 : std::exp(call_.sink.At(at.b, at.h, 0, 0) - lse);
    const double value = got.sink_weight[at.captured], tolerance = WeightTolerance(at.plain, sink);
    return IsWithin(sink, value, tolerance) ? "" : Differs("the sink's weight", sink, value, tolerance);
  });
  if (wrong.empty() && request.received) wrong = CompareReceived(got);
  if (wrong.empty() && request.rows) wrong = CompareRows(request, got);
  return wrong;
}

}  // namespace qkv::test
