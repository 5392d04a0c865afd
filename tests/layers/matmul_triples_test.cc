// Products of float32 as triples of bfloat16, held to the product in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/triple_matmul.h"
#include "layers/matmul.h"
#include "layers/noise.h"
#include "layers/panels.h"
#include "runtime/cpu.h"
#include "runtime/threads.h"
#include "support/guard.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using test::DotBound;
using test::Edge;
using test::GuardedBuffer;
using test::Noise;

struct Size {
  int64_t m, n, k;
};

struct Layouts {
  Layout a, b;
};
constexpr Layouts kLayouts[] = {{Layout::kRows, Layout::kRows},
                                {Layout::kRows, Layout::kColumns},
                                {Layout::kColumns, Layout::kRows},
                                {Layout::kColumns, Layout::kColumns}};

int64_t Place(Layout layout, Size all, int64_t r, int64_t c) {
  return layout == Layout::kRows ? r * all.n + c : c * all.m + r;
}

// Two factors and what is right for their product.
struct Factors {
  Size s;
  Layouts layouts;
  std::vector<float> a, b;

  Factors(Size size, Layouts order, float a_scale = 1, float b_scale = 1)
      : s(size), layouts(order), a(Noise(1, s.m * s.k, a_scale)), b(Noise(2, s.k * s.n, b_scale)) {}

  float& A(int64_t r, int64_t k) { return a[static_cast<size_t>(Place(layouts.a, {s.m, s.k, 0}, r, k))]; }
  float& B(int64_t k, int64_t c) { return b[static_cast<size_t>(Place(layouts.b, {s.k, s.n, 0}, k, c))]; }

  struct Sum {
    double value = 0, magnitudes = 0;
  };
  Sum Exact(int64_t r, int64_t c) {
    Sum sum;
    for (int64_t k = 0; k < s.k; ++k) {
      const double product = static_cast<double>(A(r, k)) * B(k, c);
      sum.value += product;
      sum.magnitudes += std::fabs(product);
    }
    return sum;
  }

  void Multiply(Product& product) const { TripleMatMul({a.data(), layouts.a}, {b.data(), layouts.b}, product); }
  std::vector<float> Multiplied() const {
    std::vector<float> c(static_cast<size_t>(s.m * s.n), std::numeric_limits<float>::quiet_NaN());
    Product product(s.m, s.n, s.k, c.data());
    Multiply(product);
    return c;
  }

  // Elements, every `step`th, against the exact ones.
  void Check(const std::vector<float>& c, int64_t step = 1) {
    SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k << " " << int(layouts.a)
                                    << int(layouts.b));
    for (int64_t i = 0; i < s.m * s.n; i += step) {
      const auto [value, magnitudes] = Exact(i / s.n, i % s.n);
      const float got = c[static_cast<size_t>(i)];
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(got)) << i << ": " << got;
      } else if (std::isinf(value)) {
        ASSERT_EQ(got, static_cast<float>(value)) << i;
      } else {
        // Products of parts that are below the type's range are zero.
        ASSERT_NEAR(got, value, DotBound(s.k, magnitudes) + static_cast<double>(s.k) * 1e-37) << i;
      }
    }
  }
};

class Triples : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasTripleMatMul(ChosenIsa())) GTEST_SKIP() << "no tiles of bfloat16 here";
  }
};

TEST_F(Triples, MultiplyAsTheFormulaSays) {
  for (const Layouts& layouts : kLayouts) {
    for (int64_t size : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
      for (const Size s : {Size{size, 37, 41}, {41, size, 37}, {37, 41, size}, {size, size, size}}) {
        Factors factors(s, layouts);
        factors.Check(factors.Multiplied());
      }
    }
  }
}

