// Gradients by float32 and float16 as triples on AMX's tiles, beside double precision and float32's own chains.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/backward.h"
#include "attention_call.h"
#include "kernels/triples.h"
#include "qkv/attention_backward.h"

namespace qkv::test {
namespace {

// All tests of this program try triples on small calls.
class OnSmallCalls : public testing::Environment {
  void SetUp() override { SetLeastForTripleGradients({16, 32, 1}); }
};
[[maybe_unused]] const testing::Environment* const on_small_calls =
    testing::AddGlobalTestEnvironment(new OnSmallCalls);

template <class T>
struct Inputs {
  Array<T> q, k, v, dout;

  // (heads of queries, heads of keys), rows, keys, channels of keys and of values.
  Inputs(int64_t group, int64_t rows, int64_t keys, int64_t d, int64_t dv, double size = 1)
      : q(Array<T>::Random({1, 2 * group, rows, d}, 1, size)),
        k(Array<T>::Random({1, 2, keys, d}, 2, size)),
        v(Array<T>::Random({1, 2, keys, dv}, 3)),
        dout(Array<T>::Random({1, 2 * group, rows, dv}, 4)) {}
};

template <class T>
double AsDouble(T value) {
  if constexpr (std::is_same_v<T, Float16>)
    return static_cast<double>(ToFloat(value));
  else
    return static_cast<double>(value);
}

template <class T>
Array<double> InDouble(const Array<T>& from) {
  return Array<double>(from.shape, [&](int64_t i) { return AsDouble(from[i]); });
}

template <class T>
struct Gradients {
  Array<T> dq, dk, dv;
};

template <class T>
Gradients<T> Differentiate(const Array<T>& q, const Array<T>& k, const Array<T>& v, const Array<T>& dout,
                           const AttentionOptions& options) {
  const Answer<T> answer = Attend(q, k, v, options);
  Gradients<T> got{Array<T>(q.shape, 7), Array<T>(k.shape, 7), Array<T>(v.shape, 7)};
  AttentionBackward(dout.in(), q.in(), k.in(), v.in(), answer.out.in(), answer.lse.in(), options,
                    {got.dq.out(), got.dk.out(), got.dv.out(), {}, {}});
  return got;
}

template <class T>
Gradients<T> On(Isa isa, const Inputs<T>& in, const AttentionOptions& options = {}) {
  ForceIsa(isa);
  return Differentiate(in.q, in.k, in.v, in.dout, options);
}

template <class T>
Gradients<double> Exactly(const Inputs<T>& in, const AttentionOptions& options = {}) {
  return Differentiate(InDouble(in.q), InDouble(in.k), InDouble(in.v), InDouble(in.dout), options);
}

template <class T>
double RmsError(const Array<T>& values, const Array<double>& expected) {
  double squares = 0;
  for (int64_t i = 0; i < values.shape.elements(); ++i) {
    const double error = AsDouble(values[i]) - expected[i];
    squares += error * error;
  }
  return std::sqrt(squares / static_cast<double>(values.shape.elements()));
}

template <class T>
void ExpectNearAll(const Gradients<T>& got, const Gradients<double>& exact, double bound, const char* what) {
  EXPECT_LE(RmsError(got.dq, exact.dq), bound) << what;
  EXPECT_LE(RmsError(got.dk, exact.dk), bound) << what;
  EXPECT_LE(RmsError(got.dv, exact.dv), bound) << what;
}

class TripleGradients : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasTripleKernels(SupportedIsas().back())) GTEST_SKIP() << "no tiles on this machine";
  }
  void TearDown() override { ForceIsa(SupportedIsas().back()); }
};

TEST_F(TripleGradients, ErrorsAreNotAboveThoseOfFloat32sChains) {
  for (const double size : {0.3, 1.0, 2.0}) {
    const Inputs<float> in(2, 140, 400, 64, 64, size);
    const Gradients<double> exact = Exactly(in);
    const Gradients<float> triples = On(Isa::kAmx, in), chains = On(Isa::kAvx512, in);
    EXPECT_NE(triples.dk.values, chains.dk.values);
    EXPECT_LE(RmsError(triples.dq, exact.dq), RmsError(chains.dq, exact.dq)) << size;
    EXPECT_LE(RmsError(triples.dk, exact.dk), RmsError(chains.dk, exact.dk)) << size;
    // Most of dv's error is the rounding of lse, which both have.
    EXPECT_LE(RmsError(triples.dv, exact.dv), 1.2 * RmsError(chains.dv, exact.dv)) << size;
  }
}

// Around the sizes of groups, chunks, blocks and tiles.
TEST_F(TripleGradients, HoldAtTheEdgesOfTiles) {
  AttentionOptions causal;
  causal.causal = Causal::kBottomRight;
  for (const int64_t size : {31, 32, 33, 63, 64, 65, 96, 97, 128, 129, 256, 257}) {
    for (const int64_t d : {1, 31, 33, 80}) {
      const Inputs<float> in(1, size, size + 3, d, 144 - d, 0.5);
      ExpectNearAll(On(Isa::kAmx, in, causal), Exactly(in, causal), 3e-7, "float32");
    }
  }
  const Inputs<Float16> half(3, 65, 129, 32, 40, 0.5);
  ExpectNearAll(On(Isa::kAmx, half, causal), Exactly(half, causal), 2e-3, "float16");
}

