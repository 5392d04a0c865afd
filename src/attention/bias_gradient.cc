#include "attention/bias_gradient.h"

#include <vector>

#include "attention/store.h"
#include "attention/validate.h"

namespace qkv {

BiasGradient::BiasGradient(const BackwardProblem& problem) : problem_(problem) {
  if (!problem.dbias) return;
  const Tensor& dbias = *problem.dbias;
  stride_ = problem.dbias_strides;
  if (stride_[3] == 0) return;
  if (dbias.dtype == DType::kF32) {
    stride_ = BroadcastTo("dbias", dbias, problem.forward.bias->shape).stride;
    target_ = static_cast<float*>(dbias.mutable_data());
  } else {
    kept_ = AlignedBuffer<float>(dbias.shape.elements());
    target_ = kept_.data();
  }
}

void BiasGradient::Clear(const BackwardJob& job, int64_t first, int64_t count) const {
  const int64_t group = SharesHeads() ? 1 : problem_.forward.group();
  const int64_t rows = stride_[2] == 0 ? 1 : job.head.sequence->rows;
  for (int64_t h = job.head.kv_head * group; h < (job.head.kv_head + 1) * group; ++h) {
    for (int64_t i = 0; i < rows; ++i) {
      float* row = At(job.head.sequence->batch, h, i) + first * stride_[3];
      for (int64_t j = 0; j < count; ++j) row[j * stride_[3]] = 0;
    }
  }
}

void BiasGradient::StoreTiles() const {
  if (kept_.size() > 0) StoreElements(kept_.data(), *problem_.dbias);
}

void BiasGradient::StoreSums(const BackwardRows& rows) const {
  std::vector<double> sums(static_cast<size_t>(problem_.dbias->shape.elements()));
  const bool has_scores = problem_.forward.bias->shape.elements() > 0;
  for (int64_t h = 0; h < problem_.forward.q_heads && has_scores; ++h) {
    rows.ForEachRow(h, [&](const Row& row, const RowStatistic&, float bias_sum) {
      sums[static_cast<size_t>(row.batch * stride_[0] + h * stride_[1] + row.query * stride_[2])] += bias_sum;
    });
  }
  StoreElements(sums.data(), *problem_.dbias);
}

}  // namespace qkv
