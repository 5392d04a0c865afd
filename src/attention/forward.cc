// Three ways to run, the same bits from each:
//  - streamed: one block of rows per KV head (decoding, short queries). With few rows keys and values are read where
//    they lie, else tiles are packed as they are used; a long sequence's splits are shared among the threads and merged
//    in order.
//  - resident: many small heads. A thread packs a whole head into its own cache and runs all its blocks.
//  - waves: everything else. Heads are packed by all threads, then their blocks are run by all threads.
#include "attention/forward.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <utility>

#include "kernels/pairs.h"
#include "kernels/phase.h"
#include "kernels/triples.h"
#include "runtime/cpu.h"
#include "runtime/task_runs.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// Multiply-adds below which waking the other threads costs more than they bring: about 10 us of one core's
// work.
constexpr double kWorkForThreads = 1e6;

constexpr int64_t kJobsPerThread = 16;  // with fewer, splits are shared out: a job more or less on a thread would show

constexpr int64_t kResidentFloats = 128 << 10;  // 512 KiB of packed keys and values: half of a 1 MiB second level

// Per thread: scratch for a block, and memory for packed tiles.
struct Worker {
  ScratchSizes sizes;
  std::unique_ptr<Scratch> scratch;
  AlignedBuffer<float> packed;
  std::vector<Found> found;
};

// Workers that a caller keeps from one small call to the next: each thread finds its own memory in its own cache. Memory
// that was given back would come to the threads in another order, and be read from each other's caches.
class Workers {
 public:
  Workers() : all_(std::exchange(Kept(), {})) {}
  ~Workers() {
    if (floats_ <= kMostKept) Kept() = std::move(all_);
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  Worker& operator[](int thread) { return all_[static_cast<size_t>(thread)]; }

  void Reserve(int threads, const ScratchSizes& sizes) {
    all_.resize(std::max(all_.size(), static_cast<size_t>(threads)));
    for (int thread = 0; thread < threads; ++thread) {
      Worker& worker = (*this)[thread];
      if (worker.scratch != nullptr && worker.sizes == sizes) continue;
      worker.scratch = std::make_unique<Scratch>(sizes);
      worker.sizes = sizes;
    }
    floats_ = std::max(floats_, sizes.scores + sizes.queries + sizes.streamed + 2 * sizes.rows * sizes.out_stride);
  }
  // Memory for `floats` of packed tiles each.
  void ReservePacked(int threads, int64_t floats, int64_t tiles) {
    for (int thread = 0; thread < threads; ++thread) {
      Worker& worker = (*this)[thread];
      if (worker.packed.size() != floats) worker.packed = AlignedBuffer<float>(floats);
      worker.found.resize(static_cast<size_t>(tiles));
    }
    floats_ = std::max(floats_, floats);
  }

 private:
  static constexpr int64_t kMostKept = 128 << 10;  // floats of scratch, and of packed tiles, each thread's
  static std::vector<Worker>& Kept() {
    thread_local std::vector<Worker> kept;
    return kept;
  }

  std::vector<Worker> all_;
  int64_t floats_ = 0;
};

LeastForTriples g_least;

// Whether a call takes triples. Scores that rise along the keys want new bases again and again, and dropout does:
// each time they are made twice.
bool TakesTriples(const Problem& problem) {
  const ScoreRules& rules = problem.rules;
  const bool plain = !rules.has_mask && !rules.has_bias && !rules.has_alibi && !rules.dropout;
  const bool wide = !problem.window.left && !problem.window.right;
  return HasTripleKernels(ChosenIsa()) && plain && wide && !problem.chunked &&
         problem.scores_again != ScoresAgain::kInFloat32 &&
         std::min(problem.layout.d, problem.layout.dv) >= g_least.channels;
}

// Triples take half as much memory again: not where keys and values would not fit in a wave.
bool TakesTriples(const HeadJob& job) {
  const int64_t least = job.problem->causal == Causal::kNone ? g_least.rows : g_least.causal_rows;
  return TakesTriples(*job.problem) && job.sequence->cache == nullptr && job.rows >= least &&
         PackedHead::Floats(job, TriplePackKernels(), Parts::kKeysAndValues) <= kWaveFloats;
}

// It depends on the job alone, so that its bits do not depend on what else is in the batch. Rows that come in
// any number at a time have the same bits: few of them want float32, so all have it.
Numbers NumbersOf(const HeadJob& job) {
  const Isa isa = ChosenIsa();
  const auto is = [&](DType dtype) {
    return job.problem->layout.q_dtype == dtype && job.key_values.k.dtype == dtype &&
           job.key_values.v.dtype == dtype;
  };
  if (HasPairKernels(isa) && is(DType::kBF16)) return Numbers::kPairs;
  return TakesTriples(job) ? Numbers::kTriples : Numbers::kFloats;
}

PackKernels PackKernelsOf(Numbers numbers) {
  if (numbers == Numbers::kFloats) return PackKernelsFor(ChosenIsa());
  return numbers == Numbers::kPairs ? PairPackKernels() : TriplePackKernels();
}

ForwardKernels ForwardKernelsOf(Numbers numbers) {
  if (numbers == Numbers::kFloats) return ForwardKernelsFor(ChosenIsa());
  return numbers == Numbers::kPairs ? PairForwardKernelsFor(ChosenIsa()) : TripleForwardKernels();
}

// Of jobs with the same numbers.
class Forward {
 public:
  Forward(const Problem& problem, std::vector<HeadJob> jobs, Numbers numbers, RowStatistics* statistics,
          const Progress& progress)
      : problem_(problem),
        jobs_(std::move(jobs)),
        unfit_(jobs_.size()),
        odd_keys_(jobs_.size()),
        numbers_(numbers),
        statistics_(statistics),
        progress_(progress),
        pack_(PackKernelsOf(numbers)),
        kernels_(ForwardKernelsOf(numbers)),
        in_place_(
            std::all_of(jobs_.begin(), jobs_.end(), [](const HeadJob& j) { return j.rows <= kStreamedRows; })) {
    int64_t rows = 0;
    double work = 0;
    for (HeadJob& job : jobs_) {
      job.block_rows = std::min(PaddedWidth(in_place_ ? job.rows : job.block_rows, kernels_.row_group),
                                kMaxBlockRows / kernels_.row_group * kernels_.row_group);
      rows = std::max(rows, std::min(job.block_rows, job.rows));
      work += static_cast<double>(job.rows * (problem.layout.d + problem.layout.dv)) *
              static_cast<double>(job.key_values.length);
    }
    scratch_sizes_ = kernels_.scratch(rows, problem.layout);
    threads_ = work < kWorkForThreads ? 1 : Threads();
    // All memory is taken before anything is written, so that running out of it loses nothing.
    workers_.Reserve(threads_, scratch_sizes_);
  }

