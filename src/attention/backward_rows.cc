#include "attention/backward_rows.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "kernels/phase.h"
#include "runtime/threads.h"

namespace qkv {

BackwardRows::BackwardRows(const BackwardProblem& problem, const BackwardKernels& kernels)
    : problem_(problem), kernels_(kernels) {
  const Problem& forward = problem.forward;
  int64_t rows = 0, blocks = 0;
  for (const Sequence& sequence : forward.sequences) {
    for (int64_t h = 0; h < forward.kv_heads; ++h) {
      const HeadJob head{&forward,
                         &sequence,
                         h,
                         MakeKeyValues(forward, sequence, h),
                         nullptr,
                         sequence.rows * forward.group(),
                         kernels.block_rows};
      jobs_.push_back({head, rows, blocks});
      rows += head.rows;
      blocks += head.blocks();
    }
  }
  rows_.resize(static_cast<size_t>(rows));
  backward_rows_.resize(static_cast<size_t>(rows));
  blocks_ = std::vector<BlockState>(static_cast<size_t>(blocks));
  if (!WritesInPlace()) dq_ = AlignedBuffer<float>(rows * forward.layout.d);
  PlacePrepared();
}

void BackwardRows::PlacePrepared() {
  int64_t floats = 0;
  for (const BackwardJob& job : jobs_) {
    if (job.head.key_values.length <= kBackwardKeys) continue;
    for (int64_t block = 0; block < job.head.blocks(); ++block) {
      const int64_t rows = std::min(job.head.block_rows, job.head.rows - block * job.head.block_rows);
      blocks_[static_cast<size_t>(job.first_block + block)].prepared = floats;
      floats += kernels_.prepared_floats(problem_.forward.layout, rows);
    }
  }
  prepared_ = AlignedBuffer<float>(floats);
}

double BackwardRows::work() const {
  double work = 0;
  for (const BackwardJob& job : jobs_) {
    work += static_cast<double>(job.head.rows * problem_.forward.layout.d) *
            static_cast<double>(job.head.key_values.length);
  }
  return work;
}

void BackwardRows::ForEachBlock(int threads,
                                const std::function<void(const BackwardJob& job, int64_t block)>& body) const {
  struct Task {
    const BackwardJob* job;
    int64_t block;
  };
  std::vector<Task> tasks;
  for (const BackwardJob& job : jobs_) {
    for (int64_t block = 0; block < job.head.blocks(); ++block) tasks.push_back({&job, block});
  }
  ParallelFor(
      static_cast<int64_t>(tasks.size()),
      [&](int64_t n, int) {
        const Task& task = tasks[static_cast<size_t>(n)];
        body(*task.job, task.block);
      },
      {}, threads);
}

void BackwardRows::Begin(int threads, const std::function<float*(const Row&)>& dbias_of) {
  ForEachBlock(threads, [&](const BackwardJob& job, int64_t block) { PrepareBlock(job, block, dbias_of); });
  if (problem_.dsink)
    ParallelFor(
        problem_.forward.q_heads, [&](int64_t h, int) { SumSink(h); }, {}, threads);
}

void BackwardRows::Finish(int threads) {
  if (WritesInPlace()) return;
  ForEachBlock(threads, [&](const BackwardJob& job, int64_t block) { StoreBlock(job, block); });
}

void BackwardRows::PrepareBlock(const BackwardJob& job, int64_t block,
                                const std::function<float*(const Row&)>& dbias_of) {
  const PhaseTimer timer(Phase::kRows);
  const BlockRows rows(job.head, block);
  BlockState& state = blocks_[static_cast<size_t>(job.first_block + block)];
  state.first_tile = rows.first_key() / kBackwardKeys;
  state.last_tile = (rows.last_key() + kBackwardKeys - 1) / kBackwardKeys;
  state.next_tile = state.first_tile;
  int64_t r = block * job.head.block_rows;
  for (const Row& row : rows.rows()) {
    const size_t n = static_cast<size_t>(job.first_row + r);
    RowStatistic statistic;
    if (row.query < job.head.sequence->q_length) {
      statistic = kernels_.statistic(problem_.forward.layout, row, problem_.DoutOf(row), problem_.dout.channel,
                                     problem_.DlseOf(row));
    }
    rows_[n] = row;
    backward_rows_[n] = {problem_.DoutOf(row), statistic, DqOf(job, r, row), dbias_of(row),
                         bias_sums_.empty() ? nullptr : &bias_sums_[n]};
    std::fill_n(backward_rows_[n].dq, problem_.forward.layout.d, 0.0f);
    ++r;
  }
  if (state.prepared >= 0) state.finite = kernels_.prepare_rows(BlockOf(job, block, 0), prepared_.data() + state.prepared);
}

void BackwardRows::StoreBlock(const BackwardJob& job, int64_t block) const {
  const PhaseTimer timer(Phase::kRows);
  const BackwardBlock own = BlockOf(job, block, 0);
  for (int64_t r = 0; r < own.block.count; ++r) {
    kernels_.store(own.rows[r].dq, 0, 1, problem_.forward.layout.d,
                   {problem_.DqOf(own.block.rows[r]), problem_.dq.dtype, 0, problem_.dq.channel});
  }
}

float* BackwardRows::DqOf(const BackwardJob& job, int64_t r, const Row& row) {
  if (WritesInPlace()) return reinterpret_cast<float*>(problem_.DqOf(row));
  return dq_.data() + (job.first_row + r) * problem_.forward.layout.d;
}

bool BackwardRows::Sees(const BackwardJob& job, int64_t block, int64_t tile) const {
  const BlockState& state = blocks_[static_cast<size_t>(job.first_block + block)];
  return tile >= state.first_tile && tile < state.last_tile;
}

BackwardBlock BackwardRows::BlockOf(const BackwardJob& job, int64_t block, int64_t dbias_key) const {
  const int64_t r = block * job.head.block_rows, count = std::min(job.head.block_rows, job.head.rows - r);
  const size_t n = static_cast<size_t>(job.first_row + r);
  const BlockState& state = blocks_[static_cast<size_t>(job.first_block + block)];
  return {{&rows_[n], count, &problem_.forward.layout, &problem_.forward.rules, &job.head.key_values},
          &backward_rows_[n],
          state.prepared < 0 ? nullptr : prepared_.data() + state.prepared,
          state.finite,
          problem_.dout.channel,
          dbias_key};
}

void BackwardRows::AddInTurn(const BackwardJob& job, int64_t block, int64_t tile,
                             const std::function<void()>& add) {
  std::atomic<int64_t>& next = blocks_[static_cast<size_t>(job.first_block + block)].next_tile;
  while (next.load(std::memory_order_acquire) != tile) {
    if (cancelled_) return;
    std::this_thread::yield();
  }
  add();
  next.store(tile + 1, std::memory_order_release);
}

void BackwardRows::ForEachRow(int64_t head,
                              const std::function<void(const Row&, const RowStatistic&, float)>& body) const {
  const int64_t group = problem_.forward.group();
  for (const BackwardJob& job : jobs_) {
    if (job.head.kv_head != head / group) continue;
    for (int64_t i = 0; i < job.head.sequence->q_length; ++i) {
      const size_t n = static_cast<size_t>(job.first_row + i * group + head % group);
      body(rows_[n], backward_rows_[n].statistic, bias_sums_.empty() ? 0.0f : bias_sums_[n]);
    }
  }
}

void BackwardRows::SumSink(int64_t head) const {
  double sum = 0;
  ForEachRow(head, [&](const Row& row, const RowStatistic& own, float) {
    if (*row.sink == -HUGE_VALF) return;  // whatever the row is
    const double weight = std::exp(static_cast<double>(*row.sink) - static_cast<double>(*row.lse));
    sum -= weight * static_cast<double>(own.delta);
  });
  problem_.DsinkOf(head) = static_cast<float>(sum);
}

}  // namespace qkv
