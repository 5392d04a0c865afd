#include "attention/look.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attention/plan.h"
#include "attention/validate.h"
#include "kernels/capture.h"
#include "kernels/triples.h"
#include "runtime/cpu.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// What keys receive is summed strip by strip, and the strips' sums in order, so that it does not depend on threads.
constexpr int64_t kStrips = 8;

// Where a row's part of the capture lies.
class CaptureLayout {
 public:
  CaptureLayout(const Problem& problem, Capture& capture, RowStatistics& statistics)
      : problem_(problem), capture_(capture), statistics_(statistics) {}

  RowCapture ForRow(const Row& row) const {
    RowCapture part = Statistics(row);
    const int64_t index = RowIndex(row);
    if (!capture_.entropy.empty()) part.entropy = &capture_.entropy[static_cast<size_t>(index)];
    if (capture_.top_k > 0) {
      part.top_keys = &capture_.top_keys[static_cast<size_t>(index * capture_.top_k)];
      part.top_weights = &capture_.top_weights[static_cast<size_t>(index * capture_.top_k)];
    }
    return part;
  }

  // For the chosen row number `chosen` of the request.
  RowCapture ForChosen(const Row& row, int64_t chosen) const {
    RowCapture part = Statistics(row);
    const int64_t count = static_cast<int64_t>(capture_.rows.size());
    const int64_t index = ((row.batch * problem_.q_heads + row.head) * count + chosen) * capture_.keys;
    part.values = capture_.row_values.data() + index;
    return part;
  }

  void SetSinkWeight(const Row& row) const {
    if (capture_.sink_weight.empty() || row.sink == nullptr || statistics_.sum(row) == 0) return;
    capture_.sink_weight[static_cast<size_t>(RowIndex(row))] =
        std::exp(*row.sink - statistics_.max(row)) / statistics_.sum(row);
  }

 private:
  int64_t RowIndex(const Row& row) const {
    return (row.batch * problem_.q_heads + row.head) * capture_.queries + row.query;
  }
  RowCapture Statistics(const Row& row) const {
    RowCapture part;
    part.max = statistics_.max(row);
    part.inverse_sum = 1.0f / statistics_.sum(row);
    if (part.max == -HUGE_VALF) part.max = 0;  // a blocked row's scores are all -inf: weights 0
    if (!(statistics_.sum(row) != 0)) part.inverse_sum = 1;
    return part;
  }

  const Problem& problem_;
  Capture& capture_;
  RowStatistics& statistics_;
};

// Runs `block(job, rows, thread)` over all blocks of all jobs, keys packed; consecutive blocks of a job make a strip,
// which one thread runs in order.
class CaptureRun {
 public:
  // Scores are made as numbers of a kind; those of pairs, in float32.
  CaptureRun(const Problem& problem, Numbers numbers, const std::vector<HeadJob>& jobs, int64_t top_k)
      : jobs_(jobs),
        pack_(numbers == Numbers::kTriples ? TriplePackKernels() : PackKernelsFor(ChosenIsa())),
        kernels_(numbers == Numbers::kTriples ? TripleCaptureKernels() : CaptureKernelsFor(ChosenIsa())) {
    int64_t rows = 0;
    for (const HeadJob& job : jobs) rows = std::max(rows, job.block_rows);
    for (int thread = 0; thread < Threads(); ++thread) {
      scratch_.push_back(std::make_unique<Scratch>(kernels_.scratch(rows, problem.layout)));
      top_.emplace_back(top_k);
    }
  }

