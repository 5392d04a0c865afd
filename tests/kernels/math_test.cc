// exp and tanh against double precision over their whole domains, in units in the last place; the tile
// multiply. test_kernels --gtest_filter='Math.*' prints the table of docs/numerics.md.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "support/guard.h"
#include "support/rng.h"
#include "vector_math.h"

namespace qkv::test {
namespace {

// The distance of `got` from the exact value in units of the last place of a float32 near it.
double UlpError(float got, double exact) {
  const float nearest = std::abs(static_cast<float>(exact));
  const double ulp = static_cast<double>(std::nextafter(nearest, HUGE_VALF)) - nearest;
  return std::abs(got - exact) / ulp;
}

struct Domain {
  const char* function;
  double low, high;
  std::function<double(double)> exact;
  double bound;  // ULP
};

// Every `step`-th float32 between two numbers of one sign.
std::vector<float> Floats(float low, float high, uint32_t step) {
  std::vector<float> values;
  const uint32_t a = std::bit_cast<uint32_t>(low), b = std::bit_cast<uint32_t>(high);
  for (uint32_t bits = std::min(a, b); bits <= std::max(a, b); bits += step)
    values.push_back(std::bit_cast<float>(bits));
  values.push_back(low), values.push_back(high);
  return values;
}

double WorstUlp(const std::vector<float>& x, const std::vector<float>& y,
                const std::function<double(double)>& exact) {
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, UlpError(y[i], exact(x[i])));
  return worst;
}

void CheckTable(const char* name, double bound, const std::vector<float>& x,
                const std::function<double(double)>& exact,
                void (*VectorMath::*function)(const float*, int64_t, float*)) {
  for (Isa isa : SupportedIsas()) {
    std::vector<float> y(x.size());
    (VectorMathFor(isa).*function)(x.data(), static_cast<int64_t>(x.size()), y.data());
    const double worst = WorstUlp(x, y, exact);
    std::printf("%-28s %-11s %9zu points  %.3f ULP\n", name, NameOf(isa), x.size(), worst);
    EXPECT_LE(worst, bound) << name << " on " << NameOf(isa);
  }
}

TEST(Math, Exp2WithinItsUlp) {
  const auto exact = [](double x) { return std::exp2(x); };
  CheckTable("2^x, x in [-126, -1]", 1.2, Floats(-126, -1, 101), exact, &VectorMath::exp2);
  CheckTable("2^x, x in [-1, -2^-30]", 1.2, Floats(-1, -0x1p-30f, 501), exact, &VectorMath::exp2);
}

TEST(Math, TanhWithinItsUlp) {
  const auto exact = [](double x) { return std::tanh(x); };
  CheckTable("tanh x, x in [2^-20, 0.625)", 2, Floats(0x1p-20f, 0.6249999f, 301), exact, &VectorMath::tanh);
  CheckTable("tanh x, x in [0.625, 20]", 2, Floats(0.625f, 20, 101), exact, &VectorMath::tanh);
}

TEST(Math, TheEdgesOfExp2AndTanh) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (Isa isa : SupportedIsas()) {
    const VectorMath math = VectorMathFor(isa);
    const float x[] = {0, -0.0f, -127, -128, -1e30f, -infinity, nan, -1};
    float y[8];
    math.exp2(x, 8, y);
    EXPECT_EQ(y[0], 1);
    EXPECT_EQ(y[1], 1);
    EXPECT_EQ(y[7], 0.5f);
    for (int i = 2; i < 6; ++i) EXPECT_EQ(y[i], 0) << x[i];
    EXPECT_TRUE(std::isnan(y[6]));
    const float t[] = {0, -0.0f, 1e-30f, 100, -100, infinity, -infinity, nan};
    math.tanh(t, 8, y);
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[1], 0);
    EXPECT_EQ(y[2], 1e-30f);
    const float expected[] = {1, -1, 1, -1};
    EXPECT_EQ(0, std::memcmp(y + 3, expected, sizeof expected));
    EXPECT_TRUE(std::isnan(y[7]));
    std::vector<float> odd = Floats(0.01f, 30, 100001), mirrored, plus(odd.size()), minus(odd.size());
    for (float value : odd) mirrored.push_back(-value);
    math.tanh(odd.data(), static_cast<int64_t>(odd.size()), plus.data());
    math.tanh(mirrored.data(), static_cast<int64_t>(odd.size()), minus.data());
    for (size_t i = 0; i < odd.size(); ++i) EXPECT_EQ(plus[i], -minus[i]);
  }
}

// Weights of a row: exp(s - base) over exp(base - base), whatever the base's own rounding.
TEST(Math, RowExpKeepsDifferences) {
  for (Isa isa : SupportedIsas()) {
    const VectorMath math = VectorMathFor(isa);
    for (float base : {0.0f, 1.5f, -333.25f, 4096.5f, 65000.0f}) {
      double worst = 0;
      for (int n = 0; n <= 80; ++n) {
        const float x[2] = {base, base - 0.5f * static_cast<float>(n)};
        float y[2];
        math.row_exp(x, 2, base, y);
        const double exact = std::exp(static_cast<double>(x[1]) - base);
        worst = std::max(worst, std::abs(static_cast<double>(y[1]) / y[0] - exact) / exact);
      }
      // log2 e as float32 is off by 1.3e-8 of itself, which 40 e-folds make 5e-7; and the argument rounds.
      EXPECT_LE(worst, 5e-6) << NameOf(isa) << " base " << base;
    }
  }
}

// Every element is one chain in ascending depth for each piece of it: no shape of the tile changes its bits, and
// nothing outside the operands is touched.
TEST(Multiply, BitsDoNotDependOnTheShapeOfTheTile) {
  Rng rng(1);
  for (Isa isa : SupportedIsas()) {
    const VectorMath math = VectorMathFor(isa);
    for (int64_t rows = 1; rows <= 2 * math.tile_rows; ++rows) {
      for (int64_t columns = 1; columns <= math.panel; columns += math.lanes > 4 ? 3 : 1) {
        for (int64_t depth : {1, 2, 7, 64, 129}) {
          const int64_t width = (columns + math.lanes - 1) / math.lanes * math.lanes;
          for (Edge edge : {Edge::kEnd, Edge::kBegin}) {
            GuardedBuffer<float> a(rows * depth, edge), b((depth - 1) * math.panel + width, edge),
                c(rows * width, edge);
            for (float& value : a) value = static_cast<float>(rng.Symmetric());
            for (float& value : b) value = static_cast<float>(rng.Symmetric());
            for (int64_t piece : {int64_t{64}, depth}) {
              math.multiply(rows, columns, depth, a.data(), b.data(), c.data(), width, math.tile_rows, piece);
              const std::vector<float> whole(c.begin(), c.end());
              math.multiply(rows, columns, depth, a.data(), b.data(), c.data(), width, 1, piece);
              ASSERT_EQ(0, std::memcmp(whole.data(), c.data(), whole.size() * sizeof(float))) << NameOf(isa);
            }
            double exact = 0, magnitude = 0;
            for (int64_t k = 0; k < depth; ++k) {
              exact += static_cast<double>(a[(rows - 1) * depth + k]) * b[k * math.panel + columns - 1];
              magnitude +=
                  std::abs(static_cast<double>(a[(rows - 1) * depth + k]) * b[k * math.panel + columns - 1]);
            }
            ASSERT_NEAR(c[(rows - 1) * width + columns - 1], exact,
                        static_cast<double>(depth + 1) * 6e-8 * magnitude);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace qkv::test