  void Run() {
    if (jobs_.empty()) return;
    const bool one_block =
        std::all_of(jobs_.begin(), jobs_.end(), [](const HeadJob& j) { return j.blocks() == 1; });
    const bool small = std::all_of(jobs_.begin(), jobs_.end(), [&](const HeadJob& job) {
      return PackedHead::Floats(job, pack_, Parts::kKeysAndValues) <= kResidentFloats;
    });
    const int64_t jobs = static_cast<int64_t>(jobs_.size());
    if (in_place_)
      RunStreamed();
    else if (small && (one_block || jobs >= 4 * threads_))
      RunResident();
    else if (one_block)
      RunStreamed();
    else
      RunWaves();
  }

  // What was made, and what is still to be: heads whose queries have numbers that triples do not stand for, and other
  // heads' rows that see keys or values which do. What a key holds that a row does not see decides nothing of the row's.
  struct Outcome {
    std::vector<HeadJob> made, unfit;
  };
  Outcome Split() const {
    Outcome rows;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      const HeadJob& job = jobs_[j];
      if (unfit_[j] || odd_keys_[j].empty()) {
        (unfit_[j] ? rows.unfit : rows.made).push_back(job);
        continue;
      }
      std::vector<int64_t> made, unfit;
      for (int64_t r = 0; r < job.rows; ++r) {
        Row row;
        job.MakeRow(r, row);
        (SeesAny(row, odd_keys_[j]) ? unfit : made).push_back(r);
      }
      if (!made.empty()) rows.made.push_back(WithRows(job, made));
      if (!unfit.empty()) rows.unfit.push_back(WithRows(job, unfit));
    }
    return rows;
  }

