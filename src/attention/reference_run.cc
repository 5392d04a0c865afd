#include "attention/reference_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/load.h"
#include "kernels/reference.h"
#include "qkv/error.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

void KeepTop(const std::vector<double>& weights, int64_t top_k, int32_t* keys, float* values) {
  std::vector<int32_t> order;
  for (size_t j = 0; j < weights.size(); ++j) {
    if (static_cast<float>(weights[j]) > 0) order.push_back(static_cast<int32_t>(j));
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    // As the float32 numbers that are kept: equal ones go by key.
    return static_cast<float>(weights[static_cast<size_t>(a)]) > static_cast<float>(weights[static_cast<size_t>(b)]);
  });
  for (int64_t n = 0; n < std::min<int64_t>(top_k, static_cast<int64_t>(order.size())); ++n) {
    keys[n] = order[static_cast<size_t>(n)];
    values[n] = static_cast<float>(weights[static_cast<size_t>(keys[n])]);
  }
}

double Entropy(const std::vector<double>& weights) {
  double entropy = 0;
  for (double w : weights) entropy -= w == 0 ? 0 : w * std::log(w);  // a NaN comes out
  return entropy;
}

// One head of one sequence.
class ReferenceHead {
 public:
  ReferenceHead(const Problem& problem, const Sequence& sequence, int64_t head, const CaptureRequest* request,
                Capture* capture)
      : problem_(problem),
        sequence_(sequence),
        head_(head),
        request_(request),
        capture_(capture),
        key_values_(MakeKeyValues(problem, sequence, head / problem.group())),
        out_(static_cast<size_t>(problem.layout.dv)),
        weights_(static_cast<size_t>(sequence.kv_length)),
        received_(static_cast<size_t>(sequence.kv_length)) {}

  void RunRows(int64_t first, int64_t last) {
    for (int64_t i = first; i < std::min(last, sequence_.rows); ++i) {
      Row row;
      MakeRow(problem_, sequence_, head_, i, row);
      RunRow(row);
    }
  }

  void Finish() {
    if (request_ == nullptr || !request_->received) return;
    for (size_t j = 0; j < received_.size(); ++j) {
      capture_->received[static_cast<size_t>(HeadIndex() * capture_->keys) + j] = static_cast<float>(received_[j]);
    }
  }

 private:
  int64_t HeadIndex() const { return sequence_.batch * problem_.q_heads + head_; }

  void RunRow(const Row& row) {
    const ReferenceRow result =
        ReferenceAttention(problem_.layout, problem_.rules, key_values_, row, out_.data(), weights_.data());
    for (int64_t c = 0; c < problem_.layout.dv; ++c) {
      StoreDouble(out_[static_cast<size_t>(c)], row.out, problem_.layout.q_dtype, c * problem_.layout.out_channel);
    }
    if (row.lse != nullptr) *row.lse = static_cast<float>(result.lse);
    if (request_ != nullptr) KeepRow(row, result);
  }

  void KeepRow(const Row& row, const ReferenceRow& result) {
    const size_t index = static_cast<size_t>(HeadIndex() * capture_->queries + row.query);
    if (request_->entropy) capture_->entropy[index] = static_cast<float>(Entropy(weights_));
    if (!capture_->sink_weight.empty() && row.sink != nullptr && result.sum != 0) {
      capture_->sink_weight[index] = static_cast<float>(std::exp(*row.sink - result.lse));
    }
    const size_t top = index * static_cast<size_t>(request_->top_k);
    if (request_->top_k > 0) {
      KeepTop(weights_, request_->top_k, &capture_->top_keys[top], &capture_->top_weights[top]);
    }
    for (size_t j = 0; j < weights_.size(); ++j) received_[j] += weights_[j];
    if (row.query >= sequence_.q_length) return;  // does not exist: it has no scores at any stage
    for (size_t n = 0; n < capture_->rows.size(); ++n) {
      if (capture_->rows[n] == row.query) KeepValues(row, static_cast<int64_t>(n));
    }
  }

  void KeepValues(const Row& row, int64_t chosen) {
    const int64_t count = static_cast<int64_t>(capture_->rows.size());
    float* to = capture_->row_values.data() + (HeadIndex() * count + chosen) * capture_->keys;
    for (int64_t j = 0; j < key_values_.length; ++j) to[j] = static_cast<float>(ValueOf(row, j));
  }

  double ValueOf(const Row& row, int64_t j) const {
    const auto score = [&](ScoreStage stage) {
      return ReferenceScore(problem_.layout, problem_.rules, key_values_, row, j, stage);
    };
    switch (request_->row_kind) {
      case RowKind::kRawScores: return score(ScoreStage::kRaw);
      case RowKind::kSoftcappedScores: return score(ScoreStage::kSoftcapped);
      case RowKind::kBiasedScores: return score(ScoreStage::kBiased);
      default: return weights_[static_cast<size_t>(j)];
    }
  }

  const Problem& problem_;
  const Sequence& sequence_;
  int64_t head_;
  const CaptureRequest* request_;
  Capture* capture_;
  KeyValues key_values_;
  std::vector<double> out_, weights_, received_;
};

// Rows of a head that take some hundredths of a second: calls can be cancelled between them.
int64_t RowsAtOnce(const Problem& problem) {
  constexpr int64_t kMultiplyAdds = int64_t{1} << 24;
  int64_t keys = 1;
  for (const Sequence& sequence : problem.sequences) keys = std::max(keys, sequence.kv_length);
  const int64_t channels = problem.layout.d + problem.layout.dv;
  return std::max<int64_t>(1, kMultiplyAdds / channels / keys);
}

}  // namespace

void RunInParts(const Problem& problem, int64_t count, int64_t rows, const Progress& progress, int threads,
                const std::function<void(int64_t, int64_t, int64_t)>& body) {
  const int64_t step = RowsAtOnce(problem);
  for (int64_t first = 0; first < rows; first += step) {
    const auto part_done = [&](int64_t done, int64_t) { return progress(first * count + done, rows * count); };
    ParallelFor(count, [&](int64_t n, int) { body(n, first, first + step); },
                progress ? Progress(part_done) : Progress(), threads);
    if (progress && first + step < rows && !part_done(step * count, 0)) throw Error(ErrorCode::kCancelled, "cancelled");
  }
}

void RunReference(const Problem& problem, const Progress& progress, const CaptureRequest* request,
                  Capture* capture) {
  std::vector<ReferenceHead> heads;
  int64_t rows = 0;
  for (const Sequence& sequence : problem.sequences) {
    for (int64_t h = 0; h < problem.q_heads; ++h) heads.emplace_back(problem, sequence, h, request, capture);
    rows = std::max(rows, sequence.rows);
  }
  RunInParts(problem, static_cast<int64_t>(heads.size()), rows, progress, Threads(),
             [&](int64_t n, int64_t first, int64_t last) { heads[static_cast<size_t>(n)].RunRows(first, last); });
  for (ReferenceHead& head : heads) head.Finish();
}

}  // namespace qkv
