// The rows' side of the backward pass: what is known of each row, and its dQ, to which tiles of keys add in
// order.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "attention/backward_problem.h"
#include "attention/plan.h"
#include "kernels/backward.h"
#include "runtime/aligned.h"

namespace qkv {

// A KV head of a sequence, with the number of its first row, and of its first block, among all.
struct BackwardJob {
  HeadJob head;
  int64_t first_row = 0, first_block = 0;
};

class BackwardRows {
 public:
  // Takes all memory.
  BackwardRows(const BackwardProblem& problem, const BackwardKernels& kernels);
  void KeepBiasSums() { bias_sums_.resize(rows_.size()); }  // memory for the rows' sums of dS

  const std::vector<BackwardJob>& jobs() const { return jobs_; }
  double work() const;  // multiply-adds of S

  // Before the tiles: the rows, which tiles see which blocks, dQ = 0, dsink. dbias_of: where a row's gradient by the
  // bias goes, or null.
  void Begin(int threads, const std::function<float*(const Row&)>& dbias_of);
  // After them: dQ in its own type.
  void Finish(int threads);

  bool Sees(const BackwardJob& job, int64_t block, int64_t tile) const;
  BackwardBlock BlockOf(const BackwardJob& job, int64_t block, int64_t dbias_key) const;

  // Calls add when the tile before has been added to the block's dQ; not at all once the call is cancelled.
  void AddInTurn(const BackwardJob& job, int64_t block, int64_t tile, const std::function<void()>& add);
  void Cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

  // body(row, statistic, sum of dS) for the real rows of a query head, in order.
  void ForEachRow(int64_t head, const std::function<void(const Row&, const RowStatistic&, float)>& body) const;

 private:
  struct BlockState {
    int64_t first_tile = 0, last_tile = 0;  // that its rows see
    std::atomic<int64_t> next_tile{0};      // whose turn it is
    int64_t prepared = -1;                  // where its rows' floats begin; -1: there are none
    Values finite = Values::kFinite;
  };

  void ForEachBlock(int threads, const std::function<void(const BackwardJob& job, int64_t block)>& body) const;
  void PrepareBlock(const BackwardJob& job, int64_t block, const std::function<float*(const Row&)>& dbias_of);
  void StoreBlock(const BackwardJob& job, int64_t block) const;
  void PlacePrepared();
  void SumSink(int64_t head) const;
  float* DqOf(const BackwardJob& job, int64_t r, const Row& row);
  bool WritesInPlace() const { return problem_.dq.dtype == DType::kF32 && problem_.dq.channel == 1; }

  const BackwardProblem& problem_;
  BackwardKernels kernels_;
  std::vector<BackwardJob> jobs_;
  std::vector<Row> rows_;  // of all jobs, made once: every tile meets them
  std::vector<BackwardRow> backward_rows_;
  std::vector<float> bias_sums_;  // or empty
  std::vector<BlockState> blocks_;
  AlignedBuffer<float> dq_;        // (rows, D), where dq itself cannot be added to
  AlignedBuffer<float> prepared_;  // rows that several tiles read
  std::atomic<bool> cancelled_{false};
};

}  // namespace qkv