  // part_of(job, strip, row number in the job, row) gives the row's RowCapture.
  template <class PartOf>
  void Run(RowValues values, const Progress& progress, const PartOf& part_of) {
    struct Task {
      int64_t job, strip;
    };
    for (const Wave wave : MakeWaves(jobs_, pack_, Parts::kKeys)) {
      const PackedWave packed(jobs_, wave, pack_, Parts::kKeys);
      std::vector<Task> tasks;
      for (int64_t j = wave.first; j < wave.last; ++j) {
        for (int64_t strip = kStrips - 1; strip >= 0; --strip) tasks.push_back({j, strip});
      }
      ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t index, int thread) {
        const Task& task = tasks[static_cast<size_t>(index)];
        const HeadJob& job = jobs_[static_cast<size_t>(task.job)];
        const int64_t blocks = job.blocks();
        for (int64_t b = blocks * task.strip / kStrips; b < blocks * (task.strip + 1) / kStrips; ++b) {
          const BlockRows rows(job, b);
          std::vector<RowCapture> parts;
          for (size_t r = 0; r < rows.rows().size(); ++r) {
            const int64_t number = b * job.block_rows + static_cast<int64_t>(r);
            parts.push_back(part_of(task.job, task.strip, number, rows.rows()[r]));
          }
          RunBlock(rows, packed.head(task.job), values, parts, static_cast<size_t>(thread));
        }
      }, progress);
    }
  }

 private:
  void RunBlock(const BlockRows& rows, const PackedHead& packed, RowValues values, std::vector<RowCapture>& parts,
                size_t thread) {
    Scratch& scratch = *scratch_[thread];
    kernels_.begin(rows.block(), scratch);
    for (int64_t tile = rows.first_tile(); tile < rows.last_tile(); ++tile) {
      kernels_.add_tile(rows.block(), packed.tile(tile), parts.data(), top_[thread], values, scratch);
    }
  }

  const std::vector<HeadJob>& jobs_;
  PackKernels pack_;
  CaptureKernels kernels_;
  std::vector<std::unique_ptr<Scratch>> scratch_;
  std::vector<TopList> top_;
};

// Rows of a block, so that strips begin at the same rows whatever the threads and the other sequences.
int64_t StripBlockRows(int64_t rows) { return std::clamp((rows + kStrips - 1) / kStrips, int64_t{1}, kMaxBlockRows); }

// Top keys, entropy, received mass: of every row of some jobs.
void CaptureRows(const Problem& problem, const CaptureRequest& request, const CaptureLayout& layout,
                 NumberedJobs numbered, const Progress& progress, Capture& capture) {
  std::vector<HeadJob>& jobs = numbered.jobs;
  for (HeadJob& job : jobs) job.block_rows = StripBlockRows(job.rows);
  const int64_t group = problem.group();
  // (job, strip, head of the group, key)
  AlignedBuffer<float> received(request.received ? static_cast<int64_t>(jobs.size()) * kStrips * group * capture.keys
                                                 : 0);
  std::fill_n(received.data(), received.size(), 0.0f);
  CaptureRun(problem, numbered.numbers, jobs, request.top_k).Run(RowValues::kWeights, progress,
                                [&](int64_t job, int64_t strip, int64_t, const Row& row) {
    RowCapture part = layout.ForRow(row);
    layout.SetSinkWeight(row);
    if (request.received) {
      part.received = received.data() + ((job * kStrips + strip) * group + row.head % group) * capture.keys;
    }
    return part;
  });
  if (!request.received) return;
  for (int64_t job = 0; job < static_cast<int64_t>(jobs.size()); ++job) {
    const HeadJob& from = jobs[static_cast<size_t>(job)];
    const int64_t head = from.sequence->batch * problem.q_heads + from.kv_head * group;
    for (int64_t strip = 0; strip < kStrips; ++strip) {
      const float* part = received.data() + (job * kStrips + strip) * group * capture.keys;
      float* to = capture.received.data() + head * capture.keys;
      for (int64_t i = 0; i < group * capture.keys; ++i) to[i] += part[i];
    }
  }
}

// The problem whose scores stop at an earlier stage: every key of the sequence is visible, later rules are gone.
Problem AtStage(const Problem& problem, RowKind kind) {
  if (kind == RowKind::kWeights || kind == RowKind::kBiasedScores) return problem;
  Problem early = problem;
  early.causal = Causal::kNone;
  early.window = {};
  early.mask.reset(), early.bias.reset(), early.slopes.reset();
  early.rules = {};
  if (kind == RowKind::kSoftcappedScores) early.rules.softcap = problem.rules.softcap;
  return early;
}

