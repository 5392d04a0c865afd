// Running a validated problem on the fused kernels.
#pragma once

#include <functional>
#include <vector>

#include "attention/plan.h"
#include "attention/problem.h"
#include "qkv/progress.h"

namespace qkv {

// Each row's maximum score and its sum of exp(score - maximum): what turns scores into weights afterwards.
// Row (sequence b, head h, query i) is at first_row[b] + h * rows_of_b + i.
class RowStatistics {
 public:
  explicit RowStatistics(const Problem& problem);
  float& max(const Row& row) { return max_[Index(row)]; }
  float& sum(const Row& row) { return sum_[Index(row)]; }

 private:
  size_t Index(const Row& row) const;
  const Problem* problem_;
  std::vector<int64_t> first_row_;
  std::vector<float> max_, sum_;
};

// From these sizes on, rows a KV head and channels of keys and of values, float32 and float16 run as triples where the
// machine has them (kernels/triples.h): below, packing three parts and padding to whole tiles take longer than they save.
// Measured with 12 heads. A causal call has half of the work for the same packing.
struct LeastForTriples {
  int64_t rows = 256, causal_rows = 1024, channels = 49;  // rows: more than a block's
};
void SetLeastForTriples(LeastForTriples least);  // for tests, which try them on small calls

// What numbers are multiplied as. float32 comes last: it takes what others cannot.
enum class Numbers { kTriples, kPairs, kFloats };

struct NumberedJobs {
  Numbers numbers;
  std::vector<HeadJob> jobs;
};

// Writes out and lse. statistics, where given, is filled in. Returns how each row was made.
std::vector<NumberedJobs> RunForward(const Problem& problem, const std::vector<HeadJob>& jobs,
                                     RowStatistics* statistics, const Progress& progress);

}  // namespace qkv
