// Gradients in double precision.
#include <algorithm>
#include <vector>

#include "attention/reference_run.h"
#include "attention/store.h"
#include "kernels/load.h"
#include "kernels/reference.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

void StoreRow(const double* from, int64_t count, const RowTensor& to, std::byte* at) {
  for (int64_t c = 0; c < count; ++c) StoreDouble(from[c], at, to.dtype, c * to.channel);
}

// One KV head of one sequence, with the query heads that read it.
class ReferenceHeads {
 public:
  ReferenceHeads(const BackwardProblem& problem, const Sequence& sequence, int64_t kv_head, double* dbias)
      : problem_(problem),
        sequence_(sequence),
        kv_head_(kv_head),
        dbias_(dbias),
        key_values_(MakeKeyValues(problem.forward, sequence, kv_head)),
        dq_(static_cast<size_t>(layout().d)),
        dk_(static_cast<size_t>(sequence.keys * layout().d)),
        dv_(static_cast<size_t>(sequence.keys * layout().dv)),
        dsink_(static_cast<size_t>(problem.forward.group())) {}

  void RunRows(int64_t first, int64_t last) {
    for (int64_t i = first; i < std::min(last, sequence_.rows); ++i) {
      for (int64_t n = 0; n < problem_.forward.group(); ++n) RunRow(i, n);
    }
  }

  // Keys past kv_length get what they were made with, zeros.
  void Finish() const {
    for (int64_t j = 0; j < sequence_.keys; ++j) {
      const int64_t key = sequence_.first_key + j;
      StoreRow(dk_.data() + j * layout().d, layout().d, problem_.dk,
               problem_.dk.At(sequence_.batch, kv_head_, key));
      StoreRow(dv_.data() + j * layout().dv, layout().dv, problem_.dv,
               problem_.dv.At(sequence_.batch, kv_head_, key));
    }
  }

  int64_t first_head() const { return kv_head_ * problem_.forward.group(); }
  const std::vector<double>& dsink() const { return dsink_; }

 private:
  const Layout& layout() const { return problem_.forward.layout; }

  void RunRow(int64_t query, int64_t n) {
    Row row;
    MakeRow(problem_.forward, sequence_, first_head() + n, query, row);
    std::fill(dq_.begin(), dq_.end(), 0.0);
    ReferenceGradients to{dq_.data(), dk_.data(), dv_.data(), nullptr, 0, &dsink_[static_cast<size_t>(n)]};
    if (dbias_ != nullptr) {
      const auto& stride = problem_.dbias_strides;
      to.dbias = dbias_ + row.batch * stride[0] + row.head * stride[1] + row.query * stride[2];
      to.dbias_key = stride[3];
    }
    ReferenceBackward(layout(), problem_.forward.rules, key_values_, row,
                      {problem_.DoutOf(row), problem_.dout.channel, problem_.DlseOf(row)}, to);
    StoreRow(dq_.data(), layout().d, problem_.dq, problem_.DqOf(row));
  }

  const BackwardProblem& problem_;
  const Sequence& sequence_;
  int64_t kv_head_;
  double* dbias_;
  KeyValues key_values_;
  std::vector<double> dq_, dk_, dv_, dsink_;
};

void StoreSinks(const BackwardProblem& problem, const std::vector<ReferenceHeads>& heads) {
  std::vector<double> sums(static_cast<size_t>(problem.forward.q_heads));
  for (const ReferenceHeads& head : heads) {
    for (size_t n = 0; n < head.dsink().size(); ++n)
      sums[static_cast<size_t>(head.first_head()) + n] += head.dsink()[n];
  }
  for (int64_t h = 0; h < problem.forward.q_heads; ++h) {
    problem.DsinkOf(h) = static_cast<float>(sums[static_cast<size_t>(h)]);
  }
}

}  // namespace

void RunReferenceBackward(const BackwardProblem& problem, const Progress& progress) {
  std::vector<double> dbias(problem.dbias ? static_cast<size_t>(problem.dbias->shape.elements()) : 0);
  std::vector<ReferenceHeads> heads;
  int64_t rows = 0;
  for (const Sequence& sequence : problem.forward.sequences) {
    for (int64_t h = 0; h < problem.forward.kv_heads; ++h) {
      heads.emplace_back(problem, sequence, h, problem.dbias ? dbias.data() : nullptr);
    }
    rows = std::max(rows, sequence.rows);
  }
  // Heads may share elements of dbias, whose sums have one order.
  const int threads = problem.dbias ? 1 : Threads();
  RunInParts(
      problem.forward, static_cast<int64_t>(heads.size()), rows, progress, threads,
      [&](int64_t n, int64_t first, int64_t last) { heads[static_cast<size_t>(n)].RunRows(first, last); });
  for (const ReferenceHeads& head : heads) head.Finish();
  if (problem.dsink) StoreSinks(problem, heads);
  if (problem.dbias) StoreElements(dbias.data(), *problem.dbias);
}

}  // namespace qkv
