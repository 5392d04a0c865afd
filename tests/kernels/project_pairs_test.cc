// Multiplies of few rows in bfloat16 pairs, on every instruction set that has them, against plain loops in
// double.
#include "kernels/project_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/pairs.h"
#include "runtime/half.h"
#include "support/guard.h"
#include "support/rng.h"
#include "support/tolerance.h"

namespace qkv::test {
namespace {

constexpr int64_t kColumns = kPairPanelColumns;

struct Shape {
  int64_t rows, steps, panels;
  int64_t inputs() const { return steps * kPairDepth; }
  int64_t outputs() const { return panels * kColumns; }
};

std::vector<BFloat16> Numbers(uint64_t seed, int64_t count) {
  Rng rng(seed);
  std::vector<BFloat16> numbers(static_cast<size_t>(count));
  for (BFloat16& number : numbers) number = ToBFloat16(static_cast<float>(rng.Symmetric()));
  return numbers;
}

// Where input k of output n stands in packed panels.
int64_t Place(const Shape& shape, int64_t n, int64_t k) {
  const int64_t step = n / kColumns * shape.steps + k / kPairDepth;
  return ((step * 16 + k % kPairDepth / 2) * kColumns + n % kColumns) * 2 + k % 2;
}

std::vector<float> Multiply(Isa isa, const Shape& shape, const std::vector<BFloat16>& x,
                            const std::vector<BFloat16>& packed, Edge edge = Edge::kEnd) {
  const GuardedBuffer<BFloat16> guarded_x(std::span<const BFloat16>(x), edge);
  const GuardedBuffer<BFloat16> guarded_w(std::span<const BFloat16>(packed), edge);
  GuardedBuffer<float> sums(shape.rows * shape.outputs(), edge);
  PairPanelKernelFor(isa).multiply(guarded_x.data(), shape.rows, shape.steps, guarded_w.data(), shape.panels,
                                   sums.data());
  return {sums.begin(), sums.end()};
}

int64_t SumAt(const Shape& shape, int64_t row, int64_t n) {
  return (n / kColumns * shape.rows + row) * kColumns + n % kColumns;
}

void CheckAgainstDouble(Isa isa, const Shape& shape, Edge edge) {
  SCOPED_TRACE(testing::Message() << shape.rows << " rows, " << shape.steps << " steps, " << shape.panels
                                  << " panels");
  const std::vector<BFloat16> x = Numbers(1, shape.rows * shape.inputs());
  const std::vector<BFloat16> packed = Numbers(2, shape.outputs() * shape.inputs());
  const std::vector<float> sums = Multiply(isa, shape, x, packed, edge);
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t n = 0; n < shape.outputs(); ++n) {
      double sum = 0, magnitudes = 0;
      for (int64_t k = 0; k < shape.inputs(); ++k) {
        const double product = static_cast<double>(ToFloat(x[static_cast<size_t>(r * shape.inputs() + k)])) *
                               ToFloat(packed[static_cast<size_t>(Place(shape, n, k))]);
        sum += product;
        magnitudes += std::fabs(product);
      }
      ASSERT_NEAR(sums[static_cast<size_t>(SumAt(shape, r, n))], sum, DotBound(shape.inputs(), magnitudes))
          << "row " << r << ", output " << n;
    }
  }
}

class PairPanels : public testing::Test {
 protected:
  void SetUp() override {
    for (const Isa isa : SupportedIsas()) {
      if (HasPairKernels(isa)) isas_.push_back(isa);
    }
    if (isas_.empty()) GTEST_SKIP() << "no instructions for bfloat16 here";
  }
  std::vector<Isa> isas_;
};

TEST_F(PairPanels, MultiplyAsTheFormulaSays) {
  for (const Isa isa : isas_) {
    SCOPED_TRACE(NameOf(isa));
    for (const int64_t rows : {1, 5, 6, 7, 12, 13, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 95, 96}) {
      CheckAgainstDouble(isa, {rows, 3, 2}, rows % 2 == 0 ? Edge::kEnd : Edge::kBegin);
    }
    for (const int64_t steps : {1, 2, 7, 8, 9, 15, 16, 17, 24, 33}) {
      for (const int64_t rows : {2, 20}) CheckAgainstDouble(isa, {rows, steps, 3}, Edge::kEnd);
    }
  }
}

TEST_F(PairPanels, GiveARowTheSameBitsWhateverStandsBesideIt) {
  const Shape all{96, 19, 2};
  const std::vector<BFloat16> x = Numbers(1, all.rows * all.inputs());
  const std::vector<BFloat16> packed = Numbers(2, all.outputs() * all.inputs());
  for (const Isa isa : isas_) {
    SCOPED_TRACE(NameOf(isa));
    const std::vector<float> expected = Multiply(isa, all, x, packed);
    for (const int64_t rows : {1, 2, 6, 16, 17, 33, 50, 64}) {
      const Shape few{rows, all.steps, all.panels};
      const std::vector<BFloat16> few_x(x.begin(), x.begin() + rows * all.inputs());
      const std::vector<float> sums = Multiply(isa, few, few_x, packed);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t n = 0; n < all.outputs(); ++n) {
          ASSERT_EQ(sums[static_cast<size_t>(SumAt(few, r, n))],
                    expected[static_cast<size_t>(SumAt(all, r, n))])
              << rows << " rows, row " << r << ", output " << n;
        }
      }
    }
  }
}

TEST_F(PairPanels, KeepNanInItsRowAndItsColumn) {
  const Shape shape{18, 2, 2};
  std::vector<BFloat16> x = Numbers(1, shape.rows * shape.inputs());
  std::vector<BFloat16> packed = Numbers(2, shape.outputs() * shape.inputs());
  const BFloat16 nan = ToBFloat16(std::numeric_limits<float>::quiet_NaN());
  x[static_cast<size_t>(16 * shape.inputs() + 40)] = nan;
  packed[static_cast<size_t>(Place(shape, 70, 33))] = nan;
  for (const Isa isa : isas_) {
    const std::vector<float> sums = Multiply(isa, shape, x, packed);
    for (int64_t r = 0; r < shape.rows; ++r) {
      for (int64_t n = 0; n < shape.outputs(); ++n) {
        EXPECT_EQ(std::isnan(sums[static_cast<size_t>(SumAt(shape, r, n))]), r == 16 || n == 70)
            << NameOf(isa) << ", row " << r << ", output " << n;
      }
    }
  }
}

TEST_F(PairPanels, RoundSumsToNearest) {
  Rng rng(7);
  std::vector<float> values(kColumns), biases(kColumns);
  for (float& value : values) value = static_cast<float>(rng.Symmetric());
  for (float& bias : biases) bias = static_cast<float>(rng.Symmetric());
  values[3] = std::numeric_limits<float>::infinity();
  values[4] = 0x1.01p0f;  // halfway: to even
  for (const Isa isa : isas_) {
    for (const int64_t count : {1, 15, 16, 17, 63, 64}) {
      const std::span<const float> some_values(values.data(), static_cast<size_t>(count));
      const GuardedBuffer<float> sums(some_values),
          bias(std::span<const float>(biases).first(some_values.size()));
      GuardedBuffer<BFloat16> y(count);
      for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
        PairPanelKernelFor(isa).round(sums.data(), b, count, y.data());
        for (int64_t n = 0; n < count; ++n) {
          EXPECT_EQ(ToFloat(y[n]), ToFloat(ToBFloat16(b == nullptr ? sums[n] : sums[n] + b[n])))
              << NameOf(isa) << " " << n << " of " << count;
        }
      }
    }
  }
}

}  // namespace
}  // namespace qkv::test
