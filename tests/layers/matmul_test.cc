#include "layers/matmul.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "kernels/pair_matmul.h"
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

TEST(MatMul, OnPairs) {
  const std::vector<Isa> isas = SupportedIsas();
  if (!HasPairMatMul(isas.back())) GTEST_SKIP() << "no tiles of bfloat16 here";
  CheckAll(PairMatMul, DType::kBF16);
  // Several blocks in both directions that share their columns, and pieces of depth.
  const Size s{1100, 400, 530};
  const std::vector<BFloat16> a = Rounded(Noise(1, s.m * s.k)), b = Rounded(Noise(2, s.k * s.n));
  for (const Layout b_layout : {Layout::kRows, Layout::kColumns}) {
    Check<BFloat16, float>(PairMatMul, s, Layout::kRows, b_layout, a, b, 2e-5);
  }
}

// What goes with a product: a residual, sums of b's columns, and work on each part, once.
template <class T>
void CheckCompany(Size s, Layout a_layout, const std::vector<T>& a, const std::vector<T>& b, double tolerance) {
  std::vector<float> c(static_cast<size_t>(s.m * s.n)), plain = c, residual = Noise(5, s.m * s.n);
  std::vector<float> sums = Noise(6, s.n), expected_sums = sums;
  std::vector<int> seen(c.size());
  MatMul({a.data(), a_layout}, b.data(), Product(s.m, s.n, s.k, plain.data()));
  Product product(s.m, s.n, s.k, c.data());
  product.residual = residual.data();
  product.column_sums = sums.data();
  product.then = [&](const RowsPart& part) {
    for (int64_t r = part.row; r < part.row + part.rows; ++r) {
      for (int64_t j = part.column; j < part.column + part.columns; ++j) {
        const auto at = static_cast<size_t>(r * s.n + j);
        EXPECT_EQ(c[at], plain[at] + residual[at]);
        ++seen[at];
      }
    }
  };
  MatMul({a.data(), a_layout}, b.data(), product);
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  for (int64_t j = 0; j < s.n; ++j) {
    double sum = expected_sums[static_cast<size_t>(j)];
    for (int64_t k = 0; k < s.k; ++k) sum += At(b, Layout::kRows, s.k, s.n, k, j);
    EXPECT_NEAR(sums[static_cast<size_t>(j)], sum, tolerance) << j;
  }
}

class MatMulOn : public testing::TestWithParam<Isa> {};

TEST_P(MatMulOn, Tiles) {
  const Isa chosen = ChosenIsa();
  ForceIsa(GetParam());
  CheckAll(TileMatMul, DType::kF32);
  CheckAll(TileMatMul, DType::kBF16);
  ForceIsa(chosen);
}

TEST_P(MatMulOn, Company) {
  const Isa chosen = ChosenIsa();
  ForceIsa(GetParam());
  for (const Size s : {Size{97, 66, 33}, {1100, 401, 40}, {40, 33, 1100}}) {
    const std::vector<float> a = Noise(1, s.m * s.k), b = Noise(2, s.k * s.n);
    for (const Layout a_layout : {Layout::kRows, Layout::kColumns}) {
      SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k << " " << int(a_layout));
      CheckCompany(s, a_layout, a, b, 1e-4);
      CheckCompany(s, a_layout, Rounded(a), Rounded(b), 1e-4);
    }
  }
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
