// What training does to long arrays: the optimizer's step, sums, dropout.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/dropout.h"
#include "kernels/optimizer.h"
#include "layers/noise.h"
#include "runtime/cpu.h"
#include "runtime/half.h"
#include "support/guard.h"

namespace qkv {
namespace {

using test::GuardedBuffer;
using test::Noise;

class TrainingOn : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { ForceIsa(GetParam()); }
  void TearDown() override { ForceIsa(chosen_); }

 private:
  Isa chosen_ = ChosenIsa();
};

TEST_P(TrainingOn, AdamWIsWhatTheFormulaSays) {
  AdamWStep step;
  step.gradient_scale = 0.5f;
  step.beta1 = 0.9f;
  step.beta2 = 0.95f;
  step.epsilon = 1e-6f;
  step.rate = 0.01f;
  step.shrink = 0.001f;
  step.correction1 = 0.271f;
  step.correction2 = 0.142625f;
  for (const int64_t count : {1, 15, 16, 17, 35}) {
    const GuardedBuffer<float> g(Noise(1, count));
    const std::vector<float> p0 = Noise(2, count), m0 = Noise(3, count), v0 = Noise(4, count, 0.5f);
    GuardedBuffer<float> p(p0), m(m0), v(v0);
    for (int64_t i = 0; i < count; ++i) v[i] = v0[static_cast<size_t>(i)] + 0.3f;
    AdamWUpdate(step, g.data(), count, p.data(), m.data(), v.data());
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      const double gradient = 0.5 * g[i], first = 0.9 * m0[at] + 0.1 * gradient;
      const double second = 0.95 * (v0[at] + 0.3) + 0.05 * gradient * gradient;
      const double size = std::sqrt(second / 0.142625) + 1e-6;
      ASSERT_NEAR(m[i], first, 1e-7);
      ASSERT_NEAR(v[i], second, 1e-7);
      ASSERT_NEAR(p[i], 0.999 * p0[at] - 0.01 / 0.271 * first / size, 1e-7);
    }
  }
}

TEST_P(TrainingOn, SumOfSquaresOfWhateverSize) {
  for (const int64_t count : {0, 1, 7, 8, 16, 33, 1000}) {
    const GuardedBuffer<float> x(Noise(1, count));
    double expected = 0;
    for (float value : x) expected += static_cast<double>(value) * static_cast<double>(value);
    EXPECT_NEAR(SumOfSquares(x.data(), count), expected, 1e-12 * expected) << count;
  }
  const std::vector<float> huge(40, 3e38f);
  EXPECT_NEAR(SumOfSquares(huge.data(), 40), 40 * 9e76, 1e71);
}

TEST_P(TrainingOn, ColumnSumsAddToWhatIsThere) {
  constexpr int64_t kRows = 131, kStride = 40;
  for (const int64_t columns : {1, 15, 16, 37, 40}) {
    const std::vector<float> x = Noise(1, kRows * kStride);
    std::vector<BFloat16> x16;
    for (float value : x) x16.push_back(ToBFloat16(value));
    std::vector<float> sums(static_cast<size_t>(columns), 1.0f), sums16 = sums;
    AddColumnSums(x.data(), kRows, columns, kStride, sums.data());
    AddColumnSums(x16.data(), kRows, columns, kStride, sums16.data());
    for (int64_t c = 0; c < columns; ++c) {
      double expected = 1, expected16 = 1;
      for (int64_t r = 0; r < kRows; ++r) {
        expected += x[static_cast<size_t>(r * kStride + c)];
        expected16 += ToFloat(x16[static_cast<size_t>(r * kStride + c)]);
      }
      ASSERT_NEAR(sums[static_cast<size_t>(c)], expected, 2e-5);
      ASSERT_NEAR(sums16[static_cast<size_t>(c)], expected16, 2e-5);
    }
  }
}

TEST_P(TrainingOn, DropoutKeepsWhatItsBitsSay) {
  const DropoutBits bits(0x123456789abcdefULL, 0.3f);
  const DropoutRows dropout{bits, 1 / 0.7f};
  for (const int64_t width : {1, 4, 30, 64, 200}) {
    constexpr int64_t kRows = 3, kFirst = 11;
    const std::vector<float> x = Noise(1, kRows * width), residual = Noise(2, kRows * width);
    std::vector<float> out(x.size()), sum(x.size());
    std::vector<BFloat16> rounded(x.size());
    Drop(dropout, kFirst, x.data(), nullptr, kRows, width, out.data());
    Drop(dropout, kFirst, x.data(), residual.data(), kRows, width, sum.data());
    Drop(dropout, kFirst, x.data(), nullptr, kRows, width, rounded.data());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        const auto at = static_cast<size_t>(r * width + c);
        const float expected = bits.Kept(0, 0, kFirst + r, c) ? x[at] * dropout.scale : 0.0f;
        ASSERT_EQ(out[at], expected) << width << ": " << r << ", " << c;
        ASSERT_EQ(sum[at], residual[at] + expected);
        ASSERT_EQ(rounded[at].bits & 0x7fff, ToBFloat16(expected).bits & 0x7fff);  // zeros of either sign
      }
    }
  }
}

TEST_P(TrainingOn, DropoutKeepsItsShare) {
  constexpr int64_t kRows = 100, kWidth = 1000;
  const std::vector<float> ones(kRows * kWidth, 1.0f);
  std::vector<float> out(ones.size());
  Drop({DropoutBits(5, 0.25f), 1 / 0.75f}, 0, ones.data(), nullptr, kRows, kWidth, out.data());
  double sum = 0;
  for (float value : out) sum += value;
  EXPECT_NEAR(sum / static_cast<double>(out.size()), 1, 0.01);  // 5 deviations of the mean
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, TrainingOn, testing::ValuesIn(SupportedIsas()),
                         [](const auto& parameter) { return std::string(NameOf(parameter.param)); });

}  // namespace
}  // namespace qkv
