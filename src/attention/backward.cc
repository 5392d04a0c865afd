// A task is a tile of keys of a KV head with all rows that see it: dK and dV are its own. dQ is the rows':
// tiles add to a block of rows in ascending order, each waiting for the one before it. Tasks of a head are
// handed out in that order and go through the blocks from the last to the first, so that they hardly ever wait,
// and the order of every sum is fixed whatever the threads. Heads that share elements of a bias's gradient are
// one task, one after the other.
#include "attention/backward.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "attention/backward_rows.h"
#include "attention/bias_gradient.h"
#include "kernels/backward.h"
#include "kernels/pairs.h"
#include "kernels/phase.h"
#include "kernels/triples.h"
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

LeastForTripleGradients g_least;

// Rows in chunks have the bits of one call over all, which is known to take float32's own products only.
bool TakesTriples(const Problem& forward) {
  const auto is = [](DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16; };
  return HasTripleKernels(ChosenIsa()) && is(forward.layout.q_dtype) && is(forward.kv_dtype) &&
         !forward.chunked && std::min(forward.layout.d, forward.layout.dv) >= g_least.channels;
}

BackwardTables TablesFor(const BackwardProblem& problem) {
  const Isa isa = ChosenIsa();
  const bool all_bf16 =
      problem.forward.layout.q_dtype == DType::kBF16 && problem.forward.kv_dtype == DType::kBF16;
  if (all_bf16 && HasPairKernels(isa)) return {PairBackwardKernelsFor(isa), {}};
  BackwardTables tables = {BackwardKernelsFor(isa), {}};
  if (TakesTriples(problem.forward)) {
    tables.most = TripleBackwardKernels();
    tables.least_rows = g_least.rows, tables.least_keys = g_least.keys;
  }
  return tables;
}

// What a thread works in.
struct Worker {
  BackwardScratch any;
  std::optional<BackwardScratch> most;
  std::array<std::vector<Row>, 2> rows;  // of a block's passes

  Worker(const BackwardProblem& problem, const BackwardTables& tables) : any(ScratchFor(problem, tables.any)) {
    for (std::vector<Row>& of_pass : rows) of_pass.resize(static_cast<size_t>(tables.any.block_rows));
    if (tables.most) most.emplace(ScratchFor(problem, *tables.most));
  }

 private:
  static BackwardScratch ScratchFor(const BackwardProblem& problem, const BackwardKernels& kernels) {
    const Layout& layout = problem.forward.layout;
    return {layout, problem.forward.rules, AlignedBuffer<float>(kernels.scratch_floats(layout)),
            AlignedBuffer<float>(kernels.prepared_floats(layout, kernels.block_rows))};
  }
};

