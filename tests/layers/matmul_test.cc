#include "layers/matmul.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "layers/noise.h"
#include "runtime/cpu.h"
#include "runtime/half.h"

namespace qkv {
namespace {

using test::Noise;

struct Size {
  int64_t m, n, k;
};

std::vector<BFloat16> Rounded(const std::vector<float>& values) {
  std::vector<BFloat16> rounded;
  for (float value : values) rounded.push_back(ToBFloat16(value));
  return rounded;
}

float Value(float value) { return value; }
float Value(BFloat16 value) { return ToFloat(value); }

template <class T>
double At(const std::vector<T>& values, Layout layout, int64_t rows, int64_t columns, int64_t r, int64_t c) {
  return Value(values[static_cast<size_t>(layout == Layout::kRows ? r * columns + c : c * rows + r)]);
}

using Multiply = void (*)(const Matrix&, const Matrix&, const Product&);

template <class In, class Out>
void Check(Multiply multiply, Size s, Layout a_layout, Layout b_layout, const std::vector<In>& a,
           const std::vector<In>& b, double tolerance) {
  SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k << " " << int(a_layout)
                                  << int(b_layout));
  const std::vector<float> bias = Noise(3, s.n);
  std::vector<Out> c(static_cast<size_t>(s.m * s.n)), added = c;
  for (Out& value : added) {
    if constexpr (std::is_same_v<Out, float>)
      value = 2.0f;
    else
      value = ToBFloat16(2.0f);
  }
  Product plain(s.m, s.n, s.k, c.data()), sum(s.m, s.n, s.k, added.data(), Into::kAdd);
  sum.bias = bias.data();
  multiply({a.data(), a_layout}, {b.data(), b_layout}, plain);
  multiply({a.data(), a_layout}, {b.data(), b_layout}, sum);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double expected = 0;
      for (int64_t k = 0; k < s.k; ++k) {
        expected += At(a, a_layout, s.m, s.k, i, k) * At(b, b_layout, s.k, s.n, k, j);
      }
      const auto at = static_cast<size_t>(i * s.n + j);
      ASSERT_NEAR(Value(c[at]), expected, tolerance) << i << ", " << j;
      ASSERT_NEAR(Value(added[at]), expected + bias[static_cast<size_t>(j)] + 2, 4 * tolerance)
          << i << ", " << j;
    }
  }
}

void CheckAll(Multiply multiply, DType dtype) {
  for (const Size s : {Size{1, 1, 1}, {3, 5, 7}, {97, 66, 33}, {2, 65, 1030}, {130, 17, 64}}) {
    const std::vector<float> a = Noise(1, s.m * s.k), b = Noise(2, s.k * s.n);
    for (const Layout a_layout : {Layout::kRows, Layout::kColumns}) {
      for (const Layout b_layout : {Layout::kRows, Layout::kColumns}) {
        if (dtype == DType::kF32) Check<float, float>(multiply, s, a_layout, b_layout, a, b, 1e-5);
        if (dtype == DType::kF32) continue;
        Check<BFloat16, float>(multiply, s, a_layout, b_layout, Rounded(a), Rounded(b), 1e-5);
        Check<BFloat16, BFloat16>(multiply, s, a_layout, b_layout, Rounded(a), Rounded(b), 0.02);
      }
    }
  }
}

TEST(MatMul, OnOneDnn) {
  if (OneDnnMultiplies(DType::kF32)) CheckAll(OneDnnMatMul, DType::kF32);
  if (OneDnnMultiplies(DType::kBF16)) CheckAll(OneDnnMatMul, DType::kBF16);
  CheckAll(MatMul, DType::kF32);
}

class MatMulOn : public testing::TestWithParam<Isa> {};

TEST_P(MatMulOn, Tiles) {
  const Isa chosen = ChosenIsa();
  ForceIsa(GetParam());
  CheckAll(TileMatMul, DType::kF32);
  CheckAll(TileMatMul, DType::kBF16);
  ForceIsa(chosen);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, MatMulOn, testing::ValuesIn(SupportedIsas()),
                         [](const auto& parameter) { return std::string(NameOf(parameter.param)); });

TEST(MatMul, EmptySizes) {
  std::vector<float> c = {1, 2};
  MatMul(static_cast<float*>(nullptr), static_cast<float*>(nullptr), Product(0, 2, 3, c.data()));
  EXPECT_EQ(c, (std::vector<float>{1, 2}));
  const std::vector<float> bias = {5, 6};
  Product product(1, 2, 0, c.data());
  product.bias = bias.data();
  MatMul(static_cast<float*>(nullptr), static_cast<float*>(nullptr), product);
  EXPECT_EQ(c, bias);
}

}  // namespace
}  // namespace qkv
