#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/cpu.h"
#include "runtime/half.h"
#include "support/guard.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using test::Edge;
using test::GuardedBuffer;

double Exact(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return std::fmax(x, 0);
    case Activation::kGeluErf: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

class Activated : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { ForceIsa(GetParam()); }
  void TearDown() override { ForceIsa(before_); }

 private:
  Isa before_ = ChosenIsa();
};

constexpr Activation kAll[] = {Activation::kNone, Activation::kRelu, Activation::kGeluErf, Activation::kGeluTanh};

TEST_P(Activated, Float32IsCloseEverywhere) {
  for (Activation activation : kAll) {
    std::vector<float> x;
    for (int i = -100000; i <= 100000; ++i) x.push_back(static_cast<float>(i) * 1e-4f);  // -10 to 10
    for (float large : {0.0f, -0.0f, 1e-30f, 50.0f, -50.0f, 1e10f, -1e10f}) x.push_back(large);
    std::vector<float> y = x;
    Activate(activation, y.data(), static_cast<int64_t>(y.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = Exact(activation, x[i]);
      ASSERT_NEAR(y[i], expected, test::kActivation + test::Epsilon(DType::kF32) * std::fabs(expected))
          << static_cast<int>(activation) << " of " << x[i];
    }
  }
}

TEST_P(Activated, BFloat16IsCloseForEveryCode) {
  for (Activation activation : kAll) {
    std::vector<BFloat16> x(65536);
    for (size_t code = 0; code < x.size(); ++code) x[code].bits = static_cast<uint16_t>(code);
    std::vector<BFloat16> y = x;
    Activate(activation, y.data(), static_cast<int64_t>(y.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const float value = ToFloat(x[i]);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(ToFloat(y[i])));
      }
      if (!(std::fabs(value) < 1e10f)) continue;
      const double expected = Exact(activation, value);
      const double rounding = test::Epsilon(DType::kBF16) / 2 * std::fabs(expected);
      ASSERT_NEAR(ToFloat(y[i]), expected, test::kActivationBFloat16 + rounding)
          << static_cast<int>(activation) << " of " << value;
    }
  }
}

TEST_P(Activated, NaNStaysNaN) {
  for (Activation activation : kAll) {
    std::vector<float> x(37, 1.0f);
    x[0] = x[20] = x[36] = std::numeric_limits<float>::quiet_NaN();
    Activate(activation, x.data(), 37);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(x[i]), i == 0 || i == 20 || i == 36) << i;
  }
}

template <class T> void ExpectBounds(T one) {
  for (int64_t count = 0; count <= 40; ++count) {
    for (Edge edge : {Edge::kEnd, Edge::kBegin}) {
      GuardedBuffer<T> x(count, edge);
      for (int64_t i = 0; i < count; ++i) x[i] = one;
      Activate(Activation::kRelu, x.data(), count);
      for (int64_t i = 0; i < count; ++i) EXPECT_EQ(std::memcmp(&x[i], &one, sizeof(T)), 0);
    }
  }
}

TEST_P(Activated, AnyCountIsReadAndWrittenToItsEndAndNoFurther) {
  ExpectBounds(1.0f);
  ExpectBounds(ToBFloat16(1.0f));
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Activated, testing::ValuesIn(SupportedIsas()),
                         [](const auto& isa) { return std::string(NameOf(isa.param)); });

}  // namespace
}  // namespace qkv
