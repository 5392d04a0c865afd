// float32 as triples on AMX's tiles, beside double precision and beside float32's own chains.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/forward.h"
#include "attention_call.h"
#include "kernels/triples.h"

namespace qkv::test {
namespace {

// All tests of this program try triples on small calls.
class OnSmallCalls : public testing::Environment {
  void SetUp() override { SetLeastForTriples({32, 1}); }
};
[[maybe_unused]] const testing::Environment* const on_small_calls = testing::AddGlobalTestEnvironment(new OnSmallCalls);

constexpr int64_t kHeads = 2, kGroup = 2, kQueries = 150, kKeys = 700, kD = 64;

struct Inputs {
  Array<float> q, k, v;

  explicit Inputs(double size)
      : q(Array<float>::Random({1, kHeads * kGroup, kQueries, kD}, 1, size)),
        k(Array<float>::Random({1, kHeads, kKeys, kD}, 2, size)),
        v(Array<float>::Random({1, kHeads, kKeys, kD}, 3, size)) {}
};

Array<double> InDouble(const Array<float>& from) {
  return Array<double>(from.shape, [&](int64_t i) { return from[i]; });
}

Answer<double> Reference(const Inputs& in, const AttentionOptions& options = {}) {
  return Attend(InDouble(in.q), InDouble(in.k), InDouble(in.v), options);
}

double RmsError(const Array<float>& values, const Array<double>& expected) {
  double squares = 0;
  for (int64_t i = 0; i < values.shape.elements(); ++i) {
    const double error = static_cast<double>(values[i]) - expected[i];
    squares += error * error;
  }
  return std::sqrt(squares / static_cast<double>(values.shape.elements()));
}

class Triples : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<Isa> isas = SupportedIsas();
    if (!HasTripleKernels(isas.back())) GTEST_SKIP() << "no tiles on this machine";
  }
  void TearDown() override { ForceIsa(SupportedIsas().back()); }

  static Answer<float> On(Isa isa, const Inputs& in, const AttentionOptions& options = {}) {
    ForceIsa(isa);
    return Attend(in.q, in.k, in.v, options);
  }
};

TEST_F(Triples, ErrorsAreNotAboveThoseOfFloat32sChains) {
  for (const double size : {0.3, 1.0, 3.0}) {
    const Inputs in(size);
    const Answer<double> exact = Reference(in);
    const double triples = RmsError(On(Isa::kAmx, in).out, exact.out),
                 chains = RmsError(On(Isa::kAvx512, in).out, exact.out);
    EXPECT_LE(triples, chains) << "size " << size;
    EXPECT_GT(triples, 0);
  }
}

// Rows and keys 32 and 100 are scaled by `factor`; the rest are ordinary.
Inputs WithOddOnes(float factor) {
  Inputs in(1);
  for (const int64_t at : {32, 100}) {
    for (int64_t c = 0; c < kD; ++c) {
      in.q[at * kD + c] *= factor;
      in.k[(at + 7) * kD + c] /= factor;
      in.v[(at + 9) * kD + c] *= factor;
    }
  }
  return in;
}

TEST_F(Triples, NumbersThatHaveNoTriplesComeOutAsTheyAre) {
  for (const float factor : {1e25f, 1e-25f, 3e37f, 1e-37f}) {
    const Inputs in = WithOddOnes(factor);
    const Answer<float> triples = On(Isa::kAmx, in), chains = On(Isa::kAvx512, in);
    for (int64_t row = 0; row < triples.out.shape.elements(); row += kD) {
      float largest = 0;
      for (int64_t c = 0; c < kD; ++c) largest = std::max(largest, std::abs(chains.out[row + c]));
      for (int64_t c = 0; c < kD; ++c) {
        ASSERT_NEAR(triples.out[row + c], chains.out[row + c], 5e-6f * largest)
            << factor << " at " << row << ", " << c;
      }
    }
  }
}

TEST_F(Triples, ATinyOutputKeepsItsDigits) {
  Inputs in(1);
  for (float& value : in.v.values) value = std::abs(value) * 1e-37f;
  const Answer<double> exact = Reference(in);
  const Answer<float> triples = On(Isa::kAmx, in);
  for (int64_t i = 0; i < triples.out.shape.elements(); ++i) {
    ASSERT_NEAR(triples.out[i] * 1e37, exact.out[i] * 1e37, 1e-5 * exact.out[i] * 1e37) << i;
  }
}

TEST_F(Triples, WeightsThatUnderflowAreZeros) {
  const Inputs in(1);
  Array<float> slopes({kHeads * kGroup}, [](int64_t h) { return std::ldexp(1.0, static_cast<int>(-h)); });
  AttentionOptions options;
  options.alibi_slopes = slopes.in();
  const Answer<double> exact = Reference(in, options);
  const Answer<float> triples = On(Isa::kAmx, in, options);
  EXPECT_LE(RmsError(triples.out, exact.out), 3e-7);
  EXPECT_LE(RmsError(triples.lse, InDouble(On(Isa::kAvx512, in, options).lse)), 3e-6);
}

TEST_F(Triples, RowsInChunksHaveTheBitsOfFloat32sChains) {
  const Inputs in(1);
  AttentionOptions options;
  const Answer<float> whole = On(Isa::kAmx, in, options), chains = On(Isa::kAvx512, in, options);
  options.chunked = true;
  const Answer<float> chunk = On(Isa::kAmx, in, options);
  EXPECT_EQ(chunk.out.values, chains.out.values);
  EXPECT_NE(chunk.out.values, whole.out.values);
}

}  // namespace
}  // namespace qkv::test