// Blocks and pieces of the depth, and one less and one more.
TEST_F(Triples, MultiplyInSeveralBlocksAndPieces) {
  const auto [rows, columns] = kTripleBlockOfPieces;
  for (const Layouts& layouts : kLayouts) {
    for (int64_t more : {-1, 0, 1}) {
      for (const Size s : {Size{33, 70, kTriplePiece + more},
                           {33, 70, 3 * kTriplePiece + more},
                           Size{rows + more, 40, kTriplePiece + 10},
                           {40, columns + more, kTriplePiece + 10},
                           Size{kTripleBlockOfPiece.rows + more, 70, 20},
                           {70, kTripleBlockOfPiece.columns + more, 20}}) {
        Factors factors(s, layouts);
        factors.Check(factors.Multiplied(), 7);
      }
    }
  }
}

// Into, bias, residual, column sums, and work on each part, once.
TEST_F(Triples, AddWhatGoesWithAProduct) {
  for (const Size s : {Size{97, 66, 33}, {130, 200, 1100}}) {
    for (const Layout a_layout : {Layout::kRows, Layout::kColumns}) {
      Factors factors(s, {a_layout, Layout::kRows});
      const std::vector<float> plain = factors.Multiplied(), bias = Noise(3, s.n),
                               residual = Noise(4, s.m * s.n);
      std::vector<float> c = residual, d(c.size()), sums = Noise(5, s.n);
      const std::vector<float> before = sums;
      std::vector<int> seen(c.size());
      Product add(s.m, s.n, s.k, c.data(), Into::kAdd), other(s.m, s.n, s.k, d.data());
      add.bias = other.bias = bias.data();
      other.residual = residual.data();
      other.column_sums = sums.data();
      other.then = [&](const RowsPart& part) {
        for (int64_t i = 0; i < part.rows * part.columns; ++i) {
          ++seen[static_cast<size_t>((part.row + i / part.columns) * s.n + part.column + i % part.columns)];
        }
      };
      factors.Multiply(add);
      factors.Multiply(other);
      EXPECT_EQ(c, d);
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
      for (size_t i = 0; i < c.size(); ++i) {
        ASSERT_EQ(c[i], plain[i] + bias[i % static_cast<size_t>(s.n)] + residual[i]);
      }
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = before[static_cast<size_t>(j)], magnitudes = std::fabs(sum);
        for (int64_t k = 0; k < s.k; ++k) sum += factors.B(k, j), magnitudes += std::fabs(factors.B(k, j));
        EXPECT_NEAR(sums[static_cast<size_t>(j)], sum, DotBound(s.k, magnitudes)) << j;
      }
    }
  }
}

// A chain of fused multiply-adds is what float32 offers otherwise.
TEST_F(Triples, AreNoFartherFromTheProductThanFusedMultiplyAdds) {
  for (int64_t k : {32, 64, 512, 1536}) {
    Factors factors({64, 96, k}, {Layout::kRows, Layout::kColumns});
    const std::vector<float> c = factors.Multiplied();
    double ours = 0, fused = 0;
    for (int64_t i = 0; i < 64 * 96; ++i) {
      const double exact = factors.Exact(i / 96, i % 96).value;
      float chain = 0;
      for (int64_t j = 0; j < k; ++j) chain = std::fma(factors.A(i / 96, j), factors.B(j, i % 96), chain);
      ours += std::pow(c[static_cast<size_t>(i)] - exact, 2);
      fused += std::pow(chain - exact, 2);
    }
    EXPECT_LT(std::sqrt(ours), 0.7 * std::sqrt(fused)) << "depth " << k;
  }
}

// Sizes of 1e38 and 1e-38 whose products are ordinary, or barely fit.
TEST_F(Triples, MultiplyVeryLargeAndVerySmallNumbers) {
  for (const Layouts& layouts : kLayouts) {
    for (const auto& [a, b] : {std::pair{3e38f, 3e-38f},
                               {1e-38f, 1e38f},
                               {1e38f, 0.1f},
                               {1e-31f, 1e15f},
                               {1e20f, 1e-35f},
                               {1e-18f, 1e-18f}}) {
      SCOPED_TRACE(testing::Message() << a << " by " << b);
      Factors factors({50, 70, 400}, layouts, a, b);
      factors.Check(factors.Multiplied());
    }
  }
}