void CaptureChosenRows(const Problem& problem, const CaptureRequest& request, const CaptureLayout& layout,
                       const Progress& progress) {
  const Problem staged = AtStage(problem, request.row_kind);
  std::vector<std::pair<int64_t, int64_t>> chosen;  // query and its place in the request, ascending
  for (int64_t query : *request.rows) chosen.emplace_back(query, static_cast<int64_t>(chosen.size()));
  std::sort(chosen.begin(), chosen.end());
  auto rows = std::make_shared<std::vector<int64_t>>();
  for (const auto& [query, place] : chosen) {
    for (int64_t h = 0; h < problem.group(); ++h) rows->push_back(query * problem.group() + h);
  }
  const std::vector<HeadJob> jobs = MakeJobs(staged, std::move(rows));
  const RowValues values = request.row_kind == RowKind::kWeights ? RowValues::kWeights : RowValues::kScores;
  CaptureRun run(staged, Numbers::kFloats, jobs, 0);
  run.Run(values, progress, [&](int64_t, int64_t, int64_t number, const Row& row) {
    return layout.ForChosen(row, chosen[static_cast<size_t>(number / problem.group())].second);
  });
}

}  // namespace

void CheckCapture(const CaptureRequest& request, int64_t queries, int64_t keys) {
  if (request.top_k < 0) {
    FailArgument("capture.top_k", "negative", "0 or more", std::to_string(request.top_k));
  }
  if (request.top_k > std::numeric_limits<int32_t>::max()) {
    FailArgument("capture.top_k", "too many", "fewer than 2^31", std::to_string(request.top_k));
  }
  if (keys > std::numeric_limits<int32_t>::max()) {
    FailArgument("k", "too many keys for a capture", "fewer than 2^31", std::to_string(keys));
  }
  const int kind = static_cast<int>(request.row_kind);
  if (kind < static_cast<int>(RowKind::kWeights) || kind > static_cast<int>(RowKind::kBiasedScores)) {
    FailArgument("capture.row_kind", "no such kind", "weights, or raw, softcapped or biased scores", std::to_string(kind));
  }
  if (!request.rows) return;
  std::set<int64_t> seen;
  for (int64_t row : *request.rows) {
    if (row < 0 || row >= queries) {
      FailArgument("capture.rows", "no such query", "0 to " + std::to_string(queries - 1), std::to_string(row));
    }
    if (!seen.insert(row).second) {
      FailArgument("capture.rows", "a query stands twice", "each once", std::to_string(row));
    }
  }
}

Capture EmptyCapture(const Problem& problem, const CaptureRequest& request, int64_t queries, int64_t keys) {
  Capture capture;
  capture.batch = static_cast<int64_t>(problem.sequences.size());
  capture.heads = problem.q_heads;
  capture.queries = queries;
  capture.keys = keys;
  capture.top_k = request.top_k;
  const auto size = [&](int64_t per_head) {
    return static_cast<size_t>(Shape{capture.batch, capture.heads, per_head}.elements());
  };
  const size_t top = static_cast<size_t>(Shape{capture.batch, capture.heads, capture.queries, capture.top_k}.elements());
  capture.top_keys.assign(top, -1);
  capture.top_weights.assign(top, 0.0f);
  if (request.entropy) capture.entropy.assign(size(capture.queries), 0.0f);
  if (request.entropy && problem.sink) capture.sink_weight.assign(size(capture.queries), 0.0f);
  if (request.received) capture.received.assign(size(keys), 0.0f);
  if (request.rows) {
    capture.rows = *request.rows;
    const int64_t count = static_cast<int64_t>(capture.rows.size());
    const float blank = request.row_kind == RowKind::kBiasedScores ? -HUGE_VALF : 0.0f;
    capture.row_values.assign(static_cast<size_t>(Shape{capture.batch, capture.heads, count, keys}.elements()), blank);
  }
  return capture;
}

void RunCapture(const Problem& problem, const CaptureRequest& request, const std::vector<NumberedJobs>& jobs,
                RowStatistics& statistics, const Progress& progress, Capture& capture) {
  if (problem.q_heads == 0) return;  // there is no row, and with no KV head either no group
  const CaptureLayout layout(problem, capture, statistics);
  if (request.top_k > 0 || request.entropy || request.received) {
    for (const NumberedJobs& these : jobs) {
      if (!these.jobs.empty()) CaptureRows(problem, request, layout, these, progress, capture);
    }
  }
  if (request.rows) CaptureChosenRows(problem, request, layout, progress);
}

}  // namespace qkv
