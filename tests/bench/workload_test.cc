#include "bench/workload.h"

#include <gmock/gmock.h>

#include <cmath>

#include "qkv/error.h"

namespace qkv::bench {
namespace {

Case Tiny(DType dtype) {
  Case one;
  one.name = "tiny";
  one.dtype = dtype;
  one.q_heads = 4, one.kv_heads = 2, one.queries = one.keys = 20, one.d = 8;
  one.causal = Causal::kBottomRight;
  return one;
}

// Plain loops over the numbers that a workload draws.
std::vector<float> Expected(const Case& one) {
  std::vector<float> out;
  const auto at = [&](uint32_t stream, int64_t head, int64_t row, int64_t c) {
    return static_cast<double>(ValueAt(stream, static_cast<uint32_t>((head * one.keys + row) * one.d + c)));
  };
  for (int64_t h = 0; h < one.q_heads; ++h) {
    const int64_t kv = h / (one.q_heads / one.kv_heads);
    for (int64_t i = 0; i < one.queries; ++i) {
      std::vector<double> row(static_cast<size_t>(one.d), 0.0);
      double sum = 0;
      for (int64_t j = 0; j <= i; ++j) {
        double score = 0;
        for (int64_t c = 0; c < one.d; ++c) score += at(0, h, i, c) * at(1, kv, j, c);
        const double weight = std::exp(score / std::sqrt(static_cast<double>(one.d)));
        sum += weight;
        for (int64_t c = 0; c < one.d; ++c) row[static_cast<size_t>(c)] += weight * at(2, kv, j, c);
      }
      for (const double value : row) out.push_back(static_cast<float>(value / sum));
    }
  }
  return out;
}

TEST(WorkloadTest, NumbersHaveMeanZeroAndVarianceOne) {
  constexpr uint32_t kCount = 100'000;
  double sum = 0, squares = 0;
  for (uint32_t i = 0; i < kCount; ++i) {
    const double value = ValueAt(3, i);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

// Numbers of two streams, as bench/side_by_side/data.py has them too.
TEST(WorkloadTest, NumbersStayTheSame) {
  EXPECT_FLOAT_EQ(ValueAt(0, 0), -1.7320508f);
  EXPECT_FLOAT_EQ(ValueAt(0, 1), -1.4886394f);
  EXPECT_FLOAT_EQ(ValueAt(2, 999), 0.22965477f);
}

TEST(WorkloadTest, ComputesAttention) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kF32, 1e-5f}, {DType::kBF16, 0.04f}, {DType::kF16, 4e-3f}}) {
    for (const Kind kind : {Kind::kAttention, Kind::kCapture}) {
      Case one = Tiny(dtype);
      one.kind = kind;
      const auto workload = MakeWorkload(one, DescribeMachine());
      workload->Run();
      EXPECT_THAT(workload->Result(), testing::Pointwise(testing::FloatNear(tolerance), Expected(one)));
      EXPECT_EQ(workload->operations(), AttentionOperations(one));
    }
  }
}

TEST(WorkloadTest, MemoryLimitedCasesTakeTurnsOnCopies) {
  Case one = Tiny(DType::kF32);
  one.queries = 1;
  Machine machine = DescribeMachine();
  machine.beyond_caches = static_cast<int64_t>(10 * BytesRead(one));
  machine.memory = machine.beyond_caches * 100;
  EXPECT_EQ(MakeWorkload(one, machine)->copies(), 10);
  machine.memory = machine.beyond_caches * 2;  // a quarter of it: half of what was wanted
  EXPECT_EQ(MakeWorkload(one, machine)->copies(), 5);
  one.queries = one.keys;
  EXPECT_EQ(MakeWorkload(one, machine)->copies(), 1);
}

// The loss dout . out grows by as much as the gradient says when all of q does: by symmetry of scores in q and
// k, sum(dq . q) and sum(dk . k) are the same.
TEST(WorkloadTest, RunsTheGradients) {
  Case one = Tiny(DType::kF32);
  one.kind = Kind::kBackward;
  const auto workload = MakeWorkload(one, DescribeMachine());
  workload->Run();
  const std::vector<float> gradients = workload->Result();
  const size_t q = static_cast<size_t>(one.q_heads * one.queries * one.d);
  const size_t k = static_cast<size_t>(one.kv_heads * one.keys * one.d);
  ASSERT_EQ(gradients.size(), q + 2 * k);
  double by_q = 0, by_k = 0;
  for (size_t i = 0; i < q; ++i)
    by_q += static_cast<double>(gradients[i] * ValueAt(0, static_cast<uint32_t>(i)));
  for (size_t i = 0; i < k; ++i)
    by_k += static_cast<double>(gradients[q + i] * ValueAt(1, static_cast<uint32_t>(i)));
  EXPECT_NE(by_q, 0);
  EXPECT_NEAR(by_q, by_k, 1e-4 * std::abs(by_q));
  EXPECT_EQ(workload->operations(), 3.5 * AttentionOperations(one));
}

TEST(WorkloadTest, RunsALayer) {
  Case one = Tiny(DType::kF32);
  one.kind = Kind::kLayer;
  one.kv_heads = one.q_heads;
  const auto workload = MakeWorkload(one, DescribeMachine());
  workload->Run();
  const std::vector<float> out = workload->Result();
  EXPECT_EQ(out.size(), static_cast<size_t>(one.queries * one.q_heads * one.d));
  EXPECT_THAT(out, testing::Contains(testing::Ne(0.0f)));
  EXPECT_EQ(workload->operations(), LayerOperations(one));
}

TEST(WorkloadTest, RefusesWhatDoesNotFit) {
  Machine machine = DescribeMachine();
  machine.memory = 1000;
  EXPECT_THROW(MakeWorkload(Tiny(DType::kF32), machine), Error);
}

}  // namespace
}  // namespace qkv::bench
