#include "attention/plan.h"

#include <algorithm>
#include <utility>

#include "kernels/phase.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

constexpr int64_t kRowGroup = 6;              // rows of the tile multiply: blocks are whole groups
constexpr int64_t kBlocksPerThread = 4;       // fewer, and threads wait for the last one

// Blocks as large as can be, unless that leaves threads without work: a tile of keys is read once per block.
int64_t BlockRowsFor(int64_t rows, int64_t jobs) {
  const int64_t wanted = (kBlocksPerThread * Threads() + jobs - 1) / std::max<int64_t>(jobs, 1);
  const int64_t blocks = std::max((rows + kMaxBlockRows - 1) / kMaxBlockRows, std::min(wanted, rows / kRowGroup));
  const int64_t even = (rows + std::max<int64_t>(blocks, 1) - 1) / std::max<int64_t>(blocks, 1);
  return std::clamp<int64_t>((even + kRowGroup - 1) / kRowGroup * kRowGroup, kRowGroup, kMaxBlockRows);
}

// All rows, or as many of those picked as there are: in a packed batch other sequences may be longer.
int64_t CountOfRows(int64_t rows, const std::vector<int64_t>* picked) {
  if (picked == nullptr) return rows;
  return std::lower_bound(picked->begin(), picked->end(), rows) - picked->begin();
}

}  // namespace

std::vector<HeadJob> MakeJobs(const Problem& problem, std::shared_ptr<const std::vector<int64_t>> picked) {
  std::vector<HeadJob> jobs;
  if (problem.q_heads == 0) return jobs;
  const int64_t count = static_cast<int64_t>(problem.sequences.size()) * problem.kv_heads;
  for (const Sequence& sequence : problem.sequences) {
    const int64_t rows = CountOfRows(sequence.rows * problem.group(), picked.get());
    if (rows == 0) continue;
    for (int64_t head = 0; head < problem.kv_heads; ++head) {
      jobs.push_back({&problem, &sequence, head, MakeKeyValues(problem, sequence, head), picked, rows,
                      BlockRowsFor(rows, count)});
    }
  }
  return jobs;
}

HeadJob WithRows(const HeadJob& job, const std::vector<int64_t>& numbers) {
  HeadJob some = job;
  auto picked = std::make_shared<std::vector<int64_t>>();
  for (const int64_t r : numbers) picked->push_back(job.number(r));
  some.picked = std::move(picked);
  some.rows = static_cast<int64_t>(numbers.size());
  return some;
}

void HeadJob::MakeRow(int64_t r, Row& row) const {
  const int64_t group = problem->group(), at = number(r), query = group == 1 ? at : at / group;
  qkv::MakeRow(*problem, *sequence, kv_head * group + at - query * group, query, row);
}

BlockRows::BlockRows(const HeadJob& job, int64_t block) {
  const int64_t first = block * job.block_rows, last = std::min(first + job.block_rows, job.rows);
  int64_t first_key = job.key_values.length, last_key = 0;
  rows_.resize(static_cast<size_t>(last - first));
  for (int64_t r = first; r < last; ++r) {
    Row& row = rows_[static_cast<size_t>(r - first)];
    job.MakeRow(r, row);
    if (row.first >= row.last) continue;
    first_key = std::min(first_key, row.first);
    last_key = std::max(last_key, row.last);
  }
  if (first_key < last_key) {
    first_key_ = first_key, last_key_ = last_key;
    first_tile_ = first_key / kKeyTile;
    last_tile_ = (last_key + kKeyTile - 1) / kKeyTile;
  }
  block_ = {rows_.data(), last - first, &job.problem->layout, &job.problem->rules, &job.key_values};
}

PackedHead::PackedHead(const HeadJob& job, const PackKernels& kernels, Parts parts, float* memory, Found* found)
    : job_(&job),
      kernels_(kernels),
      parts_(parts),
      keys_(memory),
      values_(memory + job.tiles() * kernels.KeyFloats(job.problem->layout.d)),
      found_(found),
      keys_floats_(kernels.KeyFloats(job.problem->layout.d)),
      values_floats_(kernels.ValueFloats(job.problem->layout.dv)) {}

int64_t PackedHead::Floats(const HeadJob& job, const PackKernels& kernels, Parts parts) {
  const Layout& layout = job.problem->layout;
  const int64_t values = parts == Parts::kKeys ? 0 : kernels.ValueFloats(layout.dv);
  return job.tiles() * (kernels.KeyFloats(layout.d) + values);
}

void PackedHead::Pack(int64_t tile) const {
  const PhaseTimer timer(Phase::kPack);
  const KeyValues& from = job_->key_values;
  const int64_t first = tile * kKeyTile, count = std::min(kKeyTile, from.length - first);
  found_[tile].keys = kernels_.keys(from.k, first, count, job_->problem->layout.d, keys_ + tile * keys_floats_);
  if (parts_ == Parts::kKeys) return;
  found_[tile].values =
      kernels_.values(from.v, first, count, job_->problem->layout.dv, values_ + tile * values_floats_);
}

KeyTile PackedHead::tile(int64_t tile) const {
  const float* keys = keys_ + tile * keys_floats_;
  if (parts_ == Parts::kKeys) return {tile * kKeyTile, keys, nullptr, Values::kFinite};
  return {tile * kKeyTile, keys, values_ + tile * values_floats_, found_[tile].values};
}

std::vector<int64_t> PackedHead::NotFinite() const {
  std::vector<int64_t> tiles;
  for (int64_t tile = 0; tile < job_->tiles(); ++tile) {
    const Found& found = found_[tile];
    if (found.keys != Values::kFinite || found.values != Values::kFinite) tiles.push_back(tile);
  }
  return tiles;
}

std::vector<Wave> MakeWaves(const std::vector<HeadJob>& jobs, const PackKernels& kernels, Parts parts) {
  std::vector<Wave> waves;
  int64_t floats = 0;
  for (int64_t job = 0; job < static_cast<int64_t>(jobs.size()); ++job) {
    const int64_t more = PackedHead::Floats(jobs[static_cast<size_t>(job)], kernels, parts);
    if (waves.empty() || floats + more > kWaveFloats) {
      waves.push_back({job, job});
      floats = 0;
    }
    floats += more;
    waves.back().last = job + 1;
  }
  return waves;
}

PackedWave::PackedWave(const std::vector<HeadJob>& jobs, Wave wave, const PackKernels& kernels, Parts parts)
    : first_(wave.first) {
  struct Task {
    int64_t head, tile;
  };
  std::vector<Task> tasks;
  int64_t floats = 0;
  for (int64_t job = wave.first; job < wave.last; ++job) {
    floats += PackedHead::Floats(jobs[static_cast<size_t>(job)], kernels, parts);
    for (int64_t tile = 0; tile < jobs[static_cast<size_t>(job)].tiles(); ++tile) {
      tasks.push_back({job - wave.first, tile});
    }
  }
  memory_ = AlignedBuffer<float>(floats);
  found_.resize(tasks.size());
  float* memory = memory_.data();
  Found* found = found_.data();
  for (int64_t job = wave.first; job < wave.last; ++job) {
    const HeadJob& head = jobs[static_cast<size_t>(job)];
    heads_.emplace_back(head, kernels, parts, memory, found);
    memory += PackedHead::Floats(head, kernels, parts);
    found += head.tiles();
  }
  ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t task, int) {
    const Task& at = tasks[static_cast<size_t>(task)];
    heads_[static_cast<size_t>(at.head)].Pack(at.tile);
  });
}

}  // namespace qkv
