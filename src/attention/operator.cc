// The public operator: validate, plan, run.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "attention/backward.h"
#include "attention/backward_problem.h"
#include "attention/forward.h"
#include "attention/look.h"
#include "attention/memory_error.h"
#include "attention/plan.h"
#include "attention/problem.h"
#include "attention/reference_run.h"
#include "attention/validate.h"
#include "qkv/attention.h"
#include "qkv/attention_backward.h"
#include "qkv/error.h"

namespace qkv {
namespace {

// Tq or Tk: the tensor's, or a packed batch's longest sequence.
int64_t Longest(const ConstTensor& tensor, const std::optional<std::vector<int64_t>>& offsets) {
  if (!offsets) return tensor.size(2);
  int64_t longest = 0;
  for (size_t b = 1; b < offsets->size(); ++b) longest = std::max(longest, (*offsets)[b] - (*offsets)[b - 1]);
  return longest;
}

}  // namespace

void Attention(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v, const AttentionOptions& options,
               const Tensor& out, const Tensor* lse) {
  WithTypedMemoryError("attention", [&] {
    const Problem problem = MakeProblem(q, k, v, options, out, lse);
    if (q.dtype == DType::kF64) return RunReference(problem, options.progress, nullptr, nullptr);
    RunForward(problem, MakeJobs(problem), nullptr, options.progress);
  });
}

Capture AttentionWithCapture(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                             const AttentionOptions& options, const CaptureRequest& request, const Tensor& out,
                             const Tensor* lse) {
  return WithTypedMemoryError("attention", [&] {
    Problem problem = MakeProblem(q, k, v, options, out, lse);
    problem.layout.row_sums = RowSums::kExact;
    if (lse == nullptr) problem.scores_again = request.rows ? ScoresAgain::kInFloat32 : ScoresAgain::kAsMade;
    const int64_t queries = Longest(q, options.cu_q), keys = Longest(k, options.cu_kv);
    CheckCapture(request, queries, keys);
    Capture capture = EmptyCapture(problem, request, queries, keys);
    if (q.dtype == DType::kF64) {
      RunReference(problem, options.progress, &request, &capture);
      return capture;
    }
    RowStatistics statistics(problem);
    const std::vector<NumberedJobs> jobs = RunForward(problem, MakeJobs(problem), &statistics, options.progress);
    RunCapture(problem, request, jobs, statistics, options.progress, capture);
    return capture;
  });
}

void AttentionBackward(const ConstTensor& dout, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                       const ConstTensor& out, const ConstTensor& lse, const AttentionOptions& options,
                       const AttentionGradients& gradients, const ConstTensor* dlse) {
  WithTypedMemoryError("attention_backward", [&] {
    const BackwardProblem problem = MakeBackwardProblem(dout, q, k, v, out, lse, options, gradients, dlse);
    if (q.dtype == DType::kF64) return RunReferenceBackward(problem, options.progress);
    RunBackward(problem, options.progress);
  });
}

std::vector<float> AlibiSlopes(int64_t n) {
  if (n < 0) FailArgument("n", "negative", "0 or more heads", std::to_string(n));
  std::vector<float> slopes;
  WithTypedMemoryError("n", [&] { slopes.reserve(static_cast<size_t>(n)); });
  int64_t power = 1;
  while (power <= n / 2) power *= 2;
  const auto slope = [](int64_t step, int64_t heads) {
    return static_cast<float>(std::exp2(-8.0 * static_cast<double>(step) / static_cast<double>(heads)));
  };
  for (int64_t h = 1; h <= std::min(power, n); ++h) slopes.push_back(slope(h, power));
  for (int64_t h = 1; static_cast<int64_t>(slopes.size()) < n; h += 2) slopes.push_back(slope(h, 2 * power));
  return slopes;
}

}  // namespace qkv