// Rows whose windows leave chunks between them that no row sees.
TEST_F(TripleGradients, WindowsAndThreads) {
  const Inputs<float> in(1, 500, 900, 64, 64);
  AttentionOptions options;
  options.causal = Causal::kTopLeft;
  options.window.left = 20;
  const Gradients<double> exact = Exactly(in, options);
  SetThreads(1);
  const Gradients<float> one = On(Isa::kAmx, in, options);
  ExpectNearAll(one, exact, 3e-7, "window");
  for (const int threads : {2, 3}) {
    SetThreads(threads);
    const Gradients<float> more = On(Isa::kAmx, in, options);
    EXPECT_EQ(more.dq.values, one.dq.values) << threads;
    EXPECT_EQ(more.dk.values, one.dk.values) << threads;
    EXPECT_EQ(more.dv.values, one.dv.values) << threads;
  }
  SetThreads(1);
}

// Some rows and keys are scaled so that they have no triples: they are multiplied in float32, and all others'
// bits are those that they have without them.
TEST_F(TripleGradients, NumbersThatHaveNoTriplesComeOutAsTheyAre) {
  constexpr int64_t kRows = 200, kKeys = 300, kD = 64;
  AttentionOptions options;
  options.causal = Causal::kTopLeft;
  const Inputs<float> plain(1, kRows, kKeys, kD, kD);
  const Gradients<float> without = On(Isa::kAmx, plain, options);
  for (const float factor : {1e9f, 1e-34f, 1e30f}) {
    Inputs<float> in = plain;
    for (int64_t c = 0; c < kD; ++c) {
      in.dout[100 * kD + c] *= factor;
      in.v[150 * kD + c] *= factor;
    }
    const Gradients<float> triples = On(Isa::kAmx, in, options), chains = On(Isa::kAvx512, in, options);
    for (int64_t row = 0; row < kRows; ++row) {
      double largest = row == 100 ? 0.0 : 0.01;  // an ordinary row may be a difference of ordinary numbers
      for (int64_t c = 0; c < kD; ++c) largest = std::max(largest, std::abs(AsDouble(chains.dq[row * kD + c])));
      for (int64_t c = 0; c < kD; ++c) {
        const int64_t at = row * kD + c;
        ASSERT_NEAR(triples.dq[at], chains.dq[at], 1e-5 * largest + 1e-37) << factor << " row " << row;
        if (row < 150 && row != 100) {
          ASSERT_EQ(triples.dq[at], without.dq[at]) << factor << " row " << row;
        }
      }
    }
  }
}

// Infinity stays infinity, where float32's chains have it.
TEST_F(TripleGradients, WhatIsNotFiniteIsAsInFloat32) {
  constexpr int64_t kD = 64;
  Inputs<float> in(1, 150, 150, kD, kD);
  in.dout[90 * kD + 3] = HUGE_VALF;
  in.k[120 * kD + 5] = std::numeric_limits<float>::quiet_NaN();
  AttentionOptions options;
  options.causal = Causal::kTopLeft;
  const Gradients<float> triples = On(Isa::kAmx, in, options), chains = On(Isa::kAvx512, in, options);
  const auto same = [](const Array<float>& a, const Array<float>& b) {
    for (int64_t i = 0; i < a.shape.elements(); ++i) {
      if (std::isfinite(b[i]) ? !std::isfinite(a[i]) : std::isnan(a[i]) != std::isnan(b[i])) return i;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(same(triples.dq, chains.dq), -1);
  EXPECT_EQ(same(triples.dk, chains.dk), -1);
  EXPECT_EQ(same(triples.dv, chains.dv), -1);
}

// Key 0 is seen by the last row only, whose weight for it is about 2^-114: below 2^-102 a triple loses digits.
TEST_F(TripleGradients, TinyWeightsKeepTheirDigits) {
  constexpr int64_t kRows = 64, kD = 64;
  const Inputs<float> in(1, kRows, kRows, kD, kD, 0.1);
  const Array<float> slopes({2}, 1.25f);
  Mask mask({kRows, kRows}, std::vector<uint8_t>(kRows * kRows, 1));
  for (size_t row = 0; row + 1 < kRows; ++row) mask.values[row * kRows] = 0;
  AttentionOptions options;
  options.causal = Causal::kTopLeft;
  options.alibi_slopes = slopes.in();
  options.mask = mask.in();
  const Gradients<float> triples = On(Isa::kAmx, in, options);
  const Gradients<double> exact = Exactly(in, options);
  for (int64_t c = 0; c < kD; ++c) {
    EXPECT_LT(std::abs(exact.dv[c]), 1e-33);
    EXPECT_NEAR(triples.dv[c] / exact.dv[c], 1, 3e-5) << c;
  }
}

}  // namespace
}  // namespace qkv::test