 private:
  // add(tile): adds it to the sums of the scratch's split.
  template <class Add>
  void RunSplit(const BlockRows& rows, int64_t split, Scratch& scratch, const Add& add) const {
    constexpr int64_t kTiles = kSplitKeys / kKeyTile;
    const int64_t first = std::max(split * kTiles, rows.first_tile());
    const int64_t last = std::min((split + 1) * kTiles, rows.last_tile());
    kernels_.begin_split(rows.block(), scratch);
    for (int64_t tile = first; tile < last; ++tile) add(tile);
  }

  // A block of a job.
  template <class Add>
  void RunBlock(int64_t index, const BlockRows& rows, Scratch& scratch, const Add& add) {
    constexpr int64_t kTiles = kSplitKeys / kKeyTile;
    if (!AnyFit(index, rows)) return;
    if (kernels_.begin(rows.block(), scratch) == Values::kSomeNotFinite) {
      unfit_[static_cast<size_t>(index)] = true;
      return;
    }
    const int64_t first = rows.first_tile() / kTiles, last = (rows.last_tile() + kTiles - 1) / kTiles;
    for (int64_t split = first; split < last; ++split) {
      RunSplit(rows, split, scratch, add);
      if (split == first && !problem_.sink)
        scratch.TakeSplitAsTotal();
      else
        kernels_.merge(rows.block(), scratch.split(), scratch);
    }
    Finish(rows, scratch);
  }

  void Finish(const BlockRows& rows, Scratch& scratch) const {
    kernels_.finish(rows.block(), scratch);
    if (statistics_ == nullptr) return;
    const Sums total = scratch.total();
    for (size_t r = 0; r < rows.rows().size(); ++r) {
      statistics_->max(rows.rows()[r]) = total.max[r];
      statistics_->sum(rows.rows()[r]) = total.sum[r];
    }
  }

  // Notes which of a packed head's keys the kernels do not take.
  void FindOddKeys(int64_t index, const PackedHead& packed) {
    if (numbers_ != Numbers::kTriples) return;
    for (const int64_t tile : packed.NotFinite()) {
      const KeyValues& from = job(index).key_values;
      const int64_t first = tile * kKeyTile, last = std::min(first + kKeyTile, from.length);
      for (int64_t key = first; key < last; ++key) {
        if (!HasTriples(from, key, problem_.layout)) odd_keys_[static_cast<size_t>(index)].push_back(key);
      }
    }
  }

  static bool SeesAny(const Row& row, const std::vector<int64_t>& keys) {
    const auto first = std::lower_bound(keys.begin(), keys.end(), row.first);
    return first != keys.end() && *first < row.last;
  }

  // Whether rows are left that the kernels take.
  bool AnyFit(int64_t index, const BlockRows& rows) const {
    const std::vector<int64_t>& odd = odd_keys_[static_cast<size_t>(index)];
    if (unfit_[static_cast<size_t>(index)]) return false;
    return odd.empty() || !std::all_of(rows.rows().begin(), rows.rows().end(),
                                       [&](const Row& row) { return SeesAny(row, odd); });
  }

  const HeadJob& job(int64_t index) const { return jobs_[static_cast<size_t>(index)]; }
  Worker& worker(int thread) { return workers_[thread]; }

  void RunResident() {
    int64_t floats = 0, tiles = 0;
    for (const HeadJob& job : jobs_) {
      floats = std::max(floats, PackedHead::Floats(job, pack_, Parts::kKeysAndValues));
      tiles = std::max(tiles, job.tiles());
    }
    workers_.ReservePacked(threads_, floats, tiles);
    // A head's numbers are in the cache of the thread that wrote them in the call before.
    TaskRuns runs(threads_);
    runs.Share(static_cast<uint32_t>(jobs_.size()));
    ParallelFor(
        static_cast<int64_t>(jobs_.size()),
        [&](int64_t, int thread) {
          const int64_t task = runs.Take(thread);
          Worker& own = worker(thread);
          const PackedHead packed(job(task), pack_, Parts::kKeysAndValues, own.packed.data(), own.found.data());
          for (int64_t tile = 0; tile < job(task).tiles(); ++tile) packed.Pack(tile);
          FindOddKeys(task, packed);
          for (int64_t block = 0; block < job(task).blocks(); ++block) {
            const BlockRows rows(job(task), block);
            RunBlock(task, rows, *own.scratch,
                     [&](int64_t tile) { kernels_.add_tile(rows.block(), packed.tile(tile), *own.scratch); });
          }
        },
        progress_, threads_);
  }