class Backward {
 public:
  // All memory is taken before anything is written, so that running out of it loses nothing.
  Backward(const BackwardProblem& problem, const Progress& progress)
      : problem_(problem),
        progress_(progress),
        tables_(TablesFor(problem)),
        rows_(problem, tables_),
        bias_(problem),
        threads_(rows_.work() < kWorkForThreads ? 1 : Threads()) {
    for (int thread = 0; thread < threads_; ++thread) workers_.emplace_back(problem, tables_);
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
          RunTask(tasks[static_cast<size_t>(n)], workers_[static_cast<size_t>(thread)]);
        },
        progress_ ? Progress(report) : Progress(), threads_);
  }

  void RunTask(const TileTask& task, Worker& worker) try {
    const int64_t first = task.tile * kBackwardKeys;
    const BackwardJob& one = *task.jobs->front();
    if (bias_.IsByTiles()) bias_.Clear(one, first, std::min(kBackwardKeys, one.head.sequence->keys - first));
    for (const BackwardJob* job : *task.jobs) RunTile(*job, task.tile, worker);
  } catch (...) {
    rows_.Cancel();  // those that wait for this task need not
    throw;
  }

  void RunTile(const BackwardJob& job, int64_t index, Worker& worker) {
    const int64_t first = index * kBackwardKeys,
                  held = std::min(kBackwardKeys, job.head.sequence->keys - first);
    if (held <= 0) return;
    const BackwardTile tile{&job.head.key_values, first,
                            std::clamp<int64_t>(job.head.key_values.length - first, 0, kBackwardKeys), held};
    for (const BackwardPass& pass : job.passes)
      pass.kernels->begin_tile(tile, pass.kernels->pack, ScratchOf(pass, worker));
    for (int64_t block = job.head.blocks() - 1; block >= 0 && !rows_.cancelled(); --block) {
      if (rows_.Sees(job, block, index)) RunBlock(job, block, tile, worker);
    }
    StoreTile(job, tile, worker);
  }

  void RunBlock(const BackwardJob& job, int64_t block, const BackwardTile& tile, Worker& worker) {
    std::array<BackwardBlock, 2> parts;
    for (size_t n = 0; n < job.passes.size(); ++n) {
      parts[n] = rows_.PartOf(job, block, bias_.key_stride(), job.passes[n].rows, worker.rows[n].data());
      if (parts[n].prepared != nullptr && block > 0) parts[n].ahead = rows_.BlockOf(job, block - 1, 0).prepared;
      if (!AddPart(job.passes[n], parts[n], tile, worker)) parts[n].block.count = 0;
    }
    rows_.AddInTurn(job, block, tile.first / kBackwardKeys, [&] {
      for (size_t n = 0; n < job.passes.size(); ++n) {
        if (parts[n].block.count > 0)
          job.passes[n].kernels->add_rows(parts[n], ScratchOf(job.passes[n], worker));
      }
    });
  }

  // Returns whether there is anything for dQ.
  bool AddPart(const BackwardPass& pass, BackwardBlock& part, const BackwardTile& tile, Worker& worker) {
    BackwardScratch& scratch = ScratchOf(pass, worker);
    if (part.prepared == nullptr) {
      part.finite = pass.kernels->prepare_rows(part, scratch.prepared.data());
      part.prepared = scratch.prepared.data();
    }
    return pass.kernels->add_block(part, tile, scratch);
  }

  void StoreTile(const BackwardJob& job, const BackwardTile& tile, Worker& worker) {
    const TileGradients sum = job.passes[0].kernels->finish_tile(tile, ScratchOf(job.passes[0], worker));
    if (job.passes.size() == 2) {
      const TileGradients more = job.passes[1].kernels->finish_tile(tile, ScratchOf(job.passes[1], worker));
      AddTo(sum.dk, sum.dk_stride, more.dk, more.dk_stride, tile.held, layout().d);
      AddTo(sum.dv, sum.dv_stride, more.dv, more.dv_stride, tile.held, layout().dv);
    }
    const PhaseTimer timer(Phase::kRows);
    const Sequence& sequence = *job.head.sequence;
    const auto rows = [&](const RowTensor& tensor) {
      return GradientRows{tensor.At(sequence.batch, job.head.kv_head, sequence.first_key + tile.first),
                          tensor.dtype, tensor.row, tensor.channel};
    };
    tables_.any.store(sum.dk, sum.dk_stride, tile.held, layout().d, rows(problem_.dk));
    tables_.any.store(sum.dv, sum.dv_stride, tile.held, layout().dv, rows(problem_.dv));
  }

  static void AddTo(float* to, int64_t to_stride, const float* more, int64_t stride, int64_t rows,
                    int64_t width) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < width; ++c) to[r * to_stride + c] += more[r * stride + c];
    }
  }

  BackwardScratch& ScratchOf(const BackwardPass& pass, Worker& worker) const {
    return pass.kernels == &tables_.any ? worker.any : *worker.most;
  }

  const BackwardProblem& problem_;
  const Progress& progress_;
  BackwardTables tables_;
  BackwardRows rows_;
  BiasGradient bias_;
  int threads_;
  std::vector<Worker> workers_;
  std::vector<std::vector<const BackwardJob*>> groups_;
};

}  // namespace

void SetLeastForTripleGradients(LeastForTripleGradients least) { g_least = least; }

void RunBackward(const BackwardProblem& problem, const Progress& progress) {
  Backward(problem, progress).Run();
}

}  // namespace qkv