// One odd number in either factor, anywhere: its row or column is as IEEE sums say, and no other is touched by
// it, nor by the zeros that pad blocks.
TEST_F(Triples, TakeInfinitiesAndNanAsSumsDo) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const Size s{70, 75, 410};
  for (const Layouts& layouts : kLayouts) {
    for (float odd : {kInf, -kInf, kNan, 3e38f, 1e-38f, 1e-44f}) {
      SCOPED_TRACE(odd);
      Factors in_a(s, layouts), in_b(s, layouts), in_both(s, layouts);
      in_a.A(69, 409) = in_b.B(3, 74) = odd;
      in_both.A(40, 208) = odd;
      in_both.B(208, 33) = odd < 1 ? 0.0f : -1e-3f;
      in_both.B(209, 34) = odd;
      for (Factors* factors : {&in_a, &in_b, &in_both}) factors->Check(factors->Multiplied());
    }
  }
}

TEST_F(Triples, TakeZerosForPlainNumbers) {
  Factors factors({64, 64, 64}, kLayouts[0], 0, 1);
  for (float value : factors.Multiplied()) ASSERT_EQ(value, 0.0f);
}

TEST_F(Triples, GiveTheSameBitsForAnyThreads) {
  const int before = Threads();
  for (const Size s : {Size{700, 300, 900}, {1100, 700, 60}, {509, 384, 384}}) {
    Factors factors(s, {Layout::kRows, Layout::kRows});
    factors.A(s.m / 2, 7) = 1e38f;
    SetThreads(1);
    const std::vector<float> one = factors.Multiplied();
    factors.Check(one, 997);
    for (int threads : {2, 3, 5}) {
      SetThreads(threads);
      const std::vector<float> c = factors.Multiplied();
      EXPECT_EQ(std::memcmp(c.data(), one.data(), c.size() * sizeof(float)), 0) << threads << " threads";
    }
  }
  SetThreads(before);
}

// Factors end at an unreadable page.
TEST_F(Triples, ReadWithinTheirFactors) {
  const Size s{45, 39, 77};
  for (const Edge edge : {Edge::kBegin, Edge::kEnd}) {
    const GuardedBuffer<float> a(Noise(1, s.m * s.k), edge), b(Noise(2, s.k * s.n), edge);
    GuardedBuffer<float> c(s.m * s.n, edge);
    for (const Layouts& layouts : kLayouts) {
      Factors factors(s, layouts);
      TripleMatMul({a.data(), layouts.a}, {b.data(), layouts.b}, Product(s.m, s.n, s.k, c.data()));
      factors.Check(std::vector<float>(c.begin(), c.end()));
    }
  }
}

// A weight in panels, of which the last is padded, split beforehand: of one block and several, one piece and several.
TEST_F(Triples, MultiplyPanels) {
  const PanelKernel kernel = ChosenPanelKernel();
  ASSERT_EQ(kernel.columns, kTriplePanel);
  for (const auto& [rows, outputs, inputs] :
       {Size{100, 700, 48}, {80, 130, 800}, {1, 1, 1}, {33, 65, 385}, {600, 1500, 16}, {40, 900, 400}}) {
    Factors factors({rows, outputs, inputs}, {Layout::kRows, Layout::kColumns});
    factors.B(inputs - 1, outputs / 2) = std::numeric_limits<float>::infinity();  // its panel is odd in one piece
    const int64_t panels = (outputs + kernel.columns - 1) / kernel.columns;
    std::vector<float> packed(static_cast<size_t>(panels * kernel.columns * inputs)),
        y(static_cast<size_t>(rows * outputs));
    for (int64_t first = 0; first < outputs; first += kernel.columns) {
      const int64_t count = std::min(kernel.columns, outputs - first);
      std::vector<const float*> weights;
      for (int64_t n = 0; n < count; ++n) weights.push_back(&factors.B(0, first + n));
      PackPanel(weights.data(), count, inputs, kernel.columns, packed.data() + first * inputs);
    }
    const SplitPanels split({packed.data(), nullptr, inputs, outputs, kernel});
    split.Multiply(factors.a.data(), rows, y.data(), Into::kOverwrite);
    EXPECT_EQ(y, factors.Multiplied());
  }
}

}  // namespace
}  // namespace qkv