  // Packs one tile into the worker's memory.
  KeyTile PackTile(const HeadJob& job, int64_t tile, Worker& own) const {
    const PhaseTimer timer(Phase::kPack);
    const int64_t first = tile * kKeyTile, count = std::min(kKeyTile, job.key_values.length - first);
    float* keys = own.packed.data();
    float* values = keys + pack_.KeyFloats(problem_.layout.d);
    pack_.keys(job.key_values.k, first, count, problem_.layout.d, keys);
    return {first, keys, values, pack_.values(job.key_values.v, first, count, problem_.layout.dv, values)};
  }

  void AddStreamed(const HeadJob& job, const BlockRows& rows, int64_t tile, Worker& own) const {
    if (in_place_)
      kernels_.stream_tile(rows.block(), tile * kKeyTile, *own.scratch);
    else
      kernels_.add_tile(rows.block(), PackTile(job, tile, own), *own.scratch);
  }

  void RunStreamed() {
    if (!in_place_)
      workers_.ReservePacked(threads_, pack_.KeyFloats(problem_.layout.d) + pack_.ValueFloats(problem_.layout.dv), 0);
    const bool whole =
        std::all_of(jobs_.begin(), jobs_.end(), [](const HeadJob& j) { return j.splits() <= 1; });
    if (whole || static_cast<int64_t>(jobs_.size()) >= kJobsPerThread * threads_) {
      ParallelFor(
          static_cast<int64_t>(jobs_.size()),
          [&](int64_t task, int thread) {
            Worker& own = worker(thread);
            const BlockRows rows(job(task), 0);
            RunBlock(task, rows, *own.scratch, [&](int64_t tile) { AddStreamed(job(task), rows, tile, own); });
          },
          progress_, threads_);
    } else {
      RunStreamedSplits();
    }
  }

  // Each split's sums are kept until all are there, then merged in order.
  void RunStreamedSplits() {
    struct Task {
      int64_t job, split, sums;
    };
    std::vector<Task> tasks;
    std::vector<int64_t> first_task;
    int64_t floats = 0;
    for (int64_t j = 0; j < static_cast<int64_t>(jobs_.size()); ++j) {
      first_task.push_back(static_cast<int64_t>(tasks.size()));
      for (int64_t split = 0; split < job(j).splits(); ++split) {
        tasks.push_back({j, split, floats});
        floats += SumsFloats(job(j).rows);
      }
    }
    AlignedBuffer<float> kept(floats);
    ParallelFor(
        static_cast<int64_t>(tasks.size()),
        [&](int64_t index, int thread) {
          const Task& task = tasks[static_cast<size_t>(index)];
          Worker& own = worker(thread);
          const BlockRows rows(job(task.job), 0);
          kernels_.begin(rows.block(), *own.scratch);
          RunSplit(rows, task.split, *own.scratch,
                   [&](int64_t tile) { AddStreamed(job(task.job), rows, tile, own); });
          Copy(own.scratch->split(), job(task.job).rows, SumsAt(kept.data() + task.sums, job(task.job).rows));
        },
        progress_, threads_);
    ParallelFor(
        static_cast<int64_t>(jobs_.size()),
        [&](int64_t j, int thread) {
          Scratch& scratch = *worker(thread).scratch;
          const BlockRows rows(job(j), 0);
          kernels_.begin(rows.block(), scratch);
          for (int64_t split = 0; split < job(j).splits(); ++split) {
            const Task& task = tasks[static_cast<size_t>(first_task[static_cast<size_t>(j)] + split)];
            kernels_.merge(rows.block(), SumsAt(kept.data() + task.sums, job(j).rows), scratch);
          }
          Finish(rows, scratch);
        },
        progress_, threads_);
  }

