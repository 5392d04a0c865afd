// A task is a tile of keys of a KV head with all rows that see it: dK and dV are its own. dQ is the rows':
// tiles add to a block of rows in ascending order, each waiting for the one before it. Tasks of a head are
// handed out in that order and go through the blocks from the last to the first, so that they hardly ever wait,
// and the order of every sum is fixed whatever the threads. Heads that share elements of a bias's gradient are
// one task, one after the other.
#include "attention/backward.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "attention/backward_rows.h"
#include "attention/bias_gradient.h"
#include "kernels/backward.h"
#include "kernels/pairs.h"
#include "runtime/cpu.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// Multiply-adds of S below which waking the other threads costs more than they bring.
constexpr double kWorkForThreads = 2e5;

// A tile of keys, of all jobs that one thread goes through.
struct TileTask {
  const std::vector<const BackwardJob*>* jobs = nullptr;
  int64_t tile = 0;
};

class Backward {
 public:
  // All memory is taken before anything is written, so that running out of it loses nothing.
  Backward(const BackwardProblem& problem, const Progress& progress)
      : problem_(problem),
        progress_(progress),
        kernels_(TakesPairs() ? PairBackwardKernelsFor(ChosenIsa()) : BackwardKernelsFor(ChosenIsa())),
        rows_(problem, kernels_),
        bias_(problem),
        threads_(rows_.work() < kWorkForThreads ? 1 : Threads()) {
    for (int thread = 0; thread < threads_; ++thread) {
      scratch_.push_back(
          {layout(), problem.forward.rules, AlignedBuffer<float>(kernels_.scratch_floats(layout())),
           AlignedBuffer<float>(kernels_.prepared_floats(layout(), kernels_.block_rows))});
    }
    if (bias_.IsByRows()) rows_.KeepBiasSums();
    GroupJobs();
  }

  void Run() {
    rows_.Begin(threads_, [&](const Row& row) { return bias_.RowOf(row); });
    RunTiles();
    rows_.Finish(threads_);
    if (bias_.IsByTiles()) bias_.StoreTiles();
    if (bias_.IsByRows()) bias_.StoreSums(rows_);
  }

 private:
  const Layout& layout() const { return problem_.forward.layout; }

  // Whether all operands are bfloat16 and there are kernels for it.
  bool TakesPairs() const {
    return HasPairKernels(ChosenIsa()) && layout().q_dtype == DType::kBF16 &&
           problem_.forward.kv_dtype == DType::kBF16;
  }

  // Jobs that share a bias's gradient go together; others are groups of their own.
  void GroupJobs() {
    std::map<std::pair<int64_t, int64_t>, std::vector<const BackwardJob*>> groups;
    for (const BackwardJob& job : rows_.jobs()) {
      const int64_t b = bias_.IsByTiles() && bias_.SharesSequences() ? 0 : job.head.sequence->batch;
      const int64_t h = bias_.IsByTiles() && bias_.SharesHeads() ? 0 : job.head.kv_head;
      groups[{b, h}].push_back(&job);
    }
    for (auto& [at, jobs] : groups) groups_.push_back(std::move(jobs));
  }

  static int64_t Tiles(const std::vector<const BackwardJob*>& jobs) {
    int64_t keys = 0;
    for (const BackwardJob* job : jobs) keys = std::max(keys, job->head.sequence->keys);
    return (keys + kBackwardKeys - 1) / kBackwardKeys;
  }

  // As many groups as there are threads go side by side, so that threads seldom meet in a group's rows, and one
  // that goes on finds them in its cache.
  std::vector<TileTask> MakeTasks() const {
    std::vector<TileTask> tasks;
    for (size_t first = 0; first < groups_.size(); first += static_cast<size_t>(threads_)) {
      const size_t last = std::min(first + static_cast<size_t>(threads_), groups_.size());
      int64_t tiles = 0;
      for (size_t group = first; group < last; ++group) tiles = std::max(tiles, Tiles(groups_[group]));
      for (int64_t tile = 0; tile < tiles; ++tile) {
        for (size_t group = first; group < last; ++group) {
          if (tile < Tiles(groups_[group])) tasks.push_back({&groups_[group], tile});
        }
      }
    }
    return tasks;
  }

  void RunTiles() {
    const std::vector<TileTask> tasks = MakeTasks();
    const auto report = [&](int64_t done, int64_t total) {
      const bool goes_on = progress_(done, total);
      if (!goes_on) rows_.Cancel();  // nobody waits for tasks that no longer begin
      return goes_on;
    };
    ParallelFor(
        static_cast<int64_t>(tasks.size()),
        [&](int64_t n, int thread) {
          RunTask(tasks[static_cast<size_t>(n)], scratch_[static_cast<size_t>(thread)]);
        },
        progress_ ? Progress(report) : Progress(), threads_);
  }

  void RunTask(const TileTask& task, BackwardScratch& scratch) try {
    const int64_t first = task.tile * kBackwardKeys;
    const BackwardJob& one = *task.jobs->front();
    if (bias_.IsByTiles()) bias_.Clear(one, first, std::min(kBackwardKeys, one.head.sequence->keys - first));
    for (const BackwardJob* job : *task.jobs) RunTile(*job, task.tile, scratch);
  } catch (...) {
    rows_.Cancel();  // those that wait for this task need not
    throw;
  }

  void RunTile(const BackwardJob& job, int64_t index, BackwardScratch& scratch) {
    const int64_t first = index * kBackwardKeys,
                  held = std::min(kBackwardKeys, job.head.sequence->keys - first);
    if (held <= 0) return;
    const BackwardTile tile{&job.head.key_values, first,
                            std::clamp<int64_t>(job.head.key_values.length - first, 0, kBackwardKeys), held};
    kernels_.begin_tile(tile, kernels_.pack, scratch);
    for (int64_t block = job.head.blocks() - 1; block >= 0 && !rows_.cancelled(); --block) {
      if (rows_.Sees(job, block, index)) RunBlock(job, block, tile, scratch);
    }
    StoreTile(job, tile, scratch);
  }

  void RunBlock(const BackwardJob& job, int64_t block, const BackwardTile& tile, BackwardScratch& scratch) {
    BackwardBlock own = rows_.BlockOf(job, block, bias_.key_stride());
    if (own.prepared == nullptr) {
      own.finite = kernels_.prepare_rows(own, scratch.prepared.data());
      own.prepared = scratch.prepared.data();
    }
    const bool adds = kernels_.add_block(own, tile, scratch);
    rows_.AddInTurn(job, block, tile.first / kBackwardKeys, [&] {
      if (adds) kernels_.add_rows(own, scratch);
    });
  }

  void StoreTile(const BackwardJob& job, const BackwardTile& tile, BackwardScratch& scratch) {
    const Sequence& sequence = *job.head.sequence;
    const auto rows = [&](const RowTensor& tensor) {
      return GradientRows{tensor.At(sequence.batch, job.head.kv_head, sequence.first_key + tile.first),
                          tensor.dtype, tensor.row, tensor.channel};
    };
    kernels_.store_tile(tile, rows(problem_.dk), rows(problem_.dv), scratch);
  }

  const BackwardProblem& problem_;
  const Progress& progress_;
  BackwardKernels kernels_;
  BackwardRows rows_;
  BiasGradient bias_;
  int threads_;
  std::vector<BackwardScratch> scratch_;
  std::vector<std::vector<const BackwardJob*>> groups_;
};

}  // namespace

void RunBackward(const BackwardProblem& problem, const Progress& progress) {
  Backward(problem, progress).Run();
}

}  // namespace qkv