  int64_t out_stride() const { return scratch_sizes_.out_stride; }
  int64_t SumsFloats(int64_t rows) const { return rows * (2 + out_stride()); }
  Sums SumsAt(float* memory, int64_t rows) const { return {memory, memory + rows, memory + 2 * rows}; }
  void Copy(const Sums& from, int64_t rows, const Sums& to) const {
    std::copy_n(from.max, rows, to.max);
    std::copy_n(from.sum, rows, to.sum);
    std::copy_n(from.out, rows * out_stride(), to.out);
  }

  void RunWaves() {
    struct Task {
      int64_t job, block;
    };
    for (const Wave wave : MakeWaves(jobs_, pack_, Parts::kKeysAndValues)) {
      const PackedWave packed(jobs_, wave, pack_, Parts::kKeysAndValues);
      ParallelFor(
          wave.last - wave.first,
          [&](int64_t at, int) { FindOddKeys(wave.first + at, packed.head(wave.first + at)); }, {}, threads_);
      std::vector<Task> tasks;
      for (int64_t j = wave.first; j < wave.last; ++j) {
        // A causal head's last blocks see the most keys: long tasks first.
        for (int64_t block = job(j).blocks() - 1; block >= 0; --block) tasks.push_back({j, block});
      }
      ParallelFor(
          static_cast<int64_t>(tasks.size()),
          [&](int64_t index, int thread) {
            const Task& task = tasks[static_cast<size_t>(index)];
            const PackedHead& head = packed.head(task.job);
            const BlockRows rows(job(task.job), task.block);
            Scratch& scratch = *worker(thread).scratch;
            RunBlock(task.job, rows, scratch,
                     [&](int64_t tile) { kernels_.add_tile(rows.block(), head.tile(tile), scratch); });
          },
          progress_, threads_);
    }
  }

  const Problem& problem_;
  std::vector<HeadJob> jobs_;
  std::vector<std::atomic<bool>> unfit_;        // a job's queries
  std::vector<std::vector<int64_t>> odd_keys_;  // a job's, ascending
  Numbers numbers_;
  RowStatistics* statistics_;
  const Progress& progress_;
  PackKernels pack_;
  ForwardKernels kernels_;
  bool in_place_;  // whether keys and values are read where they lie
  ScratchSizes scratch_sizes_;
  int threads_ = 1;
  Workers workers_;
};

}  // namespace

RowStatistics::RowStatistics(const Problem& problem) : problem_(&problem) {
  int64_t rows = 0;
  for (const Sequence& sequence : problem.sequences) {
    first_row_.push_back(rows);
    rows += sequence.rows * problem.q_heads;
  }
  max_.resize(static_cast<size_t>(rows));
  sum_.resize(static_cast<size_t>(rows));
}

size_t RowStatistics::Index(const Row& row) const {
  const size_t b = static_cast<size_t>(row.batch);
  return static_cast<size_t>(first_row_[b] + row.head * problem_->sequences[b].rows + row.query);
}

void SetLeastForTriples(LeastForTriples least) { g_least = least; }

std::vector<NumberedJobs> RunForward(const Problem& problem, const std::vector<HeadJob>& jobs,
                                     RowStatistics* statistics, const Progress& progress) {
  std::vector<NumberedJobs> all = {{Numbers::kTriples, {}}, {Numbers::kPairs, {}}, {Numbers::kFloats, {}}};
  const auto jobs_of = [&](Numbers numbers) -> std::vector<HeadJob>& {
    return all[static_cast<size_t>(numbers)].jobs;
  };
  for (const HeadJob& job : jobs) jobs_of(NumbersOf(job)).push_back(job);
  for (NumberedJobs& these : all) {
    if (these.jobs.empty()) continue;
    Forward forward(problem, these.jobs, these.numbers, statistics, progress);
    forward.Run();
    auto [made, unfit] = forward.Split();
    these.jobs = std::move(made);
    std::move(unfit.begin(), unfit.end(), std::back_inserter(jobs_of(Numbers::kFloats)));
  }
  return all;
}

}  // namespace qkv
